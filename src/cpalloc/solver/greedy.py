"""The same policy, solved greedily with the same actions as the model.

Budgets are served in ratio order: the budget whose projected ratio is lowest starts (or promotes) its next job, in the
best-fitting domain, taking back the cheapest work that makes room, pruned to what is needed; a job that cannot start
is passed over (backfill). Then what is left goes to allocated work beyond entitlements, then it is lent. It is the
first incumbent, the fallback, and the baseline that benchmarks and simulations compare with.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from fractions import Fraction

import numpy as np

from cpalloc.problem.problem import Action, Decision, JobState, Mode, Problem, status_quo
from cpalloc.problem.releases import start_release_us
from cpalloc.solver.placing import GreedyState, best_free, place, wish_of, within_caps
from cpalloc.solver.prune import prune
from cpalloc.solver.room import make_room


def greedy(problem: Problem) -> Decision:
    """Decide a round greedily; every rule holds, nothing is proved."""
    state = GreedyState.after(problem, status_quo(problem))
    _serve_entitlements(state)
    _serve_beyond(state)
    _lend(state)
    return prune(problem, state.result())


def _queues(problem: Problem, mode: Mode) -> dict[int, list[int]]:
    """Per leaf the jobs that could run in a mode, in the budget's order; promotable ones stand in the queue as well."""
    jobs = problem.jobs
    may = jobs.may_allocate if mode is Mode.ALLOCATED else jobs.may_borrow
    wanted = (jobs.state == JobState.PENDING) & may
    if mode is Mode.ALLOCATED:
        wanted |= jobs.may_promote
    queues: dict[int, list[int]] = defaultdict(list)
    ordered = np.flatnonzero(wanted)
    ordered = ordered[np.argsort(jobs.order[ordered], kind="stable")]
    for j, leaf in zip(ordered.tolist(), jobs.leaf[ordered].tolist(), strict=True):
        queues[leaf].append(j)
    return queues


def _serve_entitlements(state: GreedyState) -> None:
    """Lowest projected ratio first, until every budget has its entitlement or nothing it wants can start."""
    problem = state.problem
    budgets, h = problem.budgets, problem.policy.charge_horizon_s
    queues = _queues(problem, Mode.ALLOCATED)
    heap: list[tuple[int, Fraction, int, int]] = []

    def push(leaf: int, position: int) -> None:
        if position < len(queues[leaf]) and state.granted[leaf] < budgets.entitled[leaf] and budgets.owed[leaf] > 0:
            projected = Fraction(int(budgets.charged[leaf]) + state.granted[leaf] * h, int(budgets.owed[leaf]))
            # Starvation weighs quarters of an entitlement, the emptiest most.
            quarter = min(3, 4 * state.granted[leaf] // int(budgets.entitled[leaf]))
            heapq.heappush(heap, (quarter, projected, leaf, position))

    for leaf in sorted(queues):
        push(leaf, 0)
    while heap:
        _, _, leaf, position = heapq.heappop(heap)
        # A job that cannot start changes nothing, so its budget is still the one to be served.
        served = False
        while not served and position < len(queues[leaf]):
            served = _start_or_promote(state, queues[leaf][position])
            position += 1
        push(leaf, position)


def _start_or_promote(state: GreedyState, job: int) -> bool:
    if state.problem.jobs.state[job] == JobState.PENDING:
        return start(state, job, Mode.ALLOCATED, may_preempt=True)
    return _promote(state, job)


def _serve_beyond(state: GreedyState) -> None:
    """Allocated work beyond the entitlements, best rank first, on what is free."""
    jobs = state.problem.jobs
    waiting = [j for q in _queues(state.problem, Mode.ALLOCATED).values() for j in q if jobs.rank[j] >= 0]
    for job in sorted(waiting, key=lambda j: int(jobs.rank[j])):
        if state.decision.action[job] == Action.WAIT:
            start(state, job, Mode.ALLOCATED, may_preempt=False)


def _lend(state: GreedyState) -> None:
    """Lend what is left: the budget that borrows least for its share goes first."""
    share = state.problem.budgets.share
    queues = _queues(state.problem, Mode.BORROWED)
    heap: list[tuple[Fraction, int, int]] = []

    def push(leaf: int, position: int) -> None:
        if position < len(queues[leaf]):
            weight = share[leaf] or Fraction(1, 10**9)
            heapq.heappush(heap, (state.borrowed[leaf] / weight, leaf, position))

    for leaf in sorted(queues):
        push(leaf, 0)
    while heap:
        _, leaf, position = heapq.heappop(heap)
        served = False
        while not served and position < len(queues[leaf]):
            job = queues[leaf][position]
            waits = state.decision.action[job] == Action.WAIT
            served = waits and start(state, job, Mode.BORROWED, may_preempt=False)
            position += 1
        push(leaf, position)


def _promote(state: GreedyState, job: int) -> bool:
    """Let a borrowed job go on allocated; False when its caps, its claim or a promise forbid it."""
    jobs = state.problem.jobs
    leaf, size = int(jobs.leaf[job]), int(jobs.size[job])
    if state.decision.action[job] != Action.KEEP or not within_caps(state, job, Mode.ALLOCATED):
        return False
    if any(
        r.node in hold.nodes and start_release_us(state.problem, job) > hold.starts_us
        for hold in state.problem.holds
        for r in jobs.placement[job]
    ):
        return False  # it would stand in the way of a promise
    state.either[leaf].append(job)
    state.decision.promoted[job] = True
    state.decision.mode[job] = Mode.ALLOCATED
    state.granted[leaf] += size
    state.borrowed[leaf] -= size
    state.in_vain.clear()
    return True


def start(state: GreedyState, job: int, mode: Mode, *, may_preempt: bool) -> bool:
    """Start a job in the best domain, making room if allowed; False when nothing can be done."""
    if not within_caps(state, job, mode):
        return False
    wish = wish_of(state, job, mode, may_preempt=may_preempt)
    if wish in state.in_vain:
        return False
    usage = state.usage
    victims: list[int] = []
    nodes = best_free(state, job, mode)
    if nodes is None and may_preempt and (made := make_room(state, job)) is not None:
        nodes, victims = made
    for v in victims:
        usage.evict(v)
    placement = None if nodes is None else place(state, job, nodes)
    if placement is None:
        for v in victims:
            usage.restore(v)
        state.in_vain.add(wish)
        return False
    touched = {r.node for r in placement}
    idle = [v for v in victims if not touched & {r.node for r in state.problem.jobs.placement[v]}]
    state.accept(job, mode, placement)
    for v in victims:
        if v in idle and usage.can_restore(v):
            usage.restore(v)
            continue
        _record_preemption(state, v)
    return True


def _record_preemption(state: GreedyState, victim: int) -> None:
    jobs = state.problem.jobs
    leaf, size = int(jobs.leaf[victim]), int(jobs.size[victim])
    state.decision.action[victim], state.decision.mode[victim] = Action.PREEMPT, Mode.NONE
    if jobs.mode[victim] == Mode.ALLOCATED:
        state.granted[leaf] -= size
    else:
        state.borrowed[leaf] -= size
    state.preempted_gpus += size
