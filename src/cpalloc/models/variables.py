"""The variables of a round's model and the constraints that only define them.

Notation: ``y[job, mode]`` a pending job starts in a mode; ``z[shape, domain]`` gangs of a shape placed inside one
domain of their level; ``a[kind, cell]`` replicas of a kind on the nodes of a cell; ``e[job]`` an evictable job is
preempted; ``p[job]`` a borrowed job is promoted where it stands.

A gang in domain v takes its replicas from the cells below v. Domains form a tree, so replicas exist for all gangs iff
for every kind and every domain v the gangs placed at v or below need no more replicas than the cells below v hold
(Hall's condition on a laminar family): that is what :func:`define` states, with equality at the root.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from itertools import pairwise
from typing import TypeVar, cast

import numpy as np
from ortools.sat.python import cp_model

from cpalloc.models.base import Objective, OutOfTime
from cpalloc.models.kinds import Cell, Kind, Layout, Start, layout, promotion_end_us, promotions, terms_of
from cpalloc.models.partition import Partition
from cpalloc.problem.problem import BoolArray, JobState, Mode, Problem

Linear = cp_model.LinearExpr | int
T = TypeVar("T")


MOST_NODES_BY_POOL = 512
"""Nodes up to which starts that accept several pools are told apart by pool; beyond, the models grow too big."""


class ModelContext:
    """A model under construction: the problem, its layout, its variables, and sums every constraint may use."""

    def __init__(
        self,
        problem: Problem,
        partition: Partition,
        memo: dict[object, object] | None = None,
        out_of_time: Callable[[], bool] = lambda: False,
    ) -> None:
        self.problem = problem
        self._out_of_time = out_of_time
        self._memo: dict[object, object] = {} if memo is None else memo
        self.partition = partition
        self.layout: Layout = layout(problem, partition, self.memo("terms", lambda: terms_of(problem)))
        self.model = cp_model.CpModel()
        self.y: dict[tuple[int, Mode], cp_model.IntVar] = {}
        self.in_shape: dict[tuple[int, Mode, int], cp_model.IntVar] = {}
        self._shapes_of: dict[tuple[int, Mode], list[int]] = defaultdict(list)
        self.z: dict[tuple[int, int], cp_model.IntVar] = {}
        self.a: dict[tuple[int, int], cp_model.IntVar] = {}
        self.e: dict[int, cp_model.IntVar] = {}
        self.p: dict[int, cp_model.IntVar] = {}
        self.kinds_on: dict[int, list[int]] = defaultdict(list)
        self.cells_below: dict[tuple[int, int], list[int]] = defaultdict(list)
        self.b: dict[tuple[int, int], dict[int, cp_model.IntVar]] = {}
        self._alone: dict[tuple[int, int], cp_model.IntVar] = {}
        self.slots_at: dict[object, cp_model.IntVar] = {}
        self._short: dict[int, cp_model.IntVar] = {}
        self._leaf_terms: dict[Mode, dict[int, tuple[int, list[tuple[int, cp_model.IntVar]]]]] = {}
        self._terms: dict[str, tuple[Linear, ...]] = {}
        self._contested: dict[int, BoolArray] = {}
        self._late_on: dict[int, int] = {}
        self._own: dict[object, object] = {}
        self._held_on = self.memo("held_on", lambda: _rows_by_node(problem))
        self._define()

    @property
    def variables(self) -> int:
        """How many variables there are."""
        return len(self.model.proto.variables)

    def copied(self) -> ModelContext:
        """The same to whoever only adds rows to its model: that is its own, all else is shared."""
        out = copy(self)
        out.model = self.model.clone()
        return out

    # -- variables ------------------------------------------------------------------------------------------------

    def _define(self) -> None:
        problem, model, lay = self.problem, self.model, self.layout
        jobs, topology = problem.jobs, problem.topology
        evictable = (jobs.state == JobState.EVICTABLE).tolist()
        promoting = promotions(problem, self.partition)
        for j in range(len(jobs)):
            if evictable[j] and j not in self.partition.stays:
                self.e[j] = model.new_constant(1) if j in self.partition.gone else model.new_bool_var(f"e{j}")
            if j in promoting:
                region = self.partition.region
                self.p[j] = model.new_constant(j in region.promoted) if region else model.new_bool_var(f"p{j}")
                if j in self.e:
                    model.add_bool_or(self.e[j].negated(), self.p[j].negated())
        for c, cell in enumerate(lay.cells):
            for level in range(len(topology.levels)):
                self.cells_below[level, int(topology.domain_of[level, cell.first])].append(c)
        for (k, c), most in lay.slots.items():
            self.a[k, c] = model.new_int_var(0, most, f"a{k},{c}")
            self.kinds_on[c].append(k)
        self._define_gangs()
        self._define_starts()

    def _define_gangs(self) -> None:
        """Gangs at domains, and Hall's condition between gangs and replicas, kind by kind."""
        lay, topology = self.layout, self.problem.topology
        shapes_of: dict[int, list[int]] = defaultdict(list)
        for s, shape in enumerate(lay.shapes):
            shapes_of[shape.kind].append(s)
        cells_of: dict[int, list[int]] = defaultdict(list)
        for k, c in lay.slots:
            cells_of[k].append(c)
        for k, shapes in shapes_of.items():
            cells = cells_of[k]
            demand: dict[tuple[int, int], list[tuple[int, cp_model.IntVar]]] = defaultdict(list)
            supply: dict[tuple[int, int], list[int]] = defaultdict(list)
            for level in {lay.shapes[s].level for s in shapes} | {0}:
                for c in cells:
                    supply[level, int(topology.domain_of[level, lay.cells[c].first])].append(c)
            for s in shapes:
                shape = lay.shapes[s]
                for (level, domain), below in supply.items():
                    if level != shape.level:
                        continue
                    most = sum(lay.slots[k, c] for c in below) // shape.replicas
                    if not most:
                        continue
                    var = self.z[s, domain] = self.model.new_int_var(0, most, f"z{s},{domain}")
                    node = lay.cells[below[0]].first
                    for up in range(level + 1):
                        demand[up, int(topology.domain_of[up, node])].append((shape.replicas, var))
            for key, below in supply.items():
                need = _dot(demand[key])
                have = cp_model.LinearExpr.sum([self.a[k, c] for c in below])
                self.model.add(have == need if key[0] == 0 else have >= need)

    def _define_starts(self) -> None:
        """Every start is one gang of one of its shapes; like jobs of a budget start in their order."""
        lay, jobs = self.layout, self.problem.jobs
        families: dict[tuple[int, ...], list[Start]] = defaultdict(list)
        placed: dict[int, list[cp_model.IntVar]] = defaultdict(list)
        for (s, _), var in self.z.items():
            placed[s].append(var)
        twins: dict[object, list[tuple[int, cp_model.IntVar]]] = defaultdict(list)
        both = {(s.job) for s in lay.starts if s.mode is Mode.ALLOCATED} & {
            s.job for s in lay.starts if s.mode is Mode.BORROWED
        }
        for start in lay.starts:
            if not any(placed[s] for s in start.shapes):
                continue
            var = self.y[start.job, start.mode] = self.model.new_bool_var(f"y{start.job},{int(start.mode)}")
            families[start.shapes].append(start)
            if start.job not in both:
                j = start.job
                like = (start.shapes, int(jobs.leaf[j]), int(jobs.priority[j]), int(jobs.min_runtime_s[j]))
                twins[like, int(jobs.timeout_s[j]), int(jobs.preferred_level[j])].append((int(jobs.order[j]), var))
        for shapes, starts in families.items():
            if len(shapes) > 1 and len(self.problem.nodes.names) > MOST_NODES_BY_POOL:
                gangs = [v for s in shapes for v in placed[s]]
                started = [self.y[start.job, start.mode] for start in starts]
                self.model.add(cp_model.LinearExpr.sum(gangs) == cp_model.LinearExpr.sum(started))
                continue
            self._in_shapes(starts, [s for s in shapes if placed[s]])
            for s in shapes:
                if placed[s]:
                    started = [self.in_shape[start.job, start.mode, s] for start in starts]
                    self.model.add(cp_model.LinearExpr.sum(placed[s]) == cp_model.LinearExpr.sum(started))
        for j in both:
            modes = [self.y[j, m] for m in (Mode.ALLOCATED, Mode.BORROWED) if (j, m) in self.y]
            if len(modes) == 2:
                self.model.add_bool_or(modes[0].negated(), modes[1].negated())
        for row in twins.values():
            row.sort(key=lambda pair: pair[0])
            for (_, better), (_, worse) in pairwise(row):
                self.model.add_implication(worse, better)

    def _in_shapes(self, starts: Sequence[Start], shapes: Sequence[int]) -> None:
        """Which of several shapes, in pools of their own, each start takes."""
        for start in starts:
            chosen = self.y[start.job, start.mode]
            if len(shapes) == 1:
                self.in_shape[start.job, start.mode, shapes[0]] = chosen
                continue
            each = [self.model.new_bool_var(f"y{start.job},{int(start.mode)},{s}") for s in shapes]
            self.model.add(cp_model.LinearExpr.sum(each) == chosen)
            self.in_shape.update({(start.job, start.mode, s): v for s, v in zip(shapes, each, strict=True)})

    def shapes_of(self, job: int, mode: Mode) -> list[int]:
        """Shapes, one a pool, as which a job may start in a mode; none where it is not known which it takes."""
        if not self._shapes_of:
            for j, m, s in self.in_shape:
                self._shapes_of[j, m].append(s)
        return self._shapes_of.get((job, mode), [])

    # -- sums every constraint may use ----------------------------------------------------------------------------

    def starts_of(self, jobs: Iterable[int], mode: Mode) -> list[tuple[int, cp_model.IntVar]]:
        """(size, variable) of the starts of some jobs in a mode."""
        size = self.problem.jobs.size
        return [(int(size[j]), self.y[j, mode]) for j in jobs if (j, mode) in self.y]

    def started(self, job: int) -> list[cp_model.IntVar]:
        """The start variables of a job, in any mode."""
        return [self.y[job, m] for m in (Mode.ALLOCATED, Mode.BORROWED) if (job, m) in self.y]

    def granted(self, leaves: Iterable[int]) -> Linear:
        """Allocated GPUs of some leaves after the round: kept, started or promoted."""
        return self._held(leaves, Mode.ALLOCATED)

    def borrowed(self, leaves: Iterable[int]) -> Linear:
        """Borrowed GPUs of some leaves after the round: kept (and not promoted) or started."""
        return self._held(leaves, Mode.BORROWED)

    def borrowed_range(self) -> tuple[int, int]:
        """Least and most GPUs that can be borrowed after the round, of all leaves together.

        A job is preempted or promoted, if either. Starts take no more than what is free and what preemptions free.
        """
        jobs, held, gone = self.problem.jobs, self.problem.held, self.partition.gone
        kept = sum(gpus for gpus, _ in self._by_leaf(Mode.BORROWED).values())
        kept -= sum(int(jobs.size[j]) for j in gone if jobs.mode[j] == Mode.BORROWED and jobs.leaf[j] >= 0)
        leaving = {j for j in {*self.e, *self.p} - gone if jobs.mode[j] == Mode.BORROWED and jobs.leaf[j] >= 0}
        freed = sum(g for g, j in zip(held.gpus.tolist(), held.job.tolist(), strict=True) if j in self.e)
        starts = sum(int(jobs.size[j]) for j, mode in self.y if mode is Mode.BORROWED)
        room = int(self.problem.nodes.free_gpus.sum()) + freed
        return kept - sum(int(jobs.size[j]) for j in leaving), kept + min(room, starts)

    def _held(self, leaves: Iterable[int], mode: Mode) -> Linear:
        terms, const = [], 0
        for leaf in leaves:
            kept, parts = self._by_leaf(mode).get(leaf, (0, []))
            const += kept
            terms += parts
        return _dot(terms) + const

    def _by_leaf(self, mode: Mode) -> dict[int, tuple[int, list[tuple[int, cp_model.IntVar]]]]:
        """Per leaf: GPUs its running jobs of a mode hold now, and what the round's variables change about that."""
        if mode not in self._leaf_terms:
            jobs = self.problem.jobs
            kept: dict[int, int] = defaultdict(int)
            terms: dict[int, list[tuple[int, cp_model.IntVar]]] = defaultdict(list)
            stays = (jobs.state == JobState.FIXED) | (jobs.state == JobState.EVICTABLE)
            for j in np.flatnonzero(stays & (jobs.mode == mode)).tolist():
                kept[int(jobs.leaf[j])] += int(jobs.size[j])
                if j in self.e:
                    terms[int(jobs.leaf[j])].append((-int(jobs.size[j]), self.e[j]))
            for j, how, _ in self.partition.region.starts if self.partition.region else ():
                if how is mode:
                    kept[int(jobs.leaf[j])] += int(jobs.size[j])
            sign = 1 if mode is Mode.ALLOCATED else -1
            for j, var in self.p.items():
                terms[int(jobs.leaf[j])].append((sign * int(jobs.size[j]), var))
            for (j, m), var in self.y.items():
                if m is mode:
                    terms[int(jobs.leaf[j])].append((int(jobs.size[j]), var))
            self._leaf_terms[mode] = {leaf: (kept[leaf], terms[leaf]) for leaf in {*kept, *terms}}
        return self._leaf_terms[mode]

    def short(self, leaf: int) -> cp_model.IntVar:
        """GPUs a leaf is short of its entitlement (at least; minimising makes it exact)."""
        if leaf not in self._short:
            entitled = int(self.problem.budgets.entitled[leaf])
            var = self._short[leaf] = self.model.new_int_var(0, entitled, f"short{leaf}")
            self.model.add(var + self.granted([leaf]) >= entitled)
        return self._short[leaf]

    def check_time(self) -> None:
        """To be asked now and then by whatever takes long to state.

        Raises
        ------
        OutOfTime
            When the round's time is over; the model is then of no use.
        """
        if self._out_of_time():
            raise OutOfTime

    def term(self, objective: Objective) -> tuple[Linear, ...]:
        """The expressions of a tier's parts, built once."""
        if objective.name not in self._terms:
            self._terms[objective.name] = objective.build(self)
        return self._terms[objective.name]

    def capacity(self, cell: Cell) -> Linear:
        """GPUs a node of the cell has for starts: free now plus what is preempted there."""
        held = self.problem.held
        return _dot([(int(held.gpus[r]), self.e[int(held.job[r])]) for r in cell.rows]) + cell.free

    def used(self, cell: int, kinds: Iterable[int] | None = None) -> Linear:
        """GPUs that starts take in a cell (of some kinds, or of all)."""
        chosen = self.kinds_on[cell] if kinds is None else [k for k in kinds if (k, cell) in self.a]
        return _dot([(self.layout.kinds[k].gpus, self.a[k, cell]) for k in chosen])

    def memo(self, key: object, make: Callable[[], T]) -> T:
        """Something that depends on the problem alone, made once for all models of a round."""
        if key not in self._memo:
            self._memo[key] = make()
        return cast(T, self._memo[key])

    def memo_of_model(self, key: object, make: Callable[[], T]) -> T:
        """Something that depends on the layout, made once for this model."""
        if key not in self._own:
            self._own[key] = make()
        return cast(T, self._own[key])

    def alone(self, kind: int, cell: int) -> cp_model.IntVar:
        """Whether an exclusive kind has replicas in a cell (may be 1 without any)."""
        if (kind, cell) not in self._alone:
            var = self._alone[kind, cell] = self.model.new_bool_var(f"alone{kind},{cell}")
            self.model.add(self.a[kind, cell] <= self.layout.slots[kind, cell] * var)
        return self._alone[kind, cell]

    def late_kinds(self, cell: int, at_us: int) -> list[int]:
        """Kinds on a cell whose allocated starts are still in the way at one of the partition's instants."""
        position = bisect_left(self.partition.instants, at_us)
        if self._latest(cell) <= position:
            return []
        return [k for k in self.kinds_on[cell] if self.layout.kinds[k].party.late > position]

    def _latest(self, cell: int) -> int:
        """How many of the partition's instants anything on a cell may be in the way at."""
        if cell not in self._late_on:
            kinds = self.layout.kinds
            self._late_on[cell] = max((kinds[k].party.late for k in self.kinds_on[cell]), default=0)
        return self._late_on[cell]

    def late_work(self, at_us: int) -> int:
        """How many kinds of starts, and promotions, are still in the way at one of the partition's instants."""
        position = bisect_left(self.partition.instants, at_us)
        lates = self.memo_of_model("lates", lambda: sorted(kind.party.late for kind in self.layout.kinds))
        late = len(lates) - bisect_right(lates, position)
        return late + sum(promotion_end_us(self.problem, self.partition, j) > at_us for j in self.p)

    def contested(self, at_us: int) -> BoolArray:
        """Nodes on which starts or promotions of this round may still be in the way at an instant; shape (N,)."""
        position = bisect_left(self.partition.instants, at_us)
        if position not in self._contested:
            mask = self._contested[position] = np.zeros(len(self.problem.nodes.names), dtype=np.bool_)
            for c, cell in enumerate(self.layout.cells):
                if self._latest(c) > position or self.late_promotions(c, at_us):
                    mask[list(cell.nodes)] = True
        return self._contested[position]

    def late_promotions(self, cell: int, at_us: int) -> list[tuple[int, cp_model.IntVar]]:
        """(GPUs on the cell, variable) of promotions that are still in the way at an instant."""
        held, jobs, out = self.problem.held, self.problem.jobs, []
        for row in self._held_on.get(self.layout.cells[cell].first, ()):
            job = int(held.job[row])
            if job in self.p and promotion_end_us(self.problem, self.partition, job) > at_us:
                gpus = 0
                for rep in jobs.placement[job]:
                    if rep.node == held.node[row]:
                        gpus += rep.gpus
                out.append((min(gpus, int(held.gpus[row])) * len(self.layout.cells[cell].nodes), self.p[job]))
        return out

    def kind(self, index: int) -> Kind:
        """Kind by index."""
        return self.layout.kinds[index]


def _rows_by_node(problem: Problem) -> dict[int, list[int]]:
    """Rows of ``Problem.held`` of every node."""
    out: dict[int, list[int]] = defaultdict(list)
    for row, node in enumerate(problem.held.node.tolist()):
        out[node].append(row)
    return dict(out)


def _dot(terms: Sequence[tuple[int, cp_model.IntVar]]) -> Linear:
    """Σ coefficient · variable."""
    if not terms:
        return 0
    return cp_model.LinearExpr.weighted_sum([v for _, v in terms], [c for c, _ in terms])


dot = _dot
