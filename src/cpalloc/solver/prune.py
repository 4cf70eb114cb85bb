"""Take back preemptions that nothing uses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cpalloc.models.base import Constraint
from cpalloc.models.constraints.funding import Funding
from cpalloc.models.constraints.limits import Limits
from cpalloc.problem.problem import Action, Decision, JobState, Problem
from cpalloc.problem.usage import Usage

COUNTING: tuple[Constraint, ...] = (Funding(), Limits())
"""Rules that count what a budget runs: whoever is not preempted after all counts again."""


def prune(problem: Problem, decision: Decision) -> Decision:
    """The decision with every preemption undone whose GPUs no start uses, dearest first (policy rule 6).

    But for those without which a budget could not have what it starts.
    """
    jobs = problem.jobs
    victims = np.flatnonzero((decision.action == Action.PREEMPT) & (jobs.state == JobState.EVICTABLE)).tolist()
    if not victims:
        return decision
    usage = Usage.of(problem, decision)
    counting = [rule for rule in COUNTING if rule.applies(problem)]
    for j in sorted(victims, key=lambda j: (-int(jobs.preempt_cost[j]), -int(jobs.size[j]), j)):
        if usage.can_restore(j):
            action, mode = decision.action.copy(), decision.mode.copy()
            action[j], mode[j] = Action.KEEP, jobs.mode[j]
            kept = replace(decision, action=action, mode=mode)
            if not any(True for rule in counting for _ in rule.check(problem, kept)):
                usage.restore(j)
                decision = kept
    return decision
