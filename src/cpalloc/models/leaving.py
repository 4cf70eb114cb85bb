"""Room that running allocated work leaves by an instant: what is sure, what depends, and on whom (policy section 6)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from ortools.sat.python import cp_model

from cpalloc.models.variables import ModelContext, dot
from cpalloc.problem.problem import Hold, IntArray, JobState, Mode, Problem, Replica
from cpalloc.problem.releases import timeout_us


@dataclass(frozen=True, slots=True)
class _Runs:
    """Running allocated work: (node, healthy GPUs) it has, from when on it leaves if its budget can spare it, when it
    leaves anyhow, and whether it may be preempted."""

    job: int
    on: tuple[tuple[int, int], ...]
    spared_us: int
    until_us: int
    open: bool


class RoomAt:
    """GPUs of a node that running allocated work may have left by an instant, read in the most hopeful way.

    Work of a budget over its share leaves at the end of its protection as long as the budget keeps its claim without
    it. Where that is sure, or out of the question, it is known here; where it depends on what starts, a literal decides
    for each of the jobs on some nodes, and the budget gives way only as far as it keeps its claim. What may be
    preempted is in the way unless it is.
    """

    def __init__(self, ctx: ModelContext) -> None:
        self._ctx = ctx
        problem = self.problem = ctx.problem
        jobs = problem.jobs
        runs = (jobs.state == JobState.FIXED) | (jobs.state == JobState.EVICTABLE)
        running = [
            j for j in np.flatnonzero(runs & (jobs.mode == Mode.ALLOCATED)).tolist() if j not in ctx.partition.gone
        ]
        self._spare = _Spare(ctx, [j for j in running if j not in ctx.e])
        self._runs = [self._run(j) for j in running]
        from_us = np.array([0 if r.open else r.spared_us for r in self._runs], dtype=np.int64)
        self._in_doubt_over = from_us, np.array([r.until_us for r in self._runs], dtype=np.int64)
        rows = [(n, row.spared_us, gpus) for row in self._runs if not row.open for n, gpus in row.on]
        self._stays: IntArray = np.array(rows, dtype=np.int64).reshape(len(rows), 3)
        self._waits: dict[Hold, cp_model.IntVar] = {}
        self._promised: IntArray = np.zeros(len(problem.nodes.names), dtype=np.int64)
        self._at: dict[int, IntArray] = {}
        self._literals: dict[str, dict[int, cp_model.IntVar]] = {}
        self._here: dict[bytes, list[_Runs]] = {}
        self._scarce = self._spared_by_few()

    def _run(self, job: int) -> _Runs:
        problem, jobs = self.problem, self.problem.jobs
        leaf, until = int(jobs.leaf[job]), max(problem.now_us, timeout_us(problem, job))
        end = hopeful_release_us(problem, job)
        if end < until and self._spare.is_enough(leaf):
            until = end
        elif end < until and self._spare.most(leaf) < jobs.size[job]:
            end = until
        on = tuple((r.node, _healthy_gpus(problem, r)) for r in jobs.placement[job] if r.node >= 0)
        return _Runs(job, on, end, until, job in self._ctx.e)

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
        for row in self._in_doubt(nodes):
            if at_us < row.until_us and (row.open or (row.job in self._scarce and row.spared_us <= at_us)):
                for n, gpus in row.on:
                    out[n] -= gpus
        sure: IntArray = out[nodes]
        return sure

    def _spared_by_few(self) -> set[int]:
        """Jobs of budgets that may not be able to spare all whom they might spare."""
        jobs = self.problem.jobs
        may = [row.job for row in self._runs if row.spared_us < row.until_us]
        total: dict[int, int] = defaultdict(int)
        for job in may:
            total[int(jobs.leaf[job])] += int(jobs.size[job])
        return {job for job in may if total[int(jobs.leaf[job])] > self._spare.least(int(jobs.leaf[job]))}

    def _in_doubt(self, nodes: IntArray) -> list[_Runs]:
        """Work on some nodes that may or may not be there."""
        key = nodes.tobytes()
        if key not in self._here:
            on = set(nodes.tolist())
            here = [r for r in self._runs if r.open or r.job in self._scarce]
            self._here[key] = [r for r in here if any(n in on for n, _ in r.on)]
        return self._here[key]

    def at(self, at_us: int) -> IntArray:
        """Healthy GPUs of every node less those held beyond the instant, and those promised."""
        return np.maximum(self._left(at_us), 0)

    def at_beside(self, without: Collection[Hold], at_us: int) -> IntArray:
        """:meth:`at` with all promises but some."""
        left = self._left(at_us).copy()
        for hold in without:
            if hold not in self._waits:
                np.add.at(left, np.array(hold.nodes, dtype=np.int64), hold.gpus)
        return np.maximum(left, 0)

    def _left(self, at_us: int) -> IntArray:
        """What :meth:`at` says, below 0 where promises are for GPUs that are held beyond the instant."""
        if at_us not in self._at:
            node, until, gpus = self._stays.T
            left = self._at[at_us] = self.problem.nodes.healthy - self._promised
            beyond = until > at_us
            np.subtract.at(left, node[beyond], gpus[beyond])
        return self._at[at_us]

    def doubtful(self, nodes: IntArray, at_us: int, whose: str = "") -> dict[int, list[tuple[int, cp_model.IntVar]]]:
        """Per node, (GPUs, literal: it stays) of work that leaves by an instant only if its budget can spare it, or if
        it is preempted.

        What budgets spare is counted over all promises together: they spare nothing twice. ``whose``: for somebody
        who is promised nothing, for whom it is counted apart.
        """
        return self.doubtful_beside((), nodes, at_us, whose)

    def doubtful_beside(
        self, without: Collection[Hold], nodes: IntArray, at_us: int, whose: str = ""
    ) -> dict[int, list[tuple[int, cp_model.IntVar]]]:
        """:meth:`doubtful` with all promises but some."""
        on, out = set(nodes.tolist()), defaultdict(list)
        for hold, waits in self._waits.items():
            for n, gpus in zip(hold.nodes, hold.gpus, strict=True):
                if n in on and hold not in without:
                    out[n].append((gpus, waits))
        for row in self._in_doubt(nodes):
            if row.spared_us <= at_us < row.until_us and row.job in self._scarce:
                literal: cp_model.IntVar = self._stays_literals(whose)[row.job]
            elif row.open and at_us < row.spared_us:
                literal = cast(cp_model.IntVar, self._ctx.e[row.job].negated())
            else:
                continue
            for n, gpus in row.on:
                if n in on:
                    out[n].append((gpus, literal))
        return dict(out)

    def doubts(self, at_us: int) -> bytes:
        """Which jobs may or may not have left by an instant: the same bytes for the same jobs."""
        from_us, until_us = self._in_doubt_over
        return ((from_us <= at_us) & (at_us < until_us)).tobytes()

    def promised_on(self, nodes: Sequence[int]) -> bool:
        """Whether some GPUs of some nodes are taken for promised, although work may be there."""
        return bool(self._promised[list(nodes)].any()) or any(n in h.nodes for h in self._waits for n in nodes)

    def _stays_literals(self, whose: str) -> dict[int, cp_model.IntVar]:
        """Whether work that budgets may not be able to spare stays: Σ size · (1 − stays − preempted) ≤ spare."""
        if whose not in self._literals:
            ctx, jobs, literals = self._ctx, self.problem.jobs, self._literals.setdefault(whose, {})
            known: dict[int, int] = defaultdict(int)
            terms: dict[int, list[tuple[int, cp_model.IntVar]]] = defaultdict(list)
            for job in sorted(self._scarce):
                leaf, size = int(jobs.leaf[job]), int(jobs.size[job])
                stays = literals[job] = ctx.model.new_bool_var(f"stays{job},{whose}")
                known[leaf] += size
                terms[leaf].append((size, stays))
                if job in ctx.e:
                    terms[leaf].append((size, ctx.e[job]))
                    ctx.model.add_bool_or([stays.negated(), ctx.e[job].negated()])
            for leaf, row in terms.items():
                ctx.model.add(dot(row) + self._spare.of(leaf) >= known[leaf])
        return self._literals[whose]


class RoomBeside:
    """Room beside everybody's promises but some."""

    def __init__(self, room: RoomAt, without: Collection[Hold]) -> None:
        self._room, self._without = room, without

    def at(self, at_us: int) -> IntArray:
        """GPUs of every node that may be there at an instant; shape (N,)."""
        return self._room.at_beside(self._without, at_us)

    def doubtful(self, nodes: IntArray, at_us: int, whose: str = "") -> dict[int, list[tuple[int, cp_model.IntVar]]]:
        """As for everybody, but for these promises."""
        return self._room.doubtful_beside(self._without, nodes, at_us, whose)

    def promised_on(self, nodes: Sequence[int]) -> bool:
        """Whether some GPUs of some nodes are taken for promised, although work may be there."""
        return self._room.promised_on(nodes)


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
