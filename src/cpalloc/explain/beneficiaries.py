"""Whom preemptions make room for."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from cpalloc.problem.problem import Action, Decision, JobState, Mode, Problem


def beneficiaries_of_all(problem: Problem, decision: Decision) -> dict[int, tuple[int, ...]]:
    """Per job preempted without being forced to end, the allocated starts of other budgets on one of its nodes."""
    jobs, leaf = problem.jobs, problem.jobs.leaf.tolist()
    starts_on: dict[int, set[int]] = defaultdict(set)
    for j, placement in decision.placement.items():
        if decision.mode[j] == Mode.ALLOCATED:
            for rep in placement:
                starts_on[rep.node].add(j)
    out = {}
    for victim in np.flatnonzero((decision.action == Action.PREEMPT) & (jobs.state == JobState.EVICTABLE)).tolist():
        nodes = {rep.node for rep in jobs.placement[victim] if rep.node >= 0}
        near = {j for n in nodes & starts_on.keys() for j in starts_on[n]}
        out[victim] = tuple(sorted(j for j in near if leaf[j] != leaf[victim]))
    return out
