"""Delay: how long the blocked gangs still wait for what they were promised."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from cpalloc.metrics.reservations import by_instant
from cpalloc.models.base import PartSpec
from cpalloc.models.earliest import Choice, Gang, Step, cost_of_waiting, most_steps, steps
from cpalloc.models.leaving import RoomAt, RoomBeside, hopeful_release_us
from cpalloc.models.sharing import share
from cpalloc.models.variables import Linear, ModelContext, dot
from cpalloc.problem.problem import US, Action, Decision, Hold, IntArray, JobState, Mode, NodeState, Problem
from cpalloc.problem.releases import NEVER, start_release_us, timeout_us


class Delay:
    """Σ over the blocked jobs of GPUs × (starts_by − now); no promise counts as the window."""

    name: ClassVar[str] = "delay"
    parts: ClassVar[tuple[PartSpec, ...]] = (PartSpec("delay", "GPU-seconds"),)
    limits_model: ClassVar[bool] = False

    def floor(self, problem: Problem) -> tuple[int, ...]:
        """A promise can be for now."""
        return (0,)

    def build(self, ctx: ModelContext) -> tuple[Linear, ...]:
        """What each blocked job of the partition waits at least, traded against starts that stand in its way.

        Jobs held at the same time in one pool share no GPU. Kept promises that nothing in the model can break stand
        where they are, and are nobody else's room.
        """
        problem, room = ctx.problem, RoomAt(ctx)
        until_us = _latest(problem, ctx.partition.blocked)
        kept = _standing(ctx, room)
        for hold in kept.values():
            room.promise(hold)
        total: Linear = 0
        waiting: list[tuple[Gang, Choice]] = []
        open_ = [job for job, _ in ctx.partition.blocked if job not in kept]
        sizes = sorted({int(problem.jobs.gpus_per_replica[job]) for job in open_})
        for job, _ in ctx.partition.blocked:
            if job in kept:
                # Who begins no earlier is renewed later, on what this one leaves.
                after = [hold for hold in kept.values() if hold.starts_us >= kept[job].starts_us]
                total = total + _renewed(ctx, kept[job], RoomBeside(room, after))
                continue
            own = [np.array(h.nodes, dtype=np.int64) for h in ctx.partition.holds[: ctx.partition.hard] if h.job == job]
            gang = _gang(problem, job, places(problem, job) + own)  # what leaves is counted on a promise's own nodes
            choices, last = _choices(ctx, job, gang, room, until_us, sizes)
            choice = cost_of_waiting(ctx, gang, choices, last, room, ctx.started(job), by_pool=True)
            total = total + choice.cost
            waiting.append((gang, choice))
        ready = problem.nodes.state == NodeState.READY
        for pool in range(len(problem.pool_names)):
            share(ctx, waiting, pool, np.flatnonzero(ready & (problem.nodes.pool == pool)), room)
        return (total,)

    def evaluate(self, problem: Problem, decision: Decision) -> tuple[int, ...]:
        """Job by job; one that starts after all waits no longer."""
        return (sum(delay_of(problem, decision, j) for j in decision.blocked),)


def _gang(problem: Problem, job: int, domains: Sequence[IntArray]) -> Gang:
    return Gang(f"w{job}", int(problem.jobs.replicas[job]), int(problem.jobs.gpus_per_replica[job]), domains)


def later_than_now(ctx: ModelContext, job: int) -> Linear:
    """1 where a job neither starts nor could at once, beside the allocated work that is there and what this round
    promises others (what was promised before may have moved elsewhere)."""
    gang, room = _gang(ctx.problem, job, places(ctx.problem, job)), RoomAt(ctx)
    for hold in ctx.partition.holds[ctx.partition.hard :]:
        if hold.job != job:
            room.promise(hold)
    return cost_of_waiting(ctx, gang, [Step(ctx.problem.now_us, 0)], 1, room, ctx.started(job)).cost


def _standing(ctx: ModelContext, room: RoomAt) -> dict[int, Hold]:
    """Kept promises that stand, by job: of those on a node the first to begin are renewed first, on GPUs of the later
    ones as well, and so none stands behind one that does not."""
    out: dict[int, Hold] = {}
    loose: set[int] = set()
    for hold in by_instant(ctx.partition.holds[: ctx.partition.hard]):
        if loose.isdisjoint(hold.nodes) and _stands(ctx, room, hold):
            out[hold.job] = hold
        else:
            loose |= set(hold.nodes)
    return out


def _stands(ctx: ModelContext, room: RoomAt, hold: Hold) -> bool:
    """Whether a kept promise is renewed whatever is decided: nobody whom it does not bind can start there and stay."""
    index, nodes = ctx.partition.holds.index(hold), np.array(hold.nodes, dtype=np.int64)
    instants = ctx.partition.instants
    if not instants or (room.surely_at(hold.starts_us, nodes) < np.array(hold.gpus)).any():
        return False
    position = bisect_left(instants, hold.starts_us)
    return all(
        kind.party.late <= position or kind.party.holds >> index & 1
        for c in {ctx.layout.cell_of[n] for n in hold.nodes if n in ctx.layout.cell_of}
        for kind in map(ctx.kind, ctx.kinds_on[c])
    )


def _renewed(ctx: ModelContext, hold: Hold, own: RoomBeside) -> Linear:
    """What a job with a promise that stands waits: until then, or until its nodes are free earlier."""
    problem = ctx.problem
    size, now = int(problem.jobs.size[hold.job]), problem.now_us

    def cost(at_us: int) -> int:
        return size * max(0, at_us - now) // US

    nodes = np.array(hold.nodes, dtype=np.int64)
    gang = _gang(problem, hold.job, [nodes])
    free_now = int((own.at(now)[nodes] // gang.gpus).sum()) >= gang.replicas
    if free_now and not ctx.contested(now)[nodes].any() and not own.doubtful(nodes, now):
        # It could start at once, and the round decided against it: the promise stays as it is.
        return dot([(-cost(hold.starts_us), v) for v in ctx.started(hold.job)]) + cost(hold.starts_us)
    earlier = [t for t in ctx.partition.instants if now < t < hold.starts_us]
    choices = steps(earlier, cost, 0, cost(hold.starts_us), most_steps(ctx.partition))
    return cost_of_waiting(ctx, gang, choices, cost(hold.starts_us), own, ctx.started(hold.job)).cost


def _latest(problem: Problem, blocked: Sequence[tuple[int, int]]) -> int:
    """The latest of the instants that are promised so far; NEVER where somebody is promised none."""
    window, size = problem.policy.window_s, problem.jobs.size
    if any(delay >= size[job] * window for job, delay in blocked):
        return NEVER
    # Delays are floored: the second they may have lost must not cost an instant.
    return max((problem.now_us + (delay // int(size[job]) + 1) * US for job, delay in blocked), default=problem.now_us)


def _choices(
    ctx: ModelContext, job: int, gang: Gang, room: RoomAt, until_us: int, sizes: Sequence[int]
) -> tuple[list[Step], int]:
    """Instants a gang may choose among, and what waiting longer costs.

    Only those at which it may find more room, or gangs of one of ``sizes`` that it shares its pools with.
    """
    problem = ctx.problem
    pools = {int(problem.nodes.pool[nodes[0]]) for nodes in gang.domains}
    around = np.isin(problem.nodes.pool, sorted(pools)) & (problem.nodes.state == NodeState.READY)
    size, now = int(problem.jobs.size[job]), problem.now_us

    def cost(at_us: int) -> int:
        return size * max(0, at_us - now) // US

    useful: list[int] = []
    before: object = None
    for at_us in ctx.partition.instants:
        at = room.at(at_us)
        have = [int((at[nodes] // gang.gpus).sum()) for nodes in gang.domains]
        others = [int((at[around] // g).sum()) for g in sizes]
        # Where work may start, a GPU more may be a slot more beside it.
        beside = int(at[around & ctx.contested(at_us)].sum())
        there = sum(have), others, beside, ctx.late_work(at_us), room.doubts(at_us)
        if there != before and max(have, default=0) >= gang.replicas:
            useful.append(at_us)
        before = there
    later = [t for t in useful if t > until_us]
    most, number = size * problem.policy.window_s, most_steps(ctx.partition)
    # Now is never one step with later instants: who can be held at once is in nobody's way who can as well.
    at_once = [Step(t, 0) for t in useful if t <= now]
    choices = steps([t for t in useful if now < t <= until_us], cost, 0, most, number - len(at_once))
    return at_once + choices, cost(later[0]) if later else most


def delay_of(problem: Problem, decision: Decision, job: int) -> int:
    """GPU-seconds that a blocked job still waits."""
    if decision.action[job] != Action.WAIT:
        return 0
    size = int(problem.jobs.size[job])
    for hold in decision.reservations:
        if hold.job == job:
            return size * max(0, hold.starts_us - problem.now_us) // US
    return size * problem.policy.window_s


def places(problem: Problem, job: int) -> list[IntArray]:
    """Nodes of every (domain of the required level, pool) that a job may use."""
    level = int(problem.jobs.required_level[job])
    out: dict[tuple[int, int], list[int]] = defaultdict(list)
    for n in np.flatnonzero(problem.eligibility[problem.jobs.eligibility[job]]).tolist():
        out[int(problem.topology.domain_of[level, n]), int(problem.nodes.pool[n])].append(n)
    return [np.array(nodes, dtype=np.int64) for _, nodes in sorted(out.items())]


def instants(problem: Problem) -> tuple[int, ...]:
    """Now, and every later instant at which running, starting or promoted allocated work may be out of the way, or by
    which it must be to keep a promise."""
    jobs, out = problem.jobs, {problem.now_us} | {h.starts_us for h in problem.holds if h.starts_us > problem.now_us}
    runs = (jobs.state == JobState.FIXED) | (jobs.state == JobState.EVICTABLE)
    for j in np.flatnonzero(runs & (jobs.mode == Mode.ALLOCATED)).tolist():
        # Where its budget keeps its claim back a job leaves at its timeout only.
        out |= {hopeful_release_us(problem, j), max(problem.now_us, timeout_us(problem, j))}
    for j in np.flatnonzero((jobs.state == JobState.PENDING) & jobs.may_allocate | jobs.may_promote).tolist():
        out.add(start_release_us(problem, j))
    return tuple(sorted(t for t in out if t < NEVER))
