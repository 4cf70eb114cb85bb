"""Strict order by successive solves: each tier is minimised, its value fixed (with slack), then the next.

The loop keeps one incumbent decision that is feasible, checked and evaluated in plain Python; a solution of a model
only ever becomes the incumbent by passing every check and beating it on exact values. So a wrong or coarse model can
cost quality, never correctness, and a bound is believed only while it agrees with the incumbent.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from threading import Event

import numpy as np

from cpalloc.metrics.reservations import reserve
from cpalloc.models.base import Violation
from cpalloc.models.constraints.holds import intrusions
from cpalloc.models.kinds import Partition
from cpalloc.models.objectives import OBJECTIVES
from cpalloc.models.objectives.delay import delay_of
from cpalloc.models.objectives.delay import instants as release_instants
from cpalloc.models.objectives.fragmentation import late_shapes, protection_ends
from cpalloc.models.objectives.inversion import inverted
from cpalloc.models.round import build
from cpalloc.models.variables import Linear, ModelContext
from cpalloc.problem.problem import Decision, Hold, JobState, Problem, Tier, status_quo
from cpalloc.solver.hints import hint_of
from cpalloc.solver.promising import best_order
from cpalloc.solver.prune import prune
from cpalloc.solver.realise import UnrealisableError, realise
from cpalloc.solver.repair import uninvert
from cpalloc.solver.results import Clock, PartResult, Solution, TierResult
from cpalloc.solver.run import Run, Status, minimise
from cpalloc.solver.values import Values, same, violations

log = logging.getLogger(__name__)

MAX_ROUNDS = 12
"""Refinements of the partition tried for one part of a tier."""


MOST_SEEN = 4
"""Former incumbents kept beside the greedy's decision."""

VARIABLES_PER_S = 8_000
"""Variables built in a second, as measured at 1,000 nodes (docs/benchmarks.md); only to stay within the time limit."""

SHARE = {"starvation": 0.5, "shortfall": 0.6, "inversion": 0.2, "preemption": 0.6}
"""Part of the time left that a tier may take: a settled early tier makes the later ones easier, not only better."""

OTHER_SHARE = 0.35
"""The same for the tiers after these; the last one may take what is left."""


class StrictOrder:
    """The strict-order loop of one round."""

    def __init__(self, problem: Problem, clock: Clock, starts: Sequence[Decision], cancel: Event | None = None) -> None:
        self.problem, self.clock, self.cancel = problem, clock, cancel
        self.partition = Partition(holds=problem.holds, hard=len(problem.holds))
        self.limits: list[tuple[str, int, int]] = []
        self.results: list[TierResult] = []
        self.ctx: ModelContext | None = None
        self.memo: dict[object, object] = {}
        self.fixed = 0
        self.size = (0, 0)
        self.build_s = self.solve_s = self.last_build_s = 0.0
        self.seen: list[Decision] = []
        self.kept: tuple[Hold, ...] = problem.holds
        self.fresh: tuple[Hold, ...] = ()
        self.blocked: tuple[int, ...] | None = None
        self.tier_names = [t.name for t in problem.policy.tiers if t.name in OBJECTIVES]
        self.incumbent = self._with_reservations(status_quo(problem))
        self.values = Values(problem, self.incumbent)
        for decision in starts:
            pruned = prune(problem, decision)
            self._offer(pruned, upto=len(self.tier_names), ties=True)
            self.seen.append(pruned)

    # -- incumbent ------------------------------------------------------------------------------------------------

    def _with_reservations(self, decision: Decision) -> Decision:
        """Attach promises: once the blocked jobs are settled, to these, in the domains already promised if any."""
        holds, blocked = reserve(self.problem, decision, kept=self.kept, jobs=self.blocked)
        return replace(decision, reservations=holds, blocked=blocked)

    def _offer(
        self, decision: Decision, upto: int, prefer: tuple[str, int] | None = None, *, ties: bool = False
    ) -> list[Violation]:
        """Make a decision the incumbent if it breaks no rule, keeps the limits and is better.

        Better on the first ``upto`` tiers in strict order, the last of them being worked on (with ``ties``: or no
        worse there), or on the part to ``prefer``. Returns what it breaks.
        """
        if same(decision, self.incumbent):
            return []
        decision = self._with_reservations(decision)
        broken = violations(self.problem, decision)
        broken += intrusions(self.problem, decision, self.fresh, bind_all=True)
        if broken:
            return broken
        values = Values(self.problem, decision)
        if any(values[name][part] > limit for name, part, limit in self.limits):
            return []
        names = self.tier_names[:upto]
        free = [n for n in names if not any(n == name for name, _, _ in self.limits)] or names[-1:]
        if prefer is not None:
            name, part = prefer
            if values[name][part] < self.values[name][part]:
                self.incumbent, self.values = decision, values
            return []
        first = next((n for n in free if values[n] != self.values[n]), None)
        if (first is None and ties) or (first is not None and values[first] < self.values[first]):
            self.seen = [*self.seen[:1], *self.seen[1:][-MOST_SEEN:], self.incumbent]
            self.incumbent, self.values = decision, values
        return []

    # -- the loop -------------------------------------------------------------------------------------------------

    def solve(self) -> Solution:
        """Run all tiers and report."""
        tiers = [t for t in self.problem.policy.tiers if t.name in OBJECTIVES]
        for index, tier in enumerate(tiers):
            began = time.perf_counter()
            if any(t.slack for t in tiers[:index]) and tier.name in ("inversion", "preemption"):
                # What lost on a tier with slack may be within it, and better from here on: the greedy's, for one.
                for decision in self.seen:
                    self._offer(decision, index + 1)
            self._prepare(tier)
            parts = []
            for part in range(len(OBJECTIVES[tier.name].parts)):
                share = SHARE.get(tier.name, OTHER_SHARE) if index < len(tiers) - 1 else 1.0
                budget = share * self.clock.left(self.problem.options.deterministic)
                solve = self._solve_delay if tier.name == "delay" else self._solve_part
                parts.append(solve(tier, index, part, budget))
            self.results.append(TierResult(tier.name, tuple(parts), time.perf_counter() - began))
            if tier.name == "preemption":
                self._tighten(index, self.clock.left(self.problem.options.deterministic) / 10)
                self._spare_the_dear(*(part.limit for part in self.results[-1].parts[:3]))
        self._settle()
        reason = "proved"
        if self.cancel is not None and self.cancel.is_set():
            reason = "cancelled"
        elif not all(p.proved(self.problem.options.gap) for t in self.results for p in t.parts):
            reason = "time_limit"
        return Solution(self.incumbent, tuple(self.results), reason, *self.size, self.build_s, self.solve_s)

    def _settle(self) -> None:
        """Credit a tier with what later tiers improved by the way."""
        for i, result in enumerate(self.results):
            values = self.values[result.name]
            parts = [
                replace(p, best=min(p.best, v), limit=min(p.limit, max(v, p.best)))
                for p, v in zip(result.parts, values, strict=True)
            ]
            if values < tuple(p.best for p in result.parts):
                self.results[i] = replace(result, parts=tuple(parts))

    def _solve_part(self, tier: Tier, index: int, part: int, budget: float) -> PartResult:
        objective = OBJECTIVES[tier.name]
        began, source = time.perf_counter(), "trivial"
        bound: int | None = objective.floor(self.problem)[part]
        left = self._meter(budget)
        for _ in range(MAX_ROUNDS):
            best = self.values[tier.name][part]
            if bound is not None and best <= bound:
                break
            if left() <= 0.01 + self.last_build_s or (self.cancel is not None and self.cancel.is_set()):
                break
            before = self.partition
            ctx, expression = self._model(tier.name, part)
            run = self._run(ctx, expression, max(0.01, left()))
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
            blamed = self._take(ctx, run, index + 1) if run.found else []
            best = self.values[tier.name][part]
            if (bound is not None and best <= bound) or not run.found:
                continue
            self._refine(tier, run, blamed)
            if self.partition == before:
                break
        best = self.values[tier.name][part]
        if bound is not None and bound > best:
            log.error(
                "tier %s part %d: value %d is below its bound %d; the bound is dropped", tier.name, part, best, bound
            )
            bound, source = None, "contradicted"
        slack = int(tier.slack * int(self.problem.budgets.entitled.sum()))
        self.limits.append((tier.name, part, best + slack))
        spec = objective.parts[part]
        return PartResult(spec.name, spec.unit, best, bound, best + slack, source, time.perf_counter() - began)

    def _tighten(self, index: int, budget: float) -> None:
        """Slack is there to spare lost work: once preemption is settled, take back what of it was not needed.

        Otherwise fragmentation, or chance, would eat into entitlements.
        """
        slacked = [t for t in self.problem.policy.tiers[: index + 1] if t.slack and t.name in OBJECTIVES]
        for tier in slacked:
            for part in range(len(OBJECTIVES[tier.name].parts)):
                position = next(i for i, limit in enumerate(self.limits) if limit[:2] == (tier.name, part))
                at = next(i for i, r in enumerate(self.results) if r.name == tier.name)
                floor = self.results[at].parts[part].best
                if self.values[tier.name][part] > floor and budget > 0.01:
                    ctx, expression = self._model(tier.name, part)
                    run = self._run(ctx, expression, budget)
                    if run.found:
                        self._take(ctx, run, index + 1, prefer=(tier.name, part))
                value = self.values[tier.name][part]
                self.limits[position] = (tier.name, part, value)
                if self.ctx is not None and OBJECTIVES[tier.name].limits_model:
                    self.ctx.model.add(self.ctx.term(OBJECTIVES[tier.name])[part] <= value)
                parts = list(self.results[at].parts)
                parts[part] = replace(parts[part], limit=value)
                self.results[at] = replace(self.results[at], parts=tuple(parts))

    def _prepare(self, tier: Tier) -> None:
        """Tell apart at once what a tier is known to need, where its value is not at its floor yet."""
        values, floor = self.values[tier.name], OBJECTIVES[tier.name].floor(self.problem)
        if tier.name == "preemption":
            self._spare_the_dear(values[0])
        if tier.name == "fragmentation" and values > floor:
            late = late_shapes(self.problem, self.incumbent)
            if late:
                self._repartition(replace(self.partition, timed=late, instants=protection_ends(self.problem)))
        elif tier.name == "locality" and values > floor:
            preferring = {j for j in self.incumbent.placement if self.problem.jobs.preferred_level[j] >= 0}
            self._repartition(replace(self.partition, single=self.partition.single | self._affordable(preferring)))

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

    def _model(self, name: str, part: int) -> tuple[ModelContext, Linear]:
        began, fresh = time.perf_counter(), False
        if self.ctx is None:
            fresh = True
            self.ctx, self.fixed = build(self.problem, self.partition, self.memo), 0
        for tier, p, limit in self.limits[self.fixed :]:
            if OBJECTIVES[tier].limits_model:
                self.ctx.model.add(self.ctx.term(OBJECTIVES[tier])[p] <= limit)
        self.fixed = len(self.limits)
        expression = self.ctx.term(OBJECTIVES[name])[part]
        proto = self.ctx.model.proto
        self.size = (max(self.size[0], len(proto.variables)), max(self.size[1], len(proto.constraints)))
        took = time.perf_counter() - began
        self.build_s += took
        if not self.problem.options.deterministic:
            self.last_build_s = took if fresh else max(took, self.last_build_s)
        return self.ctx, expression

    def _run(self, ctx: ModelContext, expression: Linear, limit_s: float) -> Run:
        run = minimise(
            ctx,
            expression,
            options=self.problem.options,
            limit_s=limit_s,
            hint=hint_of(ctx, self.incumbent),
            cancel=self.cancel,
        )
        if run.status is Status.INFEASIBLE:
            # The status quo is always feasible before limits, the incumbent after: check once more without presolve.
            run = minimise(ctx, expression, options=self.problem.options, limit_s=limit_s, presolve=False)
        self.solve_s += run.seconds
        self.clock.used_deterministic += run.solver.deterministic_time
        return run

    def _take(self, ctx: ModelContext, run: Run, upto: int, prefer: tuple[str, int] | None = None) -> list[Violation]:
        """Realise a solution and offer it; returns what it breaks."""
        try:
            decision = realise(ctx, run.value)
        except UnrealisableError as reason:
            log.info("not realisable: %s", reason)
            return [Violation("capacity", str(reason))]
        self.candidate = prune(self.problem, decision)
        broken = self._offer(self.candidate, upto, prefer)
        if "inversion" in self.tier_names[:upto]:
            mended = uninvert(self.problem, self.candidate, self._hurry)
            if mended is not self.candidate:
                self._offer(mended, upto, prefer)
        return broken

    def _refine(self, tier: Tier, run: Run, broken: Sequence[Violation]) -> None:
        """Tell apart what the last answer showed must be told apart; the model is rebuilt if anything changed."""
        jobs, partition = self.problem.jobs, self.partition
        index = {name: j for j, name in enumerate(jobs.ids)}
        leaves, watched, single = set(partition.leaves), set(partition.watched), set(partition.single)
        split = partition.split
        for violation in broken:
            if violation.constraint == "preemption":
                leaves |= {int(jobs.leaf[index[j]]) for j in violation.jobs}
            elif violation.constraint == "capacity":
                split = True
        if not broken and "inversion" in self.tier_names[: self.tier_names.index(tier.name) + 1]:
            watched |= set(inverted(self.problem, self.candidate)[:8])
        instants, timed = partition.instants, partition.timed
        if tier.name == "fragmentation" and not broken:
            known = dict(timed)
            for decision in (self.incumbent, self.candidate):
                for shape, seconds in late_shapes(self.problem, decision):
                    known[shape] = max(seconds, known.get(shape, 0))
            timed, instants = tuple(sorted(known.items())), protection_ends(self.problem)
        if tier.name == "locality" and not broken:
            single |= self._affordable({j for j in self.candidate.placement if jobs.preferred_level[j] >= 0} - single)
        fresh = replace(
            partition,
            leaves=frozenset(leaves),
            watched=frozenset(watched),
            single=frozenset(single),
            split=split,
            instants=instants,
            timed=timed,
        )
        pooled = self.ctx is not None and any(len(cell.nodes) > 1 for cell in self.ctx.layout.cells)
        if fresh == partition and pooled and run.status is Status.OPTIMAL and tier.name in ("delay", "fragmentation"):
            # What room there is at an instant is pooled over like nodes: tell the nodes apart.
            fresh = replace(fresh, split=True)
        self._repartition(fresh)

    # -- reservations ---------------------------------------------------------------------------------------------

    def _solve_delay(self, tier: Tier, index: int, part: int, budget: float) -> PartResult:
        """Settle who is blocked, minimise their delay, and let what was promised bind the tiers that follow."""
        problem = self.problem
        self.blocked = reserve(problem, self.incumbent, kept=self.kept)[1]
        self._promise_best()
        if self.values[tier.name][part] > 0:
            known = tuple((j, delay_of(problem, self.incumbent, j)) for j in self.blocked)
            self._repartition(
                replace(self.partition, blocked=known, instants=release_instants(problem), by_release=True)
            )
        result = self._solve_part(tier, index, part, budget)
        self._promise_best()
        best = min(result.best, self.values[tier.name][part])
        result = replace(result, best=best, limit=best + result.limit - result.best)
        self.limits[-1] = (tier.name, part, result.limit)
        self.kept = self.incumbent.reservations
        kept_before = {h.job for h in problem.holds}
        self.fresh = tuple(h for h in self.kept if h.job not in kept_before)
        self._repartition(
            replace(self.partition, holds=problem.holds + self.fresh, blocked=(), instants=(), by_release=False)
        )
        return result

    def _promise_best(self) -> None:
        """Give the incumbent's promises in the order that delays least; candidates get theirs in the same order."""
        self.blocked = best_order(self.problem, self.incumbent, self.kept, self.blocked or ())
        self.incumbent = self._with_reservations(self.incumbent)
        self.values = Values(self.problem, self.incumbent)

    def _repartition(self, partition: Partition) -> None:
        if partition != self.partition:
            self.partition, self.ctx = partition, None
