"""Whom a preemption makes room for, stated plainly for one job at a time."""

from __future__ import annotations

from cpalloc.problem.problem import Decision, Mode, Problem


def beneficiaries(problem: Problem, decision: Decision, job: int) -> tuple[int, ...]:
    """Allocated starts of other budgets on a node of a preempted job."""
    nodes = {r.node for r in problem.jobs.placement[job] if r.node >= 0}
    leaf = problem.jobs.leaf
    return tuple(
        j
        for j, placement in sorted(decision.placement.items())
        if not nodes.isdisjoint([r.node for r in placement])
        and decision.mode[j] == Mode.ALLOCATED
        and leaf[j] != leaf[job]
    )
