"""Undo inversions of a decision by hand: let the better-ranked job start and fit the worse ones in again.

A solution of the model may pass a job over in a way the model does not see; the exchange that puts it right is small,
and trying it costs far less than another solve.
"""

from __future__ import annotations

from collections.abc import Callable

from cpalloc.models.objectives.inversion import inverted
from cpalloc.problem.problem import Decision, Mode, Problem
from cpalloc.solver.greedy import start
from cpalloc.solver.placing import GreedyState

MAX_EXCHANGES = 40
"""Exchanges tried on one decision."""


def uninvert(problem: Problem, decision: Decision, hurry: Callable[[], bool] = lambda: False) -> Decision:
    """A decision with fewer inversions where simple exchanges reach one; kept work and preemptions stay as they are."""
    tried: set[int] = set()
    for _ in range(MAX_EXCHANGES):
        passed = [j for j in inverted(problem, decision) if j not in tried]
        if not passed or hurry():
            break
        job = min(passed, key=lambda j: (int(problem.jobs.order[j]), j))
        tried.add(job)
        decision = _exchange(problem, decision, job)
    return decision


def _exchange(problem: Problem, decision: Decision, job: int) -> Decision:
    jobs = problem.jobs
    modes = [m for m, may in ((Mode.ALLOCATED, jobs.may_allocate[job]), (Mode.BORROWED, jobs.may_borrow[job])) if may]
    for mode in modes:
        worse = [
            i
            for i in decision.placement
            if jobs.leaf[i] == jobs.leaf[job] and decision.mode[i] == mode and jobs.order[i] > jobs.order[job]
        ]
        state = GreedyState.after(problem, decision, without=set(worse))
        if not worse or not start(state, job, mode, may_preempt=False):
            continue
        for i in sorted(worse, key=lambda i: int(jobs.order[i])):
            if not state.restart(i, mode, decision.placement[i]):
                start(state, i, mode, may_preempt=False)
        return state.result()
    return decision
