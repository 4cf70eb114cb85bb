"""The same policy, solved greedily with the same actions as the model.

Budgets are served in ratio order: the budget whose projected ratio is lowest starts (or promotes) its next job, in the
best-fitting domain, taking back the cheapest work that makes room, pruned to what is needed; a job that cannot start
is passed over (backfill). Then what is left goes to allocated work beyond entitlements, then it is lent. It is the
first incumbent, the fallback, and the baseline that benchmarks and simulations compare with.
"""

from __future__ import annotations

import heapq
from bisect import insort
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from fractions import Fraction

import numpy as np

from cpalloc.models.constraints.preemption import victims
from cpalloc.models.objectives.inversion import inverted
from cpalloc.models.objectives.starvation import starving
from cpalloc.models.possible import possible
from cpalloc.problem.problem import Action, Decision, JobState, Mode, Problem, status_quo
from cpalloc.problem.releases import start_release_us
from cpalloc.solver.placing import GreedyState, best_free, place, wish_of, within_caps
from cpalloc.solver.prune import prune
from cpalloc.solver.room import make_room

IN_ORDER_ROUNDS = 3
"""Times that budgets start anew: what one gives up may be room for a job that another one passed over."""


def greedy(problem: Problem, halted: Callable[[], bool] = bool, late: Callable[[], bool] = bool) -> Decision:
    """Decide a round greedily; every rule holds, nothing is proved. Once ``halted``, with what was decided so far; and
    once it is ``late`` nothing more is taken back for anybody: what is free is given away."""
    state = GreedyState.after(problem, status_quo(problem))
    serve(state, problem.budgets.entitled.tolist(), lambda: halted() or late())
    serve_beyond(state, halted)
    lend(state, halted)
    return state.result() if halted() else prune(problem, state.result())


def in_order(problem: Problem, decision: Decision, passed: Collection[int], most: Mapping[str, int]) -> Decision:
    """A decision that passes nobody over: budgets of the jobs in ``passed`` start theirs anew, one by one in order.

    What that leaves free goes to whoever is short. Further work is preempted only while starvation and shortfall exceed
    ``most``, or a budget that loses work has less than its claim.
    """
    jobs, state = problem.jobs, GreedyState.after(problem, decision)
    lent = set(decision.starts_in(Mode.BORROWED))
    if any(jobs.may_allocate[j] for j in passed):
        state.withdraw(lent)  # allocated work yields to nothing borrowed
    else:
        lent = set()
    leaves = sorted({int(jobs.leaf[j]) for j in passed})
    for _ in range(IN_ORDER_ROUNDS):
        for leaf in leaves:
            for mode in (Mode.ALLOCATED, Mode.BORROWED):
                _start_anew(state, leaf, mode)
        if not any(int(jobs.leaf[j]) in leaves for j in inverted(problem, state.result())):
            break
    serve(state, problem.budgets.entitled.tolist(), may_preempt=False)
    serve_as_needed(state, losing(problem, decision), most)
    if lent:
        lend(state)
    return prune(problem, state.result())


def losing(problem: Problem, decision: Decision) -> frozenset[int]:
    """Leaves that lose allocated work without having to."""
    jobs = problem.jobs
    return frozenset(int(jobs.leaf[v]) for v in victims(problem, decision) if int(jobs.mode[v]) == Mode.ALLOCATED)


def serve_as_needed(
    state: GreedyState, losers: Collection[int], most: Mapping[str, int], halted: Callable[[], bool] = bool
) -> None:
    """Serve budgets while starvation and shortfall exceed ``most``, or a leaf of ``losers`` has less than its claim."""
    entitled, claim = state.problem.budgets.entitled.tolist(), state.problem.budgets.claim.tolist()
    target = [max(e, c) if leaf in losers else e for leaf, (e, c) in enumerate(zip(entitled, claim, strict=True))]

    def enough() -> bool:
        served = all(state.granted[leaf] >= claim[leaf] for leaf in losers) and within(state, most)
        return served or halted()

    serve(state, target, enough)


def within(state: GreedyState, most: Mapping[str, int]) -> bool:
    """Whether starvation and shortfall are within limits."""
    entitled, have = state.problem.budgets.entitled.tolist(), state.granted
    return (
        sum(max(0, e - got) for e, got in zip(entitled, have, strict=True)) <= most["shortfall"]
        and sum(starving(e, got) for e, got in zip(entitled, have, strict=True)) <= most["starvation"]
    )


def _start_anew(state: GreedyState, leaf: int, mode: Mode) -> None:
    """Take a budget's starts in a mode back and start its jobs in order, to as many GPUs; in place where possible."""
    jobs, before = state.problem.jobs, dict(state.placement)
    mine = {j for j in before if jobs.leaf[j] == leaf and state.decision.mode[j] == mode}
    if not mine:
        return
    have = state.granted if mode is Mode.ALLOCATED else state.borrowed
    target = have[leaf]
    state.withdraw(mine)
    for j in queues_of(state.problem, mode).get(leaf, ()):
        if have[leaf] >= target:
            break
        if state.decision.action[j] == Action.WAIT and not (j in mine and state.restart(j, mode, before[j])):
            start(state, j, mode, may_preempt=False)


def queues_of(problem: Problem, mode: Mode) -> dict[int, list[int]]:
    """Per leaf the jobs that some decision starts in a mode, or promotes to it, in the budget's order."""

    def queues() -> dict[int, list[int]]:
        jobs, can = problem.jobs, possible(problem)
        wanted = {j for j, how in can.starts if how is mode}
        if mode is Mode.ALLOCATED:
            wanted |= can.promotes
        ids = np.array(sorted(wanted), dtype=np.int64)
        ids = ids[np.argsort(jobs.order[ids], kind="stable")]
        out: dict[int, list[int]] = defaultdict(list)
        for leaf, j in zip(jobs.leaf[ids].tolist(), ids.tolist(), strict=True):
            out[leaf].append(j)
        return dict(out)

    return problem.once(("queues", mode), queues)


def serve(
    state: GreedyState, target: Sequence[int], enough: Callable[[], bool] = bool, *, may_preempt: bool = True
) -> None:
    """Lowest projected ratio first, until it is enough, or every budget has its target or nothing it wants starts."""
    problem = state.problem
    budgets, h = problem.budgets, problem.policy.charge_horizon_s
    queues = queues_of(problem, Mode.ALLOCATED)
    heap: list[tuple[int, Fraction, int, int]] = []

    def push(leaf: int, position: int) -> None:
        if position < len(queues[leaf]) and state.granted[leaf] < target[leaf] and budgets.owed[leaf] > 0:
            projected = Fraction(int(budgets.charged[leaf]) + state.granted[leaf] * h, int(budgets.owed[leaf]))
            # Starvation weighs quarters of an entitlement, the emptiest most.
            quarter = min(3, 4 * state.granted[leaf] // max(1, int(budgets.entitled[leaf])))
            heapq.heappush(heap, (quarter, projected, leaf, position))

    for leaf in sorted(queues):
        push(leaf, 0)
    while heap:
        if enough():
            break
        _, _, leaf, position = heapq.heappop(heap)
        # A job that cannot start changes nothing, so its budget is still the one to be served.
        served = False
        while not served and position < len(queues[leaf]):
            served = _start_or_promote(state, queues[leaf][position], may_preempt=may_preempt)
            position += 1
        push(leaf, position)


def _start_or_promote(state: GreedyState, job: int, *, may_preempt: bool) -> bool:
    if int(state.decision.action[job]) == Action.START or state.decision.promoted[job]:
        return False
    if int(state.problem.jobs.state[job]) == JobState.PENDING:
        return start(state, job, Mode.ALLOCATED, may_preempt=may_preempt)
    return promote(state, job)


def serve_beyond(state: GreedyState, halted: Callable[[], bool] = bool) -> None:
    """Allocated work beyond the entitlements, best rank first, on what is free; until ``halted``."""
    jobs = state.problem.jobs
    queued = [j for q in queues_of(state.problem, Mode.ALLOCATED).values() for j in q]
    wait = np.array(queued, dtype=np.int64)
    wait = wait[(jobs.rank[wait] >= 0) & (state.decision.action[wait] == Action.WAIT)]
    for job in wait[np.argsort(jobs.rank[wait], kind="stable")].tolist():
        if halted():
            break
        start(state, job, Mode.ALLOCATED, may_preempt=False)


def lend(state: GreedyState, halted: Callable[[], bool] = bool) -> None:
    """Lend what is left: the budget that borrows least for its share goes first; until ``halted``."""
    share = state.problem.budgets.share
    queues = queues_of(state.problem, Mode.BORROWED)
    heap: list[tuple[Fraction, int, int]] = []

    def push(leaf: int, position: int) -> None:
        if position < len(queues[leaf]):
            weight = share[leaf] or Fraction(1, 10**9)
            heapq.heappush(heap, (state.borrowed[leaf] / weight, leaf, position))

    for leaf in sorted(queues):
        push(leaf, 0)
    while heap and not halted():
        _, leaf, position = heapq.heappop(heap)
        served = False
        while not served and position < len(queues[leaf]):
            job = queues[leaf][position]
            waits = int(state.decision.action[job]) == Action.WAIT  # numpy takes 8 µs to compare with an enum
            served = waits and start(state, job, Mode.BORROWED, may_preempt=False)
            position += 1
        push(leaf, position)


def promote(state: GreedyState, job: int) -> bool:
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
    insort(state.reaching[leaf], size)
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
    leaving: list[int] = []
    nodes = best_free(state, job, mode)
    if nodes is None and may_preempt and (made := make_room(state, job)) is not None:
        nodes, leaving = made
    for v in leaving:
        usage.evict(v)
    placement = None if nodes is None else place(state, job, nodes)
    if placement is None:
        for v in leaving:
            usage.restore(v)
        state.in_vain.add(wish)
        return False
    touched = {r.node for r in placement}
    idle = [v for v in leaving if not touched & {r.node for r in state.problem.jobs.placement[v]}]
    state.accept(job, mode, placement)
    for v in leaving:
        if v in idle and usage.can_restore(v):
            usage.restore(v)
            continue
        record_preemption(state, v)
    return True


def record_preemption(state: GreedyState, victim: int) -> None:
    """Decide that a job that has been evicted is preempted."""
    jobs = state.problem.jobs
    leaf, size = int(jobs.leaf[victim]), int(jobs.size[victim])
    state.decision.action[victim], state.decision.mode[victim] = Action.PREEMPT, Mode.NONE
    if int(jobs.mode[victim]) == Mode.ALLOCATED:
        state.granted[leaf] -= size
    else:
        state.borrowed[leaf] -= size
    state.preempted_gpus += size
