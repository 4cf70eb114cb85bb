"""Budgets that only their own loans keep from what they are entitled to.

Work that borrows is taken back for allocated starts of other budgets only (rule 6), so a budget whose own loans hold
the GPUs it lacks cannot have them. But one small start of another budget on a loan's nodes takes it back, and what that
leaves over is free for anyone: the budget has it for its own starts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from cpalloc.problem.problem import Action, Decision, JobState, Mode, Problem
from cpalloc.solver.following import completed
from cpalloc.solver.greedy import queues_of, record_preemption, start
from cpalloc.solver.placing import GreedyState, place, slots_on, within_caps


def take_back_own_loans(
    problem: Problem, decision: Decision, most: Mapping[str, int], halted: Callable[[], bool] = bool
) -> Decision:
    """A decision in which budgets that are short have their own loans, the largest first, taken back for the smallest
    starts of others, and start their own jobs in order on what is left; more while starvation and shortfall exceed
    ``most``. Once ``halted``, with what was decided so far."""
    jobs, entitled, state = problem.jobs, problem.budgets.entitled.tolist(), GreedyState.after(problem, decision)
    state.withdraw(set(decision.starts_in(Mode.BORROWED)))  # allocated work yields to nothing borrowed
    waiting = queues_of(problem, Mode.ALLOCATED)
    small = {leaf: iter(_small(state, queue)) for leaf, queue in waiting.items()}
    smallest = {leaf: next(some, -1) for leaf, some in small.items()}
    short = [e - have for e, have in zip(entitled, state.granted, strict=True)]
    for loan in _loans(state):
        leaf = int(jobs.leaf[loan])
        if short[leaf] <= 0 or halted():
            continue
        helper = _taken_back_for(state, loan, [j for at, j in smallest.items() if at != leaf and j >= 0])
        if helper >= 0:
            short[leaf] -= int(jobs.size[loan] - jobs.size[helper])
            smallest[int(jobs.leaf[helper])] = next(small[int(jobs.leaf[helper])], -1)
    for leaf in sorted(waiting, key=lambda x: -short[x]):
        for job in waiting[leaf]:
            if state.granted[leaf] >= entitled[leaf] or halted():
                break
            if int(state.decision.action[job]) == Action.WAIT:
                start(state, job, Mode.ALLOCATED, may_preempt=False)
    return completed(problem, state, most, halted)


def _loans(state: GreedyState) -> list[int]:
    """Borrowed work that may be taken back and is not, the largest first."""
    jobs, decision = state.problem.jobs, state.decision
    goes = (jobs.state == JobState.EVICTABLE) & (jobs.mode == Mode.BORROWED) & (jobs.leaf >= 0)
    loans = np.flatnonzero(goes & (decision.action == Action.KEEP) & ~decision.promoted)
    found: list[int] = loans[np.argsort(-jobs.size[loans], kind="stable")].tolist()
    return found


def _small(state: GreedyState, queue: Sequence[int]) -> list[int]:
    """The jobs of a queue that one node holds, the smallest first: all that come before are too large for its place."""
    jobs, action = state.problem.jobs, state.decision.action
    alone = [j for j in queue if int(jobs.replicas[j]) == 1 and int(action[j]) == Action.WAIT]
    return sorted(alone, key=lambda j: (int(jobs.size[j]), int(jobs.order[j])))


def _taken_back_for(state: GreedyState, loan: int, candidates: Sequence[int]) -> int:
    """Take a loan back for the smallest of some jobs that one of its nodes holds then; -1 where none gains anything."""
    jobs, usage = state.problem.jobs, state.usage
    nodes = sorted({replica.node for replica in jobs.placement[loan]})
    usage.evict(loan)
    for job in sorted(candidates, key=lambda j: (int(jobs.size[j]), int(jobs.order[j]))):
        node = next((n for n in nodes if slots_on(state, job, n) >= 1), -1)
        if node >= 0 and jobs.size[job] < jobs.size[loan] and within_caps(state, job, Mode.ALLOCATED):
            placement = place(state, job, [(node, 1)])
            if placement is not None:
                state.accept(job, Mode.ALLOCATED, placement)
                record_preemption(state, loan)
                return job
    usage.restore(loan)
    return -1
