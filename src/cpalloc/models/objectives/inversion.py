"""Inversion: jobs passed over by worse-ranked starts of their own budget."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import ClassVar

import numpy as np
from ortools.sat.python import cp_model

from cpalloc.models.base import PartSpec
from cpalloc.models.fit import does_not_fit, may_not_fit
from cpalloc.models.places import Places
from cpalloc.models.variables import Linear, ModelContext, dot
from cpalloc.problem.grants import borrowed, granted
from cpalloc.problem.problem import Action, Decision, IntArray, JobState, Mode, Problem
from cpalloc.problem.usage import Usage, place_kinds


class Inversion:
    """Σ GPUs × class (1…5) of waiting jobs that would fit without the worse starts of their budget and mode."""

    name: ClassVar[str] = "inversion"
    parts: ClassVar[tuple[PartSpec, ...]] = (PartSpec("inversion", "weighted GPUs"),)
    limits_model: ClassVar[bool] = True

    def floor(self, problem: Problem) -> tuple[int, ...]:
        """No job need be passed over."""
        return (0,)

    def build(self, ctx: ModelContext) -> tuple[Linear, ...]:
        """Jobs passed over, as far as the model can tell.

        A job that would fit in the very place of a worse-ranked start (same leaf and mode) is inverted when the latter
        starts and it does not. Whether it would fit by joining what several worse starts leave is counted for the jobs
        the partition watches, stated exactly for some of them; for the others it is relaxed (they count as not
        fitting).
        """
        return (_PassedOver.of(ctx).total,)

    def evaluate(self, problem: Problem, decision: Decision) -> tuple[int, ...]:
        """From the decision alone."""
        return (sum(weight(problem, j) for j in inverted(problem, decision)),)


def watch(ctx: ModelContext, jobs: Iterable[int]) -> None:
    """State of more jobs whether they would fit without worse-ranked starts, where nobody may be inverted."""
    passed_over = _PassedOver.of(ctx)
    for j in sorted(jobs):
        passed_over.watch(j)


def forbid(ctx: ModelContext, jobs: Iterable[int]) -> None:
    """State that no worse-ranked start of their budget passes some jobs over, fit or not: y_i ≤ y_j."""
    passed_over = _PassedOver.of(ctx)
    for j in sorted(jobs):
        started = ctx.started(j)
        for worse in passed_over.worse(j):
            ctx.model.add_bool_or([*started, worse.negated()])


class _Starts:
    """The starts of a leaf in a mode, in order, and variables that say whether any of the later ones begins."""

    def __init__(self, ctx: ModelContext, mode: Mode, members: Sequence[int]) -> None:
        self._ctx, self._places = ctx, ctx.problem.once("places", lambda: Places(ctx.problem))
        order = ctx.problem.jobs.order
        self._all = _Chain(ctx, f"any,{int(mode)}")
        self._alike: dict[int, _Chain] = {}
        self._alike_in: dict[int, dict[int, _Chain]] = defaultdict(dict)
        self._known: dict[tuple[int, bool], list[_Chain]] = {}
        for j in (j for j in members if (j, mode) in ctx.y):
            self._all.append(j, int(order[j]), ctx.y[j, mode])
            terms = self._places.terms[j]
            if terms not in self._alike:
                self._alike[terms] = _Chain(ctx, f"alike{len(self._alike)},{int(mode)}")
            self._alike[terms].append(j, int(order[j]), ctx.y[j, mode])
            for s in ctx.shapes_of(j, mode):
                chains, pool = self._alike_in[terms], ctx.kind(ctx.layout.shapes[s].kind).pool
                if pool not in chains:
                    chains[pool] = _Chain(ctx, f"alike{len(self._alike)},{int(mode)},{pool}")
                chains[pool].append(j, int(order[j]), ctx.in_shape[j, mode, s])

    def any_behind(self, job: int) -> bool:
        """Whether any is ranked worse than a job."""
        return self._all.last > int(self._ctx.problem.jobs.order[job])

    def after(self, job: int) -> list[int]:
        """Jobs ranked worse than a job."""
        return self._all.after(int(self._ctx.problem.jobs.order[job]))

    def any_after(self, job: int) -> cp_model.IntVar:
        """Whether any job ranked worse starts; there must be one."""
        return self._all.any_after(int(self._ctx.problem.jobs.order[job]))

    def any_in_place_of(self, job: int) -> Iterator[cp_model.IntVar]:
        """Whether worse-ranked jobs start where the job fits: of like terms anywhere, or in the pools where it does."""
        order = int(self._ctx.problem.jobs.order[job])
        for chain in self._fitting(job):
            if chain.last > order:
                yield chain.any_after(order)

    def _fitting(self, job: int) -> list[_Chain]:
        """Starts in whose place a job fits: the same for all jobs of its terms."""
        key = self._places.alike(job)
        if key not in self._known:
            pools, out = len(self._ctx.problem.pool_names), self._known.setdefault(key, [])
            for terms, chain in self._alike.items():
                fits = self._places.pools(job, chain.jobs[0])
                within = self._alike_in[terms].items()
                out += [chain] if len(fits) == pools else [inside for pool, inside in within if pool in fits]
        return self._known[key]


class _Chain:
    """Starts in their order, and whether any of the last ones begins: w_p ≥ y_p, w_p ≥ w_{p+1}, made when asked for."""

    def __init__(self, ctx: ModelContext, label: str) -> None:
        self._ctx, self._label = ctx, label
        self.jobs: list[int] = []
        self._order: list[int] = []
        self._begins: list[cp_model.IntVar] = []
        self._any: dict[int, cp_model.IntVar] = {}

    def append(self, job: int, order: int, begins: cp_model.IntVar) -> None:
        """Add a start that is ranked worse than those before it."""
        self.jobs.append(job)
        self._order.append(order)
        self._begins.append(begins)

    @property
    def last(self) -> int:
        """The last place in the order; −1: none."""
        return self._order[-1] if self._order else -1

    def after(self, order: int) -> list[int]:
        """Jobs behind a place in the order."""
        return self.jobs[bisect_right(self._order, order) :]

    def any_after(self, order: int) -> cp_model.IntVar:
        """Whether any start behind a place in the order begins; there must be one."""
        first = bisect_right(self._order, order)
        known = first
        while known < len(self.jobs) - 1 and known not in self._any:
            known += 1
        begun = self._any.get(known, self._begins[known])
        for p in range(known - 1, first - 1, -1):
            var = self._ctx.model.new_bool_var(f"{self._label},{self.jobs[p]}")
            self._ctx.model.add_implication(self._begins[p], var)
            self._ctx.model.add_implication(begun, var)
            begun = self._any[p] = var
        return begun


_Rows = list[tuple[cp_model.IntVar, list[cp_model.IntVar]]]
"""Starts that some job may not wait for: whether any of them begins, and what excuses it."""


class _PassedOver:
    """The jobs of which a model says whether they are inverted, and what it says.

    ``total``: Σ weights of those that are.
    """

    def __init__(self, ctx: ModelContext) -> None:
        self._ctx = ctx
        jobs, partition = ctx.problem.jobs, ctx.partition
        looked_at = partition.watched | partition.apart | partition.exact | partition.firm
        by_leaf: dict[int, list[int]] = defaultdict(list)
        for j in sorted({job for job, _ in ctx.y} | self._waiting(looked_at)):
            by_leaf[int(jobs.leaf[j])].append(j)
        self._starts: dict[int, Mapping[Mode, _Starts]] = {}
        self._known = {j for members in by_leaf.values() for j in members}
        self._looked_at = set(looked_at)
        terms = []
        for leaf, members in by_leaf.items():
            members.sort(key=lambda j: int(jobs.order[j]))
            modes = (Mode.ALLOCATED, Mode.BORROWED)
            self._starts[leaf] = {mode: _Starts(ctx, mode, members) for mode in modes}
            for j in members:
                rows = self._in_place(j) + (self._in_room(j) if j in looked_at else [])
                if rows:
                    passed = ctx.model.new_bool_var(f"passed{j}")
                    self._state(j, rows, [passed])
                    terms.append((weight(ctx.problem, j), passed))
        self.total = dot(terms)

    @classmethod
    def of(cls, ctx: ModelContext) -> _PassedOver:
        """Those of a model."""
        return ctx.memo_of_model("passed over", lambda: cls(ctx))

    def worse(self, job: int) -> Iterator[cp_model.IntVar]:
        """Starts that are ranked worse than a job, in the modes in which it may start."""
        for mode, starts in self._behind(job):
            yield from (self._ctx.y[i, mode] for i in starts.after(job))

    def watch(self, job: int) -> None:
        """State whether a job would fit without worse-ranked starts; it may not be inverted.

        Of those that have no start in the model, and for which there is no room either, nothing need be stated.
        """
        if job in self._known - self._looked_at:
            self._state(job, self._in_room(job), [])
            self._looked_at.add(job)

    def _waiting(self, looked_at: Set[int]) -> frozenset[int]:
        """Jobs without a start in the model that wait for sure: nobody has settled them, or could lend to them."""
        ctx, partition = self._ctx, self._ctx.partition
        waits = looked_at if partition.region is None else frozenset[int]()
        passed = frozenset[int]() if partition.possible is None else partition.possible.passed
        return frozenset(j for j in waits | passed if partition.lend or ctx.problem.jobs.may_allocate[j])

    def _behind(self, job: int) -> Iterator[tuple[Mode, _Starts]]:
        """The modes in which a job may start and worse-ranked ones do, and the starts of its leaf."""
        jobs = self._ctx.problem.jobs
        for mode, starts in self._starts.get(int(jobs.leaf[job]), {}).items():
            may = jobs.may_allocate if mode is Mode.ALLOCATED else jobs.may_borrow
            if may[job] and starts.any_behind(job):
                yield mode, starts

    def _in_place(self, job: int) -> _Rows:
        """Worse-ranked starts in whose very place the job fits."""
        if job in self._ctx.partition.firm:
            return []  # it waits for none of them anyway
        return [(begun, []) for _, starts in self._behind(job) for begun in starts.any_in_place_of(job)]

    def _in_room(self, job: int) -> _Rows:
        """Worse-ranked starts, and that the job would not fit without all of them."""
        ctx, rows = self._ctx, _Rows()
        for mode, starts in self._behind(job):
            if job in ctx.partition.firm:
                rows.append((starts.any_after(job), []))
            elif mode is Mode.ALLOCATED or ctx.partition.lend:
                # Whether there is room to borrow is known only where all that borrows is in the model.
                state = does_not_fit if job in ctx.partition.exact else may_not_fit
                excuse = state(ctx, job, mode, starts.after(job))
                if excuse is not None:
                    rows.append((starts.any_after(job), [excuse]))
        return rows

    def _state(self, job: int, rows: _Rows, passed: list[cp_model.IntVar]) -> None:
        excused = [*passed, *self._ctx.started(job)]
        for begun, alibi in rows:
            self._ctx.model.add_bool_or([*excused, *alibi, begun.negated()])


def weight(problem: Problem, job: int) -> int:
    """GPUs × class, the class from 1 (low) to 5 (immediate)."""
    return int(problem.jobs.size[job]) * (int(problem.jobs.priority[job]) + 1)


def inverted(problem: Problem, decision: Decision) -> list[int]:
    """Waiting jobs that would fit — nodes, domain, caps — once all worse-ranked starts of the same budget and mode were
    taken away, everything else as decided; only where there is such a start.

    Allocated work yields to nothing borrowed, so what is lent this round is no reason why it would not fit.
    """
    jobs, order = problem.jobs, problem.jobs.order
    starts: dict[tuple[int, Mode], list[int]] = defaultdict(list)
    for j in decision.placement:
        starts[int(jobs.leaf[j]), Mode(int(decision.mode[j]))].append(j)
    waits = (decision.action == Action.WAIT) & (jobs.state == JobState.PENDING)
    lent = set(decision.starts_in(Mode.BORROWED))
    usage: dict[Mode, Usage] = {}
    have: dict[Mode, IntArray] = {}
    kinds, out = place_kinds(problem), set[int]()
    for (leaf, mode), begun in starts.items():
        begun.sort(key=lambda i: int(order[i]))
        may = jobs.may_allocate if mode is Mode.ALLOCATED else jobs.may_borrow
        better = np.flatnonzero(waits & may & (jobs.leaf == leaf) & (order < order[begun[-1]])).tolist()
        if not better:
            continue
        if mode not in usage:
            usage[mode] = Usage.of(problem, decision, lent if mode is Mode.ALLOCATED else ())
            have[mode] = granted(problem, decision) if mode is Mode.ALLOCATED else borrowed(problem, decision)
        room, gone, taken, fits = usage[mode], 0, [], dict[int, bool]()
        caps = [
            cap - int(have[mode][list(problem.budgets.leaves_below[vertex])].sum())
            for vertex, cap in problem.budgets.caps_above(leaf, mode)
        ]
        # From the worst-ranked up, ever more starts are worse: take them away one after the other.
        for j in sorted(better, key=lambda j: -int(order[j])):
            while begun and order[begun[-1]] > order[j]:
                taken.append(begun.pop())
                room.remove(taken[-1], decision.placement[taken[-1]])
                gone += int(jobs.size[taken[-1]])
                fits.clear()
            if j in out or any(int(jobs.size[j]) > left + gone for left in caps):
                continue
            if kinds[j] not in fits:
                fits[kinds[j]] = room.fits(j)
            if fits[kinds[j]]:
                out.add(j)
        for i in reversed(taken):
            room.place(i, decision.placement[i])
    return sorted(out)
