"""The models of a round: built under a partition with the limits reached so far, and solved within the time left."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from threading import Event
from types import MappingProxyType

import numpy as np
from ortools.sat.python.cp_model import CpModel

from cpalloc.models.in_order import InOrder
from cpalloc.models.in_turn import serve_in_turn
from cpalloc.models.objectives import OBJECTIVES
from cpalloc.models.objectives.inversion import forbid, watch
from cpalloc.models.partition import Partition
from cpalloc.models.pooled import Pooled
from cpalloc.models.possible import possible
from cpalloc.models.round import build
from cpalloc.models.variables import Linear, ModelContext
from cpalloc.problem.problem import Decision, JobState, Mode, Problem
from cpalloc.solver.highs import relaxed
from cpalloc.solver.hints import hint_of
from cpalloc.solver.incumbent import Incumbent
from cpalloc.solver.outcome import Run, Status
from cpalloc.solver.results import Clock
from cpalloc.solver.run import minimise

VARIABLES_PER_S = 8_000
"""Variables built in a second, as measured at 1,000 nodes (docs/benchmarks.md); only to stay within the time limit."""

POSSIBLE_S = 4e-5
"""Seconds a job that it may take to count what is possible (0.5 s at 10,000 nodes): with less it is not asked."""

LEAST_S = 0.01
"""With less time than this nothing is solved."""

MOST_COPIED = 5_000
"""Variables of models up to which a narrow one is a copy with more rows; beyond, a smaller one is stated instead."""

MOST_NODES = 3_000
"""Nodes up to which the whole model is solved; beyond, regions are all there is time for."""

MOST_NODES_RELAXED = 6_000
"""Nodes up to which its linear relaxation is solved for a bound (at 4,000 that takes 2 s, at 10,000 almost 20)."""


class Models:
    """Builds and solves.

    Attributes
    ----------
    possible
        What some decision within the limits may have.
    partition
        How finely the current model tells parties apart; :meth:`repartition` changes it.
    context
        The current model; None until it is asked for.
    size
        Most variables, and most constraints, of a model so far.
    last_build_s
        Seconds the last model took to build; 0 in deterministic mode.
    """

    def __init__(self, problem: Problem, best: Incumbent, clock: Clock, cancel: Event | None = None) -> None:
        self.problem, self.best, self.clock, self.cancel = problem, best, clock, cancel
        self.possible = possible(problem)
        self._inversion: int | None = None
        self.partition = Partition(holds=problem.holds, hard=len(problem.holds), lend=False)
        self.context: ModelContext | None = None
        self.settle(frozenset())
        self.size = (0, 0)
        self.build_s = self.solve_s = self.last_build_s = 0.0
        self._memo: dict[object, object] = {}
        self._limited = 0

    def forget(self) -> None:
        """Drop the current model, which may be stated in part only."""
        self.context = None

    def whole(self) -> bool:
        """Whether the round is small enough for models of the whole of it."""
        return len(self.problem.nodes.names) <= MOST_NODES

    def repartition(self, partition: Partition) -> None:
        """Change the partition; the current model gets the rows it lacks, or is built anew when it is asked for."""
        if partition == self.partition:
            return
        more = partition.watched - self.partition.watched
        alike = replace(partition, watched=partition.watched - more)
        if self.context is not None and self._lacks_rows_only(alike, more):
            began = time.perf_counter()
            self.partition = self.context.partition = partition
            watch(self.context, more)
            self._built(self.context, time.perf_counter() - began)
        else:
            self.partition, self.context = partition, None

    def _lacks_rows_only(self, partition: Partition, watched: frozenset[int] = frozenset()) -> bool:
        """Whether the current model is that of a partition but for those that are to be ``watched`` as well."""
        same = partition == self.partition and ("inversion", 0, 0) in self.best.limits
        return same and (not watched or not self.partition.only_needed())

    def settle(self, stays: frozenset[int], gone: frozenset[int] = frozenset()) -> None:
        """Take some evictable jobs for fixed and just these for preempted, and leave out what cannot happen then.

        Where time is nearly over nothing is solved any more, and what cannot happen is not worth counting.
        """
        inversion = next((most for tier, part, most in self.best.limits if (tier, part) == ("inversion", 0)), None)
        worth_it = self.problem.options.deterministic or self.left() > POSSIBLE_S * len(self.problem.jobs)
        if (self.possible.goes & stays or inversion != self._inversion) and worth_it and not self.hurry():
            self._inversion = inversion
            self.possible = possible(self.problem, self.possible.goes - stays, inversion)
        now = self.possible
        stays = (self.evictable() - now.goes | stays) - gone
        self.repartition(replace(self.partition, stays=stays, gone=gone, possible=now))

    def spare_the_dear(self, cost: int, number: int | None = None, gpus: int | None = None) -> None:
        """Take for fixed what alone would exceed what all preemptions together may cost, number and hold.

        Where nothing may be preempted any more, models shrink to the nodes that have something free.
        """
        jobs = self.problem.jobs
        dear = jobs.preempt_cost > cost
        if number is not None and gpus is not None:
            dear |= (jobs.size > gpus) | (number == 0)
        dear &= jobs.state == JobState.EVICTABLE
        self.settle(frozenset(np.flatnonzero(dear).tolist()))

    def unsettled(self) -> frozenset[int]:
        """Evictable jobs of which it is not settled whether they are preempted."""
        return self.evictable() - self.partition.stays - self.partition.gone

    def current(self, tier: str, part: int) -> tuple[ModelContext, Linear]:
        """The model under the partition, with every limit, and the expression of a part of a tier."""
        if self.context is None:
            self.context, self._limited = self.build(self.partition), len(self.best.limits)
        _limit(self.context, self.best.limits[self._limited :])
        self._limited = len(self.best.limits)
        began = time.perf_counter()
        expression = self.context.term(OBJECTIVES[tier])[part]
        self._built(self.context, time.perf_counter() - began)
        return self.context, expression

    def build(self, partition: Partition) -> ModelContext:
        """A model of its own, with every limit."""
        began = time.perf_counter()
        self.last_build_s = 0.0
        ctx = build(self.problem, partition, self._memo, self.hurry)
        _limit(ctx, self.best.limits)
        self._built(ctx, time.perf_counter() - began)
        return ctx

    def narrow(self, partition: Partition) -> ModelContext:
        """A model with more jobs that stay and that nobody may pass over: the current one with rows more if it can be.

        For tiers that the current model has been asked for; only its rows may be added to.
        """
        alike = replace(partition, stays=self.partition.stays, firm=self.partition.firm)
        ctx = self.context
        if ctx is None or ctx.variables > MOST_COPIED or not self._lacks_rows_only(alike):
            return self.build(partition)
        began = time.perf_counter()
        inside = ctx.copied()
        for j in sorted(partition.stays & ctx.e.keys()):
            inside.model.add(ctx.e[j] == 0)
        forbid(inside, partition.firm - self.partition.firm)
        self._built(inside, time.perf_counter() - began)
        return inside

    def pooled(
        self, tier: str, limit_s: float, stricter: Mapping[str, int] = MappingProxyType({})
    ) -> tuple[int, frozenset[int]] | None:
        """A bound on a tier's first part, of a relaxation without nodes: cheap at every size. And the jobs that could
        be preempted but stay in its solution. ``stricter``: limits instead of those reached."""
        model = self._pooled(tier, stricter)
        found = relaxed(model.model, math.inf if self.problem.options.deterministic else limit_s)
        return None if found is None else (found[0], model.stays(found[1]))

    def exactly_pooled(
        self, tier: str, limit_s: float, stricter: Mapping[str, int] = MappingProxyType({})
    ) -> tuple[Pooled, Run]:
        """The relaxation of :meth:`pooled`, and its solution in whole numbers, in which no budget loses what it can
        claim either."""
        pooled = self._pooled(tier, stricter)
        return pooled, self.solved_pooled(pooled, limit_s)

    def solved_pooled(self, pooled: Pooled, limit_s: float) -> Run:
        """A solution of a relaxation without nodes in whole numbers."""
        if limit_s <= LEAST_S:
            return Run(Status.UNKNOWN)
        run = minimise(
            pooled.model, pooled.objective, options=self.problem.options, limit_s=limit_s, cancel=self.cancel
        )
        return self._counted(run)

    def pooled_in_turn(
        self,
        tier: str,
        limit_s: float,
        stricter: Mapping[str, int],
        likely: Mapping[int, int],
        without: Collection[int],
        apart: Collection[int],
        *,
        by_pool: bool,
        finely: bool,
    ) -> tuple[Pooled, Run]:
        """The same with budgets that serve their queues in turn (:func:`serve_in_turn`), ``without`` some jobs: no
        bound, but mostly a solution that is as good and passes nobody over. ``likely``: who starts without turns, and
        where. ``apart``: budgets to which their own work is no room."""
        left = self.meter(limit_s)
        pooled = self._pooled(tier, stricter, without)
        about, jobs = defaultdict[tuple[int, int], int](int), self.problem.jobs
        for job, pool in likely.items():
            about[int(jobs.leaf[job]), pool] += int(jobs.size[job])
        serve_in_turn(pooled, about, by_pool=by_pool, finely=finely)
        pooled.apart(apart)
        return pooled, self.solved_pooled(pooled, left())

    def pooled_in_order(
        self, tier: str, stricter: Mapping[str, int] = MappingProxyType({}), without: Collection[int] = ()
    ) -> tuple[Pooled, InOrder]:
        """The same with the rows that hold where nobody is passed over."""
        pooled = self._pooled(tier, stricter, without)
        return pooled, InOrder(pooled)

    def _pooled(self, tier: str, stricter: Mapping[str, int], without: Collection[int] = ()) -> Pooled:
        began = time.perf_counter()
        limits = {name: most for name, part, most in self.best.limits if part == 0}
        can = replace(self.possible, starts=self.possible.starts - {(j, Mode.ALLOCATED) for j in without})
        model = Pooled(self.problem, tier, {**limits, **stricter}, can)
        self.build_s += time.perf_counter() - began
        return model

    def relaxed(self, tier: str, limit_s: float) -> int | None:
        """A bound on a tier's first part where the whole model is too big to be solved: of the coarsest one, with
        fractions and inversions; None where it is not, or takes too long.

        ``limit_s``: seconds, those it takes to build included.
        """
        options, nodes = self.problem.options, len(self.problem.nodes.names)
        if self.whole() or options.deterministic or nodes > MOST_NODES_RELAXED:
            return None
        left = self.meter(limit_s)
        ctx = build(self.problem, replace(self.partition, lend=False), self._memo, self.hurry)
        _limit(ctx, [limit for limit in self.best.limits if limit[0] != "inversion"])
        ctx.model.minimize(ctx.term(OBJECTIVES[tier])[0])
        found = relaxed(ctx.model, left()) if left() > 0 else None
        return None if found is None else found[0]

    def _built(self, ctx: ModelContext, seconds: float) -> None:
        self.size = (max(self.size[0], ctx.variables), max(self.size[1], len(ctx.model.proto.constraints)))
        self.build_s += seconds
        if not self.problem.options.deterministic:
            self.last_build_s += seconds

    def run(
        self,
        ctx: ModelContext,
        expression: Linear,
        limit_s: float,
        *,
        near: Decision | None = None,
        most: int | None = None,
        doubt: bool = True,
    ) -> Run:
        """Minimise over a context's model, beginning ``near`` a decision (by default the incumbent).

        ``most``: what the optimum is known not to exceed. ``doubt``: what is called infeasible is asked once more,
        without presolve.
        """
        options, model, cancel = self.problem.options, ctx.model, self.cancel
        hint = hint_of(ctx, self.best.decision if near is None else near)
        run = minimise(model, expression, options=options, limit_s=limit_s, hint=hint, most=most, cancel=cancel)
        if run.status is Status.INFEASIBLE and doubt:
            run = minimise(model, expression, options=options, limit_s=limit_s, presolve=False, cancel=cancel)
        return self._counted(run)

    def any(self, model: CpModel, limit_s: float) -> Run:
        """Look for any solution of a model, without presolve: where there is none, that need not be asked again."""
        options = self.problem.options
        return self._counted(minimise(model, 0, options=options, limit_s=limit_s, presolve=False, cancel=self.cancel))

    def _counted(self, run: Run) -> Run:
        self.solve_s += run.seconds
        self.clock.used_deterministic += run.deterministic
        return run

    # -- time ---------------------------------------------------------------------------------------------------------

    def meter(self, budget: float) -> Callable[[], float]:
        """What is left of a budget: seconds with everything counted, or units of the solver's deterministic time."""
        if self.problem.options.deterministic:
            used = self.clock.used_deterministic
            return lambda: budget - (self.clock.used_deterministic - used)
        began = time.perf_counter()
        return lambda: budget - (time.perf_counter() - began)

    def left(self) -> float:
        """What is left of the round's time, in the same unit."""
        return self.clock.left(self.problem.options.deterministic)

    def hurry(self) -> bool:
        """Whether the round has less than a twentieth of its time left, or none as nobody wants more."""
        late = not self.problem.options.deterministic and self.clock.left(False) < self.clock.limit_s / 20
        return late or self.cancelled()

    def cancelled(self) -> bool:
        """Whether the caller wants no more."""
        return self.cancel is not None and self.cancel.is_set()

    # -- jobs ---------------------------------------------------------------------------------------------------------

    def evictable(self) -> frozenset[int]:
        """Jobs that may be preempted."""
        return frozenset(np.flatnonzero(self.problem.jobs.state == JobState.EVICTABLE).tolist())

    def affordable(self, jobs: set[int]) -> set[int]:
        """As many of some jobs, best rank first, as can be told apart in the time left: a variable each and node."""
        if self.problem.options.deterministic:
            most = VARIABLES_PER_S
        else:
            most = int(VARIABLES_PER_S * self.clock.left(False) / 2)
        out: set[int] = set()
        for j in sorted(jobs, key=lambda j: int(self.problem.jobs.rank[j])):
            most -= int(self.problem.eligibility[self.problem.jobs.eligibility[j]].sum())
            if most < 0:
                break
            out.add(j)
        return out


def _limit(ctx: ModelContext, limits: Sequence[tuple[str, int, int]]) -> None:
    for tier, part, limit in limits:
        if OBJECTIVES[tier].limits_model:
            ctx.model.add(ctx.term(OBJECTIVES[tier])[part] <= limit)
