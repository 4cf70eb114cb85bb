"""Strict order by successive solves: each tier is minimised, its value fixed (with slack), then the next."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from threading import Event

import numpy as np
from ortools.sat.python.cp_model import CpModel

from cpalloc.models.base import OutOfTime
from cpalloc.models.objectives import OBJECTIVES
from cpalloc.models.objectives.delay import delay_of
from cpalloc.models.objectives.delay import instants as release_instants
from cpalloc.models.objectives.fragmentation import late_shapes, protection_ends
from cpalloc.models.objectives.idle import least_idle
from cpalloc.models.objectives.shortfall import shortfall_of
from cpalloc.models.objectives.starvation import starvation_of
from cpalloc.problem.problem import Action, Decision, Problem, Tier
from cpalloc.solver.fill import filled
from cpalloc.solver.goals import BY_GRANTS, FEW_NODES, Goal
from cpalloc.solver.incumbent import Incumbent
from cpalloc.solver.models import Models
from cpalloc.solver.outcome import Run
from cpalloc.solver.prune import prune
from cpalloc.solver.results import Clock, PartResult, Solution, TierResult
from cpalloc.solver.search import Search
from cpalloc.solver.settled import MOST_SETS, Known, settled

SHARE = {"starvation": 0.5, "shortfall": 0.6, "inversion": 0.5, "preemption": 0.65, "delay": 0.6, "fragmentation": 0.85}
"""Part of the time left that a tier may take: a settled early tier makes the later ones easier, not only better."""

OTHER_SHARE = 0.35
"""The same for the tiers after these; the last one may take what is left."""

MANY_NODES_SHARE = 0.85
"""That of preemption beyond few nodes: where it is not proved, little of what comes after it can be."""

OF_GRANTS = dict(zip(BY_GRANTS, (starvation_of, shortfall_of), strict=True))
"""What those tiers are, of entitlements and grants."""

LENDING = ("idle", "lend", "fragmentation", "locality")
"""Tiers that mind what is borrowed."""

LITTLE = 0.02
"""Part of the slack used that is not worth a solve of a big model to take back."""

MOST_UNSETTLED = 3_000
"""Variables of the coarse model up to which later tiers may look for other preemptions that are as good."""


class StrictOrder:
    """The strict-order loop of one round.

    Parameters
    ----------
    starts
        Known decisions, as full as the greedy's: nothing more can be lent beside what they start.
    """

    def __init__(self, problem: Problem, clock: Clock, starts: Sequence[Decision], cancel: Event | None = None) -> None:
        self.problem = problem
        self.best = Incumbent(problem)
        self.models = Models(problem, self.best, clock, cancel)
        self.search = Search(self.models, self.best)
        self.results: list[TierResult] = []
        self.lending = self.settled = self.assumed = False
        """Whether models mind what is borrowed; whether the preemptions are settled; whether that is an assumption."""
        self.known: Known | None = None
        """Evictable jobs that stay and that go in every decision within the limits, once that is known."""
        self.starts = [prune(problem, decision) for decision in starts]
        for pruned in self.starts:
            self.best.offer(pruned, upto=len(self.best.tiers), ties=True)
            self.best.seen.insert(0, pruned)  # the first one is never forgotten

    def solve(self) -> Solution:
        """Run all tiers and report."""
        tiers, models = [t for t in self.problem.policy.tiers if t.name in OBJECTIVES], self.models
        for index, tier in enumerate(tiers):
            if models.cancelled():
                self.results.append(self._as_it_is(tier))
                continue
            began = time.perf_counter()
            if any(t.slack for t in tiers[:index]) and tier.name in ("inversion", "preemption"):
                # What lost on a tier with slack may be within it, and better from here on: the greedy's, for one.
                self.best.offer_seen(index + 1)
            self._prepare(tier, index)
            parts: list[PartResult] = []
            for part in range(len(OBJECTIVES[tier.name].parts)):
                share = SHARE.get(tier.name, OTHER_SHARE) if index < len(tiers) - 1 else 1.0
                if part > 0 and index < len(tiers) - 1:
                    share = OTHER_SHARE
                elif tier.name == "preemption" and len(self.problem.nodes.names) > FEW_NODES:
                    share = MANY_NODES_SHARE
                budget = share * models.left()
                if parts and not parts[-1].proved(self.problem.options.gap):
                    budget = 0.0  # ties among what is not known to be best are not worth the time
                solve = self._solve_delay if tier.name == "delay" else self._solve_part
                if (tier.name != "delay" and self._decided(tier.name)) or (
                    tier.name == "preemption" and part > 0 and self._only_victims(parts, budget)
                ):
                    solve = self._read_part
                parts.append(solve(tier, index, part, budget))
            self.results.append(TierResult(tier.name, tuple(parts), time.perf_counter() - began))
            if not self.settled:
                # What this tier had to tell apart the next one need not: a coarse model tells first where it matters.
                coarse = replace(
                    models.partition,
                    leaves=frozenset(),
                    apart=frozenset(),
                    exact=frozenset(),
                    single=frozenset(),
                    split=False,
                    fine=False,
                )
                models.repartition(coarse)
            if tier.name == "preemption" and not models.cancelled():
                self.models.spare_the_dear(*(part.limit for part in self.results[-1].parts[:3]))
                self._settle_preemptions()
                models.repartition(replace(models.partition, needed=False))
                self._tighten(index, models.left() / 10)
        if not self.lending and not models.cancelled():
            # No tier of the policy minds what is borrowed: what is free is lent all the same, where nothing is lost.
            for decision in filled(self.problem, self.best.decision, models.cancelled):
                self.best.offer(decision, len(tiers), ties=True)
        self._credit()
        reason = "proved"
        if models.cancelled():
            reason = "cancelled"
        elif not all(p.proved(self.problem.options.gap) for t in self.results for p in t.parts):
            reason = "time_limit"
        return Solution(self.best.decision, tuple(self.results), reason, *models.size, models.build_s, models.solve_s)

    def _solve_part(self, tier: Tier, index: int, part: int, budget: float) -> PartResult:
        began, spec, floor = time.perf_counter(), OBJECTIVES[tier.name].parts[part], self._floor(tier)[part]
        slack = int(tier.slack * int(self.problem.budgets.entitled.sum()))
        bound, source = self.search.minimise(Goal(tier.name, index, part, slack), floor, budget)
        if self.assumed:
            bound, source = floor, "trivial"
        best = self.best.values[tier.name][part]
        # What is not proved to be best gives no right to more slack than the best there may be.
        limit = best + slack if bound is None or best > bound + slack else bound + slack
        self.best.limits.append((tier.name, part, limit))
        return PartResult(spec.name, spec.unit, best, bound, limit, source, time.perf_counter() - began)

    def _as_it_is(self, tier: Tier) -> TierResult:
        """A tier that nobody wants to be looked at any more."""
        spec, values = OBJECTIVES[tier.name], self.best.values[tier.name]
        rows = zip(spec.parts, values, spec.floor(self.problem), strict=True)
        parts = tuple(PartResult(p.name, p.unit, best, least, best, "trivial", 0.0) for p, best, least in rows)
        return TierResult(tier.name, parts, 0.0)

    def _read_part(self, tier: Tier, index: int, part: int, budget: float) -> PartResult:
        """What a part is worth where it is the same in every decision within the limits."""
        spec, best = OBJECTIVES[tier.name].parts[part], self.best.values[tier.name][part]
        self.best.limits.append((tier.name, part, best))
        return PartResult(spec.name, spec.unit, best, best, best, "settled", 0.0)

    def _decided(self, tier: str) -> bool:
        """Whether a tier but ``delay``, which minds promises, is worth the same in every decision within the limits."""
        return self._nothing_left() or (tier in ("idle", "lend") and self._everybody_starts())

    def _nothing_left(self) -> bool:
        """Whether nothing can happen any more but promises."""
        return not self.models.possible.starts and self._only_starts_left()

    def _only_starts_left(self) -> bool:
        """Whether preemptions and promotions are settled, and not by assumption."""
        return not (self.assumed or self.models.unsettled() or self.models.possible.promotes)

    def _everybody_starts(self) -> bool:
        """Whether everybody starts who can, in the one mode that is possible: only where is left open."""
        possible = self.models.possible
        if not self._only_starts_left() or len({j for j, _ in possible.starts}) < len(possible.starts):
            return False
        least = least_idle(self.problem, possible, self.models.partition.gone)[0]
        return any((name, part, limit) == ("idle", 0, least) for name, part, limit in self.best.limits)

    def _only_victims(self, parts: Sequence[PartResult], budget: float) -> bool:
        """Whether no decision within the limits preempts others than the incumbent; asked once, after the first part.

        Mostly so, as hardly two sets cost the same: then number, GPUs and age need not be minimised one by one.
        """
        if len(parts) == 1:
            exactly = parts[0].best == parts[0].bound
            self.known = self._victims([parts[0].bound], 1, budget) if exactly and self.models.whole() else None
        return self.known is not None

    def _victims(self, bounds: Sequence[int | None], most_sets: int, budget: float) -> Known | None:
        """The jobs that all of at most so many sets of victims within the limits spare, and those that all preempt."""
        models, left = self.models, self.models.meter(budget)
        chosen = frozenset(np.flatnonzero(self.best.decision.action == Action.PREEMPT).tolist()) & models.evictable()
        if not models.unsettled():
            return models.evictable() - chosen, chosen
        if not chosen:
            # Others may cost nothing as well, but none are as few as none, and that is minimised next.
            return models.evictable(), chosen
        try:
            ctx, _ = models.current("preemption", 0)
        except OutOfTime:
            models.forget()
            return None

        def solve(model: CpModel) -> Run:
            return models.any(model, max(0.01, left()))

        return settled(ctx, self.problem, chosen, solve, bounds, most_sets)

    def _solve_delay(self, tier: Tier, index: int, part: int, budget: float) -> PartResult:
        """Settle who is blocked, minimise their delay, and let what was promised bind the tiers that follow."""
        problem, best = self.problem, self.best
        best.settle_blocked(hurry=self.models.hurry())
        # Kept promises could all be renewed with nothing done (``stand``), and are then renewed in one way only.
        renewed = self._nothing_left() and set(best.blocked or ()) <= {hold.job for hold in problem.holds}
        if best.values[tier.name][part] > 0 and not renewed:
            known = tuple((j, delay_of(problem, best.decision, j)) for j in best.blocked or ())
            asked = replace(self.models.partition, blocked=known, instants=release_instants(problem), by_release=True)
            self.models.repartition(asked)
        result = (self._read_part if renewed else self._solve_part)(tier, index, part, budget)
        if not self.models.hurry():
            best.promise_best()
        best.keep_promises()
        value = best.values[tier.name][part]
        result = replace(result, best=value, limit=value + result.limit - result.best)
        best.limits[-1] = (tier.name, part, result.limit)
        served = frozenset(j for j in best.blocked or () if best.decision.action[j] == Action.START)
        ready = frozenset(best.blocked or ()) - served - frozenset(best.decision.blocked)
        promised = replace(
            self.models.partition,
            holds=problem.holds + best.fresh,
            served=served,
            ready=ready,
            blocked=(),
            instants=(problem.now_us,) if ready else (),
            by_release=False,
        )
        self.models.repartition(promised)
        return result

    def _floor(self, tier: Tier) -> tuple[int, ...]:
        """What the parts of a tier are at least, as far as that is known without a solver."""
        problem, possible = self.problem, self.models.possible
        if tier.name in OF_GRANTS and not self.assumed:
            return (OF_GRANTS[tier.name](problem.budgets.entitled, np.array(possible.most_granted)),)
        if tier.name == "idle" and not self.assumed:
            free, lent = least_idle(problem, possible, self.models.partition.gone)
            return max(0, free), lent if self.best.most("idle") == free else 0
        return OBJECTIVES[tier.name].floor(problem)

    def _prepare(self, tier: Tier, index: int) -> None:
        """Tell apart at once what a tier is known to need, where its value is not at its floor yet."""
        if self._decided(tier.name):
            self.lending |= tier.name in LENDING
            return
        if tier.name in LENDING and not self.lending:
            self.lending = True
            self.models.repartition(replace(self.models.partition, lend=True))
            if not any(self.best.decision.placement is start.placement for start in self.starts):
                for decision in filled(self.problem, self.best.decision, self.models.cancelled):
                    self.best.offer(decision, index + 1)
        values = self.best.values[tier.name]
        if tier.name == "preemption":
            self.models.spare_the_dear(values[0])
            before = {name for name, _, _ in self.best.limits}
            only_grants = "inversion" in before and before <= {*BY_GRANTS, "inversion"}
            needed = only_grants and not self.lending
            self.models.repartition(replace(self.models.partition, needed=needed))
        if tier.name == "fragmentation" and "idle" in {name for name, _, _ in self.best.limits}:
            self.models.repartition(replace(self.models.partition, free=self.best.most("idle")))
        if tier.name == "fragmentation" and values > self._floor(tier):
            late = late_shapes(self.problem, self.best.decision)
            if late:
                ends = protection_ends(self.problem, late)
                self.models.repartition(replace(self.models.partition, timed=late, instants=ends))
        elif tier.name == "locality" and values > self._floor(tier):
            preferring = {j for j in self.best.decision.placement if self.problem.jobs.preferred_level[j] >= 0}
            single = self.models.partition.single | self.models.affordable(preferring)
            self.models.repartition(replace(self.models.partition, single=single))

    def _settle_preemptions(self) -> None:
        """Where no other preemptions are within the limits, the tiers to come need not look for any."""
        models, evictable = self.models, self.models.evictable()
        chosen = frozenset(np.flatnonzero(self.best.decision.action == Action.PREEMPT).tolist()) & evictable
        if not models.unsettled():
            self.settled = True
            return
        if models.whole() and all(part.proved(self.problem.options.gap) for part in self.results[-1].parts):
            known = self.known
            if known is None:
                bounds = [part.bound for part in self.results[-1].parts]
                known = self._victims(bounds, MOST_SETS, OTHER_SHARE * models.left())
            if known is not None:
                self.settled = True
                models.settle(*known)
                return
            if models.context is not None and models.context.variables < MOST_UNSETTLED:
                return
        # Nobody knows whether other preemptions are as good. To look for them as well would cost the later tiers
        # their time; so these are kept, and bounds under that assumption are nobody's.
        self.settled = self.assumed = True
        models.settle(evictable - chosen, chosen)

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
                if budget > 0.01 and self._can_be_taken_back(tier.name, part, floor, budget):
                    self.search.improve(Goal(tier.name, index, part, prefer=(tier.name, part)), budget)
                value = self.best.values[tier.name][part]
                self.best.limits[position] = (tier.name, part, value)
                context = self.models.context
                if context is not None and OBJECTIVES[tier.name].limits_model:
                    context.model.add(context.term(OBJECTIVES[tier.name])[part] <= value)
                parts = list(self.results[at].parts)
                parts[part] = replace(parts[part], limit=value)
                self.results[at] = replace(self.results[at], parts=tuple(parts))

    def _can_be_taken_back(self, tier: str, part: int, best: int, budget: float) -> bool:
        """Whether more than a little of the slack used might be taken back; a relaxation tells where models are big."""
        value = self.best.values[tier][part]
        if value <= best or tier not in BY_GRANTS or len(self.problem.nodes.names) <= FEW_NODES:
            return value > best
        relaxation = self.models.pooled(tier, budget)
        return relaxation is None or value - relaxation[0] > LITTLE * (value - best)

    def _credit(self) -> None:
        """Credit a tier with what later tiers improved by the way."""
        for i, result in enumerate(self.results):
            values = self.best.values[result.name]
            parts = [
                replace(p, best=min(p.best, v), limit=min(p.limit, max(v, p.best)))
                for p, v in zip(result.parts, values, strict=True)
            ]
            if values < tuple(p.best for p in result.parts):
                self.results[i] = replace(result, parts=tuple(parts))
