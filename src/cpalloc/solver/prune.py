"""Take back preemptions that nothing uses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cpalloc.problem.problem import Action, Decision, JobState, Problem
from cpalloc.problem.usage import Usage


def prune(problem: Problem, decision: Decision) -> Decision:
    """The decision with every preemption undone whose GPUs no start uses, dearest first (policy rule 6)."""
    jobs = problem.jobs
    victims = np.flatnonzero((decision.action == Action.PREEMPT) & (jobs.state == JobState.EVICTABLE)).tolist()
    if not victims:
        return decision
    usage = Usage.of(problem, decision)
    action, mode = decision.action.copy(), decision.mode.copy()
    for j in sorted(victims, key=lambda j: (-int(jobs.preempt_cost[j]), -int(jobs.size[j]), j)):
        if usage.can_restore(j):
            usage.restore(j)
            action[j], mode[j] = Action.KEEP, jobs.mode[j]
    return replace(decision, action=action, mode=mode)
