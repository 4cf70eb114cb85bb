"""Strict order by successive solves: each tier is minimised, its value fixed (with slack), then the next.

A tier's model is coarse at first: a relaxation whose optimum is a bound. Where its solution stands for no decision, or
for a worse one, the same preemptions are looked at more finely (a *narrow* model: small, because whatever else runs
stays); only where that does not reach the bound is the whole model refined. A bound is believed only while it agrees
with the incumbent.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from threading import Event

import numpy as np
from ortools.sat.python.cp_model import CpModel

from cpalloc.models.base import Violation
from cpalloc.models.kinds import Partition
from cpalloc.models.objectives import OBJECTIVES
from cpalloc.models.objectives.delay import delay_of
from cpalloc.models.objectives.delay import instants as release_instants
from cpalloc.models.objectives.fragmentation import late_shapes, protection_ends
from cpalloc.models.objectives.inversion import inverted
from cpalloc.models.round import build
from cpalloc.models.variables import Linear, ModelContext
from cpalloc.problem.problem import Action, Decision, JobState, Problem, Tier
from cpalloc.solver.exchange import give_to_others
from cpalloc.solver.fill import filled
from cpalloc.solver.greedy import in_order
from cpalloc.solver.hints import hint_of
from cpalloc.solver.incumbent import Incumbent
from cpalloc.solver.prune import prune
from cpalloc.solver.realise import UnrealisableError, realise
from cpalloc.solver.refine import tell_apart
from cpalloc.solver.repair import uninvert
from cpalloc.solver.results import Clock, PartResult, Solution, TierResult
from cpalloc.solver.run import Run, Status, minimise
from cpalloc.solver.settled import settled

log = logging.getLogger(__name__)

MAX_ROUNDS = 20
"""Refinements of the partition tried for one part of a tier."""

NARROW_ROUNDS = 8
"""The same for one set of preemptions."""

WITHIN_SLACK = 0.15
"""Part of a tier's time for coming nearer to its bound than the slack that later tiers have anyway."""

MOST_EXCHANGED = 8
"""Most jobs passed over that are put right one by one."""

NARROW_SHARE = 0.5
"""Part of what a tier has left for looking more closely at what a solution stands for."""

VARIABLES_PER_S = 8_000
"""Variables built in a second, as measured at 1,000 nodes (docs/benchmarks.md); only to stay within the time limit."""

SHARE = {"starvation": 0.5, "shortfall": 0.6, "inversion": 0.35, "preemption": 0.6}
"""Part of the time left that a tier may take: a settled early tier makes the later ones easier, not only better."""

OTHER_SHARE = 0.35
"""The same for the tiers after these; the last one may take what is left."""

LENDING = ("idle", "lend", "fragmentation", "locality")
"""Tiers that mind what is borrowed."""


@dataclass(frozen=True, slots=True)
class _Goal:
    """What is being minimised: a part of a tier, the tier's place in the order, and what must be kept meanwhile."""

    tier: str
    index: int
    part: int
    prefer: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a solution stands for: the decision (None: none could be realised), what that breaks, whom it preempts."""

    candidate: Decision | None
    broken: Sequence[Violation]
    victims: frozenset[int]


class StrictOrder:
    """The strict-order loop of one round."""

    def __init__(self, problem: Problem, clock: Clock, starts: Sequence[Decision], cancel: Event | None = None) -> None:
        self.problem, self.clock, self.cancel = problem, clock, cancel
        self.best = Incumbent(problem)
        self.partition = Partition(holds=problem.holds, hard=len(problem.holds), lend=False)
        self.results: list[TierResult] = []
        self.ctx: ModelContext | None = None
        self.memo: dict[object, object] = {}
        self.fixed = 0
        self.size = (0, 0)
        self.lending = False
        self.assumed = False
        """Whether the preemptions are taken for settled although they may not be."""
        self.build_s = self.solve_s = self.last_build_s = 0.0
        for decision in starts:
            pruned = prune(problem, decision)
            self.best.offer(pruned, upto=len(self.best.tiers), ties=True)
            self.best.seen.append(pruned)

    def solve(self) -> Solution:
        """Run all tiers and report."""
        tiers = [t for t in self.problem.policy.tiers if t.name in OBJECTIVES]
        for index, tier in enumerate(tiers):
            began = time.perf_counter()
            if any(t.slack for t in tiers[:index]) and tier.name in ("inversion", "preemption"):
                # What lost on a tier with slack may be within it, and better from here on: the greedy's, for one.
                for decision in self.best.seen:
                    self.best.offer(decision, index + 1)
            self._prepare(tier, index)
            parts: list[PartResult] = []
            for part in range(len(OBJECTIVES[tier.name].parts)):
                share = SHARE.get(tier.name, OTHER_SHARE) if index < len(tiers) - 1 else 1.0
                budget = share * self.clock.left(self.problem.options.deterministic)
                if parts and not parts[-1].proved(self.problem.options.gap):
                    budget = 0.0  # ties among what is not known to be best are not worth the time
                solve = self._solve_delay if tier.name == "delay" else self._solve_part
                parts.append(solve(tier, index, part, budget))
            self.results.append(TierResult(tier.name, tuple(parts), time.perf_counter() - began))
            if not self.partition.gone:
                # What this tier had to tell apart the next one need not: a coarse model tells first where it matters.
                self._repartition(
                    replace(self.partition, leaves=frozenset(), exact=frozenset(), single=frozenset(), split=False)
                )
            if tier.name == "preemption":
                self._spare_the_dear(*(part.limit for part in self.results[-1].parts[:3]))
                self._settle_preemptions()
                self._tighten(index, self.clock.left(self.problem.options.deterministic) / 10)
        self._settle()
        reason = "proved"
        if self.cancel is not None and self.cancel.is_set():
            reason = "cancelled"
        elif not all(p.proved(self.problem.options.gap) for t in self.results for p in t.parts):
            reason = "time_limit"
        return Solution(self.best.decision, tuple(self.results), reason, *self.size, self.build_s, self.solve_s)

    def _settle(self) -> None:
        """Credit a tier with what later tiers improved by the way."""
        for i, result in enumerate(self.results):
            values = self.best.values[result.name]
            parts = [
                replace(p, best=min(p.best, v), limit=min(p.limit, max(v, p.best)))
                for p, v in zip(result.parts, values, strict=True)
            ]
            if values < tuple(p.best for p in result.parts):
                self.results[i] = replace(result, parts=tuple(parts))

    # -- a part of a tier -----------------------------------------------------------------------------------------

    def _solve_part(self, tier: Tier, index: int, part: int, budget: float) -> PartResult:
        objective, goal = OBJECTIVES[tier.name], _Goal(tier.name, index, part)
        began, source = time.perf_counter(), "trivial"
        bound: int | None = objective.floor(self.problem)[part]
        slack = int(tier.slack * int(self.problem.budgets.entitled.sum()))
        left, while_within = self._meter(budget), self._meter(WITHIN_SLACK * budget)
        for _ in range(MAX_ROUNDS):
            best = self.best.values[tier.name][part]
            if bound is not None and best <= bound:
                break
            if slack and bound is not None and best <= bound + slack:
                left = while_within
            if left() <= 0.01 + self.last_build_s or self._cancelled():
                break
            before = self.partition
            ctx, expression = self._model(tier.name, part)
            # What a solution of the whole model stands for must still be found out.
            run = self._run(ctx, expression, max(0.01, 0.6 * left()))
            if run.status is Status.INFEASIBLE:
                log.warning("CP-SAT calls tier %s infeasible although a feasible decision is known", tier.name)
                break
            if run.bound is not None and (bound is None or run.bound > bound):
                if run.bound > best:
                    # A bound above a known feasible value is a false certificate: keep nothing of it.
                    message = "bound %s of tier %s part %d contradicts the known value %d"
                    log.error(message, run.bound, tier.name, part, best)
                    break
                bound, source = run.bound, "cp_sat"
            if not run.found:
                continue
            candidate, broken = self._take(ctx, run, goal)
            if slack and bound is not None and self.best.values[tier.name][part] <= bound + slack:
                left = while_within
            if not self._reached(goal, bound):
                narrow_s = self._meter(NARROW_SHARE * left())
                self._look_closer(goal, bound, narrow_s, _Seen(candidate, broken, _victims(ctx, run)))
            if self._reached(goal, bound):
                continue
            if left() < 2 * run.seconds:
                break  # a finer model takes longer than this one did
            self._refine(goal, run, candidate, broken)
            if self.partition == before:
                break
        best = self.best.values[tier.name][part]
        if bound is not None and bound > best:
            log.error(
                "tier %s part %d: value %d is below its bound %d; the bound is dropped", tier.name, part, best, bound
            )
            bound, source = None, "contradicted"
        if self.assumed:
            bound, source = objective.floor(self.problem)[part], "trivial"
        # What is not proved to be best gives no right to more slack than the best there may be.
        limit = best + slack if bound is None or best > bound + slack else bound + slack
        self.best.limits.append((tier.name, part, limit))
        spec = objective.parts[part]
        return PartResult(spec.name, spec.unit, best, bound, limit, source, time.perf_counter() - began)

    def _reached(self, goal: _Goal, bound: int | None) -> bool:
        return bound is not None and self.best.values[goal.tier][goal.part] <= bound

    def _look_closer(self, goal: _Goal, bound: int | None, left: Callable[[], float], seen: _Seen) -> None:
        """Look for decisions with the preemptions of a solution, or fewer, telling apart whatever shows to matter.

        The models are small, and what they tell apart the whole model need not; their bounds say nothing about it.
        What inverts a job is forbidden whether the job would fit or not: that is often no loss, and costs nothing.
        """
        base = replace(self.partition, stays=self._evictable() - seen.victims)
        narrow, last, near = (
            self._told_apart(base, goal, seen.candidate, seen.broken, firmly=True),
            base,
            seen.candidate,
        )
        for _ in range(NARROW_ROUNDS):
            if narrow == last or left() <= 0.01 or self._cancelled():
                break
            inside = self._build(narrow)
            expression = inside.term(OBJECTIVES[goal.tier])[goal.part]
            if bound is not None and not isinstance(expression, int):
                inside.model.add(expression >= bound)
            run = self._run(inside, expression, max(0.01, left()), near=near, doubt=False)
            if not run.found:
                break
            near, broken = self._take(inside, run, goal)
            if self._reached(goal, bound):
                break
            narrow, last = self._told_apart(narrow, goal, near, broken, firmly=True), narrow

    def _refine(self, goal: _Goal, run: Run, candidate: Decision | None, broken: Sequence[Violation]) -> None:
        """Tell apart what the last answer showed must be told apart; the model is rebuilt if anything changed."""
        fresh = self._told_apart(self.partition, goal, candidate, broken)
        pooled = self.ctx is not None and any(len(cell.nodes) > 1 for cell in self.ctx.layout.cells)
        news = fresh != self.partition or not pooled or run.status is not Status.OPTIMAL
        if not news and goal.tier in ("delay", "fragmentation"):
            # What room there is at an instant is pooled over like nodes: tell the nodes apart.
            fresh = replace(fresh, split=True)
        self._repartition(fresh)

    def _told_apart(
        self,
        partition: Partition,
        goal: _Goal,
        candidate: Decision | None,
        broken: Sequence[Violation],
        *,
        firmly: bool = False,
    ) -> Partition:
        if candidate is None:
            return replace(partition, split=True)
        return tell_apart(
            self.problem,
            partition,
            goal.tier,
            candidate,
            broken,
            incumbent=self.best.decision,
            affordable=self._affordable,
            firmly=firmly,
        )

    def _tighten(self, index: int, budget: float) -> None:
        """Slack is there to spare lost work: once preemption is settled, take back what of it was not needed.

        Otherwise fragmentation, or chance, would eat into entitlements.
        """
        slacked = [t for t in self.problem.policy.tiers[: index + 1] if t.slack and t.name in OBJECTIVES]
        for tier in slacked:
            for part in range(len(OBJECTIVES[tier.name].parts)):
                position = next(i for i, limit in enumerate(self.best.limits) if limit[:2] == (tier.name, part))
                at = next(i for i, r in enumerate(self.results) if r.name == tier.name)
                floor = self.results[at].parts[part].best
                left, goal = self._meter(budget), _Goal(tier.name, index, part, prefer=(tier.name, part))
                if self.best.values[tier.name][part] > floor and budget > 0.01:
                    ctx, expression = self._model(tier.name, part)
                    run = self._run(ctx, expression, budget)
                    if run.found:
                        candidate, broken = self._take(ctx, run, goal)
                        if not self._reached(goal, run.bound):
                            seen = _Seen(candidate, broken, _victims(ctx, run))
                            self._look_closer(goal, run.bound, left, seen)
                value = self.best.values[tier.name][part]
                self.best.limits[position] = (tier.name, part, value)
                if self.ctx is not None and OBJECTIVES[tier.name].limits_model:
                    self.ctx.model.add(self.ctx.term(OBJECTIVES[tier.name])[part] <= value)
                parts = list(self.results[at].parts)
                parts[part] = replace(parts[part], limit=value)
                self.results[at] = replace(self.results[at], parts=tuple(parts))

    # -- before and after a tier ----------------------------------------------------------------------------------

    def _prepare(self, tier: Tier, index: int) -> None:
        """Tell apart at once what a tier is known to need, where its value is not at its floor yet."""
        values, floor = self.best.values[tier.name], OBJECTIVES[tier.name].floor(self.problem)
        if tier.name in LENDING and not self.lending:
            self.lending = True
            self._repartition(replace(self.partition, lend=True))
            for decision in filled(self.problem, self.best.decision):
                self.best.offer(decision, index + 1)
            values = self.best.values[tier.name]
        if tier.name == "preemption":
            self._spare_the_dear(values[0])
        if tier.name == "fragmentation" and values > floor:
            late = late_shapes(self.problem, self.best.decision)
            if late:
                self._repartition(replace(self.partition, timed=late, instants=protection_ends(self.problem)))
        elif tier.name == "locality" and values > floor:
            preferring = {j for j in self.best.decision.placement if self.problem.jobs.preferred_level[j] >= 0}
            self._repartition(replace(self.partition, single=self.partition.single | self._affordable(preferring)))

    def _evictable(self) -> frozenset[int]:
        return frozenset(np.flatnonzero(self.problem.jobs.state == JobState.EVICTABLE).tolist())

    def _spare_the_dear(self, cost: int, number: int | None = None, gpus: int | None = None) -> None:
        """Take for fixed what alone would exceed what all preemptions together may cost, number and hold.

        Where nothing may be preempted any more, models shrink to the nodes that have something free.
        """
        jobs = self.problem.jobs
        dear = jobs.preempt_cost > cost
        if number is not None and gpus is not None:
            dear |= (jobs.size > gpus) | (number == 0)
        dear &= jobs.state == JobState.EVICTABLE
        self._repartition(replace(self.partition, stays=frozenset(np.flatnonzero(dear).tolist())))

    def _settle_preemptions(self) -> None:
        """Where no other preemptions are within the limits, the tiers to come need not look for any."""
        chosen = frozenset(np.flatnonzero(self.best.decision.action == Action.PREEMPT).tolist()) & self._evictable()
        if all(part.proved(self.problem.options.gap) for part in self.results[-1].parts):
            ctx, _ = self._model("preemption", 0)
            left = self._meter(OTHER_SHARE * self.clock.left(self.problem.options.deterministic))
            known = settled(ctx, self.problem, chosen, lambda model: self._run(ctx, 0, max(0.01, left()), model=model))
            if known is not None:
                stays, gone = known
                self._repartition(replace(self.partition, stays=stays, gone=gone))
                return
        # Nobody knows whether other preemptions are as good. To look for them as well would cost the later tiers
        # their time; so these are kept, and bounds under that assumption are nobody's.
        self.assumed = True
        self._repartition(replace(self.partition, stays=self._evictable() - chosen, gone=chosen))

    def _affordable(self, jobs: set[int]) -> set[int]:
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

    def _solve_delay(self, tier: Tier, index: int, part: int, budget: float) -> PartResult:
        """Settle who is blocked, minimise their delay, and let what was promised bind the tiers that follow."""
        problem = self.problem
        self.best.settle_blocked()
        if self.best.values[tier.name][part] > 0:
            known = tuple((j, delay_of(problem, self.best.decision, j)) for j in self.best.blocked or ())
            self._repartition(
                replace(self.partition, blocked=known, instants=release_instants(problem), by_release=True)
            )
        result = self._solve_part(tier, index, part, budget)
        self.best.promise_best()
        best = min(result.best, self.best.values[tier.name][part])
        result = replace(result, best=best, limit=best + result.limit - result.best)
        self.best.limits[-1] = (tier.name, part, result.limit)
        self.best.keep_promises()
        self._repartition(
            replace(self.partition, holds=problem.holds + self.best.fresh, blocked=(), instants=(), by_release=False)
        )
        return result

    # -- models and time ------------------------------------------------------------------------------------------

    def _model(self, name: str, part: int) -> tuple[ModelContext, Linear]:
        """The model under the partition, with every limit, and the expression of a part of a tier."""
        if self.ctx is None:
            self.ctx, self.fixed = self._build(self.partition), len(self.best.limits)
        self._limit(self.ctx, self.best.limits[self.fixed :])
        self.fixed = len(self.best.limits)
        began = time.perf_counter()
        expression = self.ctx.term(OBJECTIVES[name])[part]
        self._built(self.ctx, time.perf_counter() - began)
        return self.ctx, expression

    def _build(self, partition: Partition) -> ModelContext:
        began = time.perf_counter()
        self.last_build_s = 0.0
        ctx = build(self.problem, partition, self.memo)
        self._limit(ctx, self.best.limits)
        self._built(ctx, time.perf_counter() - began)
        return ctx

    @staticmethod
    def _limit(ctx: ModelContext, limits: Sequence[tuple[str, int, int]]) -> None:
        for tier, part, limit in limits:
            if OBJECTIVES[tier].limits_model:
                ctx.model.add(ctx.term(OBJECTIVES[tier])[part] <= limit)

    def _built(self, ctx: ModelContext, seconds: float) -> None:
        proto = ctx.model.proto
        self.size = (max(self.size[0], len(proto.variables)), max(self.size[1], len(proto.constraints)))
        self.build_s += seconds
        if not self.problem.options.deterministic:
            self.last_build_s += seconds

    def _run(
        self,
        ctx: ModelContext,
        expression: Linear,
        limit_s: float,
        *,
        model: CpModel | None = None,
        near: Decision | None = None,
        doubt: bool = True,
        gap: float = 0.0,
    ) -> Run:
        """Minimise over a context's model, or a clone of it, beginning ``near`` a decision (by default the incumbent).

        ``doubt``: what is called infeasible is asked once more, without presolve.
        """
        options, model = self.problem.options, ctx.model if model is None else model
        hint = hint_of(ctx, self.best.decision if near is None else near)
        run = minimise(model, expression, options=options, limit_s=limit_s, hint=hint, gap=gap, cancel=self.cancel)
        if run.status is Status.INFEASIBLE and doubt:
            run = minimise(model, expression, options=options, limit_s=limit_s, presolve=False)
        self.solve_s += run.seconds
        self.clock.used_deterministic += run.solver.deterministic_time
        return run

    def _take(self, ctx: ModelContext, run: Run, goal: _Goal) -> tuple[Decision | None, list[Violation]]:
        """Realise a solution and offer it; returns the decision (None: not realisable) and what it breaks."""
        try:
            decision = realise(ctx, run.value)
        except UnrealisableError as reason:
            log.info("not realisable: %s", reason)
            return None, [Violation("capacity", str(reason))]
        candidate, upto = give_to_others(self.problem, prune(self.problem, decision)), goal.index + 1
        broken = self.best.offer(candidate, upto, goal.prefer)
        if "inversion" in self.best.tiers[:upto] and (passed := inverted(self.problem, candidate)):
            if len(passed) <= MOST_EXCHANGED:
                self.best.offer(uninvert(self.problem, candidate, self._hurry), upto, goal.prefer)
            if "preemption" in self.best.tiers[goal.index :]:
                most = {t: self._most(t) for t in ("starvation", "shortfall")}
                ordered = in_order(self.problem, candidate, passed, most)
                self.best.offer(give_to_others(self.problem, ordered), upto, goal.prefer)
        return candidate, broken

    def _most(self, tier: str) -> int:
        """What the first part of a tier may be at most, as it was settled; 0 where it was not."""
        return next((limit for name, part, limit in self.best.limits if (name, part) == (tier, 0)), 0)

    def _meter(self, budget: float) -> Callable[[], float]:
        """What is left of a budget: seconds with everything counted, or units of the solver's deterministic time."""
        if self.problem.options.deterministic:
            used = self.clock.used_deterministic
            return lambda: budget - (self.clock.used_deterministic - used)
        began = time.perf_counter()
        return lambda: budget - (time.perf_counter() - began)

    def _hurry(self) -> bool:
        """Whether the round has less than a twentieth of its time left."""
        deterministic = self.problem.options.deterministic
        return not deterministic and self.clock.left(False) < self.clock.limit_s / 20

    def _cancelled(self) -> bool:
        return self.cancel is not None and self.cancel.is_set()

    def _repartition(self, partition: Partition) -> None:
        if partition != self.partition:
            self.partition, self.ctx = partition, None


def _victims(ctx: ModelContext, run: Run) -> frozenset[int]:
    return frozenset(j for j, var in ctx.e.items() if run.value(var))
