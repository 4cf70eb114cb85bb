"""Delay: how long the blocked gangs still wait for what they were promised."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from ortools.sat.python import cp_model

from cpalloc.models.base import PartSpec
from cpalloc.models.earliest import Choice, Gang, Step, cost_of_waiting, share, steps
from cpalloc.models.variables import Linear, ModelContext, dot
from cpalloc.problem.problem import US, Action, Decision, Hold, IntArray, JobState, Mode, NodeState, Problem, Replica
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

        Jobs held at the same time share no GPU, counted for every set of pools over the jobs that accept no others.
        Kept promises that nothing in the model can break stand where they are, and are nobody else's room.
        """
        problem, room = ctx.problem, RoomAt(ctx)
        until_us = _latest(problem, ctx.partition.blocked)
        kept = {hold.job: hold for hold in ctx.partition.holds[: ctx.partition.hard] if _stands(ctx, room, hold)}
        for hold in kept.values():
            room.promise(hold)
        total: Linear = 0
        waiting: list[tuple[frozenset[int], Gang, Choice]] = []
        for job, _ in ctx.partition.blocked:
            if job in kept:
                total = total + _renewed(ctx, kept[job], room)
                continue
            own = [np.array(h.nodes, dtype=np.int64) for h in ctx.partition.holds[: ctx.partition.hard] if h.job == job]
            gang = _gang(problem, job, places(problem, job) + own)  # what leaves is counted on a promise's own nodes
            choices, last = _choices(ctx, job, gang, room, until_us)
            choice = cost_of_waiting(ctx, gang, choices, last, room, ctx.started(job))
            total = total + choice.cost
            pools = frozenset(int(problem.nodes.pool[nodes[0]]) for nodes in gang.domains)
            waiting.append((pools, gang, choice))
        for pools in sorted({p for p, _, _ in waiting}, key=sorted):
            inside = np.isin(problem.nodes.pool, sorted(pools)) & (problem.nodes.state == NodeState.READY)
            gangs = [(gang, choice) for p, gang, choice in waiting if p <= pools]
            if len(gangs) > 1:
                share(ctx, gangs, np.flatnonzero(inside), room)
        return (total,)

    def evaluate(self, problem: Problem, decision: Decision) -> tuple[int, ...]:
        """Job by job; one that starts after all waits no longer."""
        return (sum(delay_of(problem, decision, j) for j in decision.blocked),)


def _gang(problem: Problem, job: int, domains: Sequence[IntArray]) -> Gang:
    return Gang(f"w{job}", int(problem.jobs.replicas[job]), int(problem.jobs.gpus_per_replica[job]), domains)


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


def _renewed(ctx: ModelContext, hold: Hold, room: RoomAt) -> Linear:
    """What a job with a promise that stands waits: until then, or until its nodes are free earlier."""
    problem, own = ctx.problem, _Own(room, hold)
    size, now = int(problem.jobs.size[hold.job]), problem.now_us

    def cost(at_us: int) -> int:
        return size * max(0, at_us - now) // US

    nodes = np.array(hold.nodes, dtype=np.int64)
    gang = _gang(problem, hold.job, [nodes])
    free_now = int((own.at(now)[nodes] // gang.gpus).sum()) >= gang.replicas
    if free_now and not ctx.contested(now)[nodes].any() and not room.doubtful(nodes, now):
        # It could start at once, and the round decided against it: the promise stays as it is.
        return dot([(-cost(hold.starts_us), v) for v in ctx.started(hold.job)]) + cost(hold.starts_us)
    earlier = [t for t in ctx.partition.instants if now < t < hold.starts_us]
    choices = steps(earlier, cost, 0, cost(hold.starts_us))
    return cost_of_waiting(ctx, gang, choices, cost(hold.starts_us), own, ctx.started(hold.job)).cost


def _latest(problem: Problem, blocked: Sequence[tuple[int, int]]) -> int:
    """The latest of the instants that are promised so far; NEVER where somebody is promised none."""
    window, size = problem.policy.window_s, problem.jobs.size
    if any(delay >= size[job] * window for job, delay in blocked):
        return NEVER
    # Delays are floored: the second they may have lost must not cost an instant.
    return max((problem.now_us + (delay // int(size[job]) + 1) * US for job, delay in blocked), default=problem.now_us)


def _choices(ctx: ModelContext, job: int, gang: Gang, room: RoomAt, until_us: int) -> tuple[list[Step], int]:
    """Instants a gang may choose among, and what waiting longer costs: only those at which it may find more room."""
    problem = ctx.problem
    size, now = int(problem.jobs.size[job]), problem.now_us

    def cost(at_us: int) -> int:
        return size * max(0, at_us - now) // US

    useful, before = [], (0, 0, 0)
    for at_us in ctx.partition.instants:
        slots = room.at(at_us) // gang.gpus
        have = [int(slots[nodes].sum()) for nodes in gang.domains]
        there = sum(have), -ctx.late_work(at_us), room.doubts(at_us)
        if there != before and max(have, default=0) >= gang.replicas:
            useful.append(at_us)
        before = there
    later = [t for t in useful if t > until_us]
    return steps([t for t in useful if t <= until_us], cost, 0, size * problem.policy.window_s), (
        cost(later[0]) if later else size * problem.policy.window_s
    )


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


class RoomAt:
    """GPUs of a node that running allocated work may have left by an instant, read in the most hopeful way.

    Work of a budget over its share leaves at the end of its protection as long as the budget keeps its claim without
    it. Where that is sure, or out of the question, it is known here; where it depends on what starts, a literal decides
    for each of the jobs on some nodes, and the budget gives way only as far as it keeps its claim.
    """

    def __init__(self, ctx: ModelContext) -> None:
        self._ctx = ctx
        problem = self.problem = ctx.problem
        jobs = problem.jobs
        stays = (jobs.state == JobState.FIXED) | np.isin(np.arange(len(jobs)), sorted(ctx.partition.stays))
        kept = np.flatnonzero(stays & (jobs.mode == Mode.ALLOCATED)).tolist()
        spare = _Spare(ctx, kept)
        rows: list[tuple[int, int, int]] = []
        self._doubtful: list[tuple[int, int, int, list[tuple[int, int]]]] = []
        for j in kept:
            leaf, timeout = int(jobs.leaf[j]), max(problem.now_us, timeout_us(problem, j))
            end = hopeful_release_us(problem, j)
            if end < timeout and spare.most(leaf) < jobs.size[j]:
                end = timeout
            on = [(r.node, _healthy_gpus(problem, r)) for r in jobs.placement[j] if r.node >= 0]
            rows += [(node, end, gpus) for node, gpus in on]
            if end < timeout and not spare.is_enough(leaf):
                self._doubtful.append((j, end, timeout, on))
        self._stays: IntArray = np.array(rows, dtype=np.int64).reshape(len(rows), 3)
        self._spare = spare
        self._waits: dict[Hold, cp_model.IntVar] = {}
        self._promised: IntArray = np.zeros(len(problem.nodes.names), dtype=np.int64)
        self._at: dict[int, IntArray] = {}
        self._literals: dict[bytes, dict[int, cp_model.IntVar]] = {}
        self._here: dict[bytes, list[tuple[int, int, int, list[tuple[int, int]]]]] = {}

    def promise(self, hold: Hold) -> None:
        """Take what is promised for nobody else's room, at any instant, unless the job starts."""
        starts = self._ctx.started(hold.job)
        if starts:
            waits = self._ctx.model.new_bool_var(f"waits{hold.job}")
            self._ctx.model.add_bool_or([waits, *starts])
            self._waits[hold] = waits
            return
        np.add.at(self._promised, np.array(hold.nodes, dtype=np.int64), hold.gpus)
        self._at.clear()

    def surely_at(self, at_us: int, nodes: IntArray) -> IntArray:
        """:meth:`at` on some nodes, with nothing that is in doubt, whatever is preempted; shape of ``nodes``."""
        out = self.at(at_us).copy()
        jobs, settled = self.problem.jobs, self._ctx.partition.stays | self._ctx.partition.gone
        for _, end, timeout, on in self._in_doubt(nodes):
            if end <= at_us < timeout:
                for n, gpus in on:
                    out[n] -= gpus
        for j in self._ctx.e:
            if j not in settled and jobs.mode[j] == Mode.ALLOCATED:
                for rep in jobs.placement[j]:
                    out[rep.node] -= rep.gpus
        sure: IntArray = out[nodes]
        return sure

    def _in_doubt(self, nodes: IntArray) -> list[tuple[int, int, int, list[tuple[int, int]]]]:
        """Work on some nodes of budgets that may not be able to spare all of it."""
        key, jobs = nodes.tobytes(), self.problem.jobs
        if key not in self._here:
            on = set(nodes.tolist())
            here = [row for row in self._doubtful if any(n in on for n, _ in row[3])]
            total: dict[int, int] = defaultdict(int)
            for j, *_ in here:
                total[int(jobs.leaf[j])] += int(jobs.size[j])
            scarce = {leaf for leaf, gpus in total.items() if gpus > self._spare.least(leaf)}
            self._here[key] = [row for row in here if int(jobs.leaf[row[0]]) in scarce]
        return self._here[key]

    def at(self, at_us: int) -> IntArray:
        """Healthy GPUs of every node less those held beyond the instant, and those promised."""
        return np.maximum(self._left(at_us), 0)

    def at_beside(self, own: Hold, at_us: int) -> IntArray:
        """:meth:`at` with all promises but one."""
        left = self._left(at_us).copy()
        if own not in self._waits:
            np.add.at(left, np.array(own.nodes, dtype=np.int64), own.gpus)
        return np.maximum(left, 0)

    def _left(self, at_us: int) -> IntArray:
        """What :meth:`at` says, below 0 where promises are for GPUs that are held beyond the instant."""
        if at_us not in self._at:
            node, until, gpus = self._stays.T
            left = self._at[at_us] = self.problem.nodes.healthy - self._promised
            beyond = until > at_us
            np.subtract.at(left, node[beyond], gpus[beyond])
        return self._at[at_us]

    def doubtful(self, nodes: IntArray, at_us: int) -> dict[int, list[tuple[int, cp_model.IntVar]]]:
        """Per node, (GPUs, literal: it stays) of work that leaves by an instant only if its budget can spare it.

        What a budget spares is counted over the nodes asked about: that is how a promise on them is made.
        """
        return self.doubtful_beside(None, nodes, at_us)

    def doubtful_beside(
        self, own: Hold | None, nodes: IntArray, at_us: int
    ) -> dict[int, list[tuple[int, cp_model.IntVar]]]:
        """:meth:`doubtful` with all promises but one."""
        here, out = set(nodes.tolist()), defaultdict(list)
        for hold, waits in self._waits.items():
            for n, gpus in zip(hold.nodes, hold.gpus, strict=True):
                if n in here and hold != own:
                    out[n].append((gpus, waits))
        for j, end, timeout, on in self._in_doubt(nodes):
            if end <= at_us < timeout:
                literal = self._literals_on(nodes)[j]
                for n, gpus in on:
                    if n in here:
                        out[n].append((gpus, literal))
        return dict(out)

    def doubts(self, at_us: int) -> int:
        """How many jobs may or may not have left by an instant."""
        return sum(end <= at_us < timeout for _, end, timeout, _ in self._doubtful)

    def _literals_on(self, nodes: IntArray) -> dict[int, cp_model.IntVar]:
        key = nodes.tobytes()
        if key not in self._literals:
            ctx, jobs = self._ctx, self.problem.jobs
            leaving: dict[int, list[tuple[int, cp_model.IntVar]]] = defaultdict(list)
            literals = self._literals[key] = {}
            for j, *_ in self._in_doubt(nodes):
                literals[j] = ctx.model.new_bool_var(f"stays{j},{len(self._literals)}")
                leaving[int(jobs.leaf[j])].append((int(jobs.size[j]), literals[j]))
            for leaf, terms in leaving.items():
                # Σ size · (1 − stays) ≤ spare
                total = sum(size for size, _ in terms)
                ctx.model.add(dot(terms) + self._spare.of(leaf) >= total)
        return self._literals[key]


class _Own:
    """Room beside everybody's promises but one."""

    def __init__(self, room: RoomAt, hold: Hold) -> None:
        self._room, self._hold = room, hold

    def at(self, at_us: int) -> IntArray:
        """GPUs of every node that may be there at an instant; shape (N,)."""
        return self._room.at_beside(self._hold, at_us)

    def doubtful(self, nodes: IntArray, at_us: int) -> dict[int, list[tuple[int, cp_model.IntVar]]]:
        """As for everybody, but for the promise itself."""
        return self._room.doubtful_beside(self._hold, nodes, at_us)


class _Spare:
    """What budgets have beyond their claims after the round: max(0, granted − claim), at least and at most."""

    def __init__(self, ctx: ModelContext, kept: Sequence[int]) -> None:
        self._ctx = ctx
        problem, jobs = ctx.problem, ctx.problem.jobs
        leaves = len(problem.budgets.claim)
        self._runs = np.zeros(leaves, dtype=np.int64)
        np.add.at(self._runs, jobs.leaf[kept], jobs.size[kept])
        free = int(problem.nodes.free_gpus.sum()) + sum(int(jobs.size[j]) for j in ctx.e)
        more = np.zeros(leaves, dtype=np.int64)
        for j, mode in ctx.y:
            if mode is Mode.ALLOCATED:
                more[jobs.leaf[j]] += int(jobs.size[j])
        more = np.minimum(more, free)
        for j in [*ctx.p, *(j for j in ctx.e if jobs.mode[j] == Mode.ALLOCATED and j not in ctx.partition.gone)]:
            more[jobs.leaf[j]] += int(jobs.size[j])
        self._most = self._runs + more - problem.budgets.claim
        self._vars: dict[int, cp_model.IntVar] = {}

    def most(self, leaf: int) -> int:
        """More than this a leaf cannot spare."""
        return int(self._most[leaf])

    def least(self, leaf: int) -> int:
        """As much as this a leaf can spare whatever is decided."""
        return int(self._runs[leaf] - self._ctx.problem.budgets.claim[leaf])

    def is_enough(self, leaf: int) -> bool:
        """Whether a leaf can spare all that runs for it, whatever is decided."""
        return int(self._ctx.problem.budgets.claim[leaf]) == 0

    def of(self, leaf: int) -> cp_model.IntVar:
        """A variable that is at most what a leaf can spare."""
        if leaf not in self._vars:
            ctx, claim = self._ctx, int(self._ctx.problem.budgets.claim[leaf])
            over = ctx.model.new_bool_var(f"over{leaf}")
            var = self._vars[leaf] = ctx.model.new_int_var(0, max(0, self.most(leaf)), f"spare{leaf}")
            ctx.model.add(var <= ctx.granted([leaf]) - claim).only_enforce_if(over)
            ctx.model.add(var == 0).only_enforce_if(over.negated())
        return self._vars[leaf]


def _healthy_gpus(problem: Problem, rep: Replica) -> int:
    return rep.gpus if rep.devices < 0 else (rep.devices & problem.nodes.healthy_devices[rep.node]).bit_count()


def hopeful_release_us(problem: Problem, job: int) -> int:
    """Earliest instant at which a running allocated job could be out of the way, whatever its budget ends up with."""
    release = max(problem.now_us, timeout_us(problem, job))
    if problem.budgets.over_share(int(problem.jobs.leaf[job])):
        release = min(release, max(problem.now_us, int(problem.jobs.protected_until_us[job])))
    return release


def instants(problem: Problem) -> tuple[int, ...]:
    """Now, and every later instant at which running, starting or promoted allocated work may be out of the way."""
    jobs, out = problem.jobs, {problem.now_us}
    runs = (jobs.state == JobState.FIXED) | (jobs.state == JobState.EVICTABLE)
    for j in np.flatnonzero(runs & (jobs.mode == Mode.ALLOCATED)).tolist():
        # Where its budget keeps its claim back a job leaves at its timeout only.
        out |= {hopeful_release_us(problem, j), max(problem.now_us, timeout_us(problem, j))}
    for j in np.flatnonzero((jobs.state == JobState.PENDING) & jobs.may_allocate | jobs.may_promote).tolist():
        out.add(start_release_us(problem, j))
    return tuple(sorted(t for t in out if t < NEVER))
