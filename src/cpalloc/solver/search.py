"""A part of a tier: minimised over coarse models that prove, and narrow ones that decide.

A tier's model is coarse at first: a relaxation whose optimum is a bound. Where its solution stands for no decision, or
for a worse one, the same preemptions are looked at more finely (a *narrow* model: small, because whatever else runs
stays); only where that does not reach the bound is the whole model refined. A bound is believed only while it agrees
with the incumbent.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from cpalloc.models.base import OutOfTime, Violation
from cpalloc.models.objectives import OBJECTIVES
from cpalloc.models.objectives.inversion import inverted, weight
from cpalloc.models.partition import Partition
from cpalloc.models.variables import ModelContext
from cpalloc.problem.problem import Decision
from cpalloc.solver.exchange import give_to_others
from cpalloc.solver.goals import FEW_NODES, PLACED, REGIONAL, RELAXED, TIMED, Goal
from cpalloc.solver.greedy import in_order
from cpalloc.solver.hints import start_the_same
from cpalloc.solver.incumbent import Incumbent
from cpalloc.solver.models import Models
from cpalloc.solver.outcome import Run, Status
from cpalloc.solver.prune import prune
from cpalloc.solver.realise import UnrealisableError, realise
from cpalloc.solver.refine import tell_apart
from cpalloc.solver.regions import partition_of, regions
from cpalloc.solver.relaxations import Relaxations
from cpalloc.solver.repair import uninvert
from cpalloc.solver.values import violations

log = logging.getLogger(__name__)

MAX_ROUNDS = 20
"""Refinements of the partition tried for one part of a tier."""

NARROW_ROUNDS = 8
"""The same for one set of preemptions."""

WHOLE_SHARE = 0.75
"""Part of what is left that a solve of the whole model may take: what its solution stands for must still be found."""

QUICK_SHARE = 0.15
"""The same for a big model at first: before regions are tried."""

REGIONS_FIRST_SHARE = 0.6
"""Part of what is left then for regions."""

NARROW_SHARE = 0.5
"""Part of what is left then for looking more closely at it."""

WITHIN_SLACK = 0.3
"""Part of a tier's time for coming nearer to its bound than the slack that later tiers have anyway."""

REGION_S = 2.0
"""Seconds that a region's model may take."""

REGION_ROUNDS = 3
"""Times that a region's model may be refined."""

MOST_VAIN = 2
"""Times in a row that looking more closely may gain nothing where that is as much work as the whole model."""

MOST_EXCHANGED = 8
"""Most jobs passed over that are put right one by one."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a solution stands for: the decision (None: none could be realised), what that breaks, whom it preempts."""

    candidate: Decision | None
    broken: Sequence[Violation]
    victims: frozenset[int]


class Search:
    """Looks for better decisions, and for proof that there are none."""

    def __init__(self, models: Models, best: Incumbent) -> None:
        self.models, self.best, self.problem = models, best, models.problem
        self._relaxations = Relaxations(models, best, self._put_in_order)
        self._narrow: list[tuple[Partition, int]] = []
        """Narrow models solved for the part worked on, and their optima."""

    def minimise(self, goal: Goal, bound: int | None, budget: float) -> tuple[int | None, str]:
        """Improve the incumbent on a part of a tier.

        Parameters
        ----------
        bound
            What is known of it without a solver.
        budget
            Seconds, or units of deterministic time.

        Returns
        -------
        bound, source
            The best bound, and where it comes from.
        """
        models, source, vain = self.models, "trivial", 0
        if models.cancelled():
            return bound, source
        self._narrow.clear()
        left, within = models.meter(budget), models.meter(WITHIN_SLACK * budget)
        try:
            if goal.tier in RELAXED and goal.part == 0 and not self._reached(goal, bound):
                bound, source = self._relaxations.bound(goal, bound, left)
                if goal.tier == "preemption" and not self._reached(goal, bound):
                    models.spare_the_dear(self._value(goal))
                    for passing in self._relaxations.passing:
                        models.repartition(self._told_apart(models.partition, goal, _Seen(passing, [], frozenset())))
            if goal.tier == "inversion" and not self._reached(goal, bound):
                self._put_in_order(self.best.decision, goal)
                if not self._reached(goal, bound):
                    self._relaxations.order(goal, left)
            for attempt in range(MAX_ROUNDS if models.whole() else 0):
                if self._reached(goal, bound):
                    break
                if goal.slack and self._reached(goal, None if bound is None else bound + goal.slack):
                    left = within
                if left() <= 0.01 + models.last_build_s or models.cancelled():
                    break
                before, best = models.partition, self._value(goal)
                ctx, expression = models.current(goal.tier, goal.part)
                if left() <= 0.01:
                    break  # building it took all the time there was
                quickly = attempt == 0 and self._big(goal)
                share = QUICK_SHARE if quickly else WHOLE_SHARE
                run = models.run(ctx, expression, max(0.01, share * left()), most=best)
                if run.status is Status.INFEASIBLE:
                    log.warning("CP-SAT calls tier %s infeasible although a feasible decision is known", goal.tier)
                    break
                if run.bound is not None and (bound is None or run.bound > bound):
                    if run.bound > best:
                        # A bound above a known feasible value is a false certificate: keep nothing of it.
                        message = "bound %s of tier %s part %d contradicts the known value %d"
                        log.error(message, run.bound, goal.tier, goal.part, best)
                        break
                    bound, source, vain = run.bound, run.source, 0
                if quickly and run.status is not Status.OPTIMAL:
                    # Region by region most is gained soonest, and the less is at stake the easier the whole model is.
                    if run.found:
                        self._take(ctx, run, goal)
                    self._by_regions(goal, bound, models.meter(REGIONS_FIRST_SHARE * left()))
                    if goal.tier == "preemption":
                        models.spare_the_dear(self._value(goal))
                    continue
                if not run.found:
                    break  # too big a model for the time there is
                seen = self._take(ctx, run, goal)
                if not self._reached(goal, bound) and (models.unsettled() or vain < MOST_VAIN):
                    known = self._value(goal)
                    self._look_closer(goal, bound, models.meter(NARROW_SHARE * left()), seen)
                    vain = vain + 1 if self._value(goal) == known else 0
                if self._reached(goal, bound):
                    continue
                if left() < 2 * self._took(run):
                    break  # a finer model takes longer than this one did
                if goal.tier == "preemption" and goal.part == 0 and self._value(goal) < best:
                    models.spare_the_dear(self._value(goal))
                self._refine(goal, run, seen)
                if models.partition == before:
                    break
            if goal.tier in REGIONAL and goal.part == 0 and not self._reached(goal, bound):
                # Slack is there to be used: coming nearer to the bound within it is worth little of the time.
                self._by_regions(goal, bound, models.meter(WITHIN_SLACK * left()) if goal.slack else left)
        except OutOfTime:
            models.forget()
        if bound is not None and bound > self._value(goal):
            message = "tier %s part %d: value %d is below its bound %d; the bound is dropped"
            log.error(message, goal.tier, goal.part, self._value(goal), bound)
            bound, source = None, "contradicted"
        return bound, source

    def _big(self, goal: Goal) -> bool:
        """Whether the whole model may be too big to be solved at once."""
        return goal.tier in RELAXED and goal.part == 0 and len(self.problem.nodes.names) > FEW_NODES

    def _by_regions(self, goal: Goal, bound: int | None, left: Callable[[], float]) -> None:
        """Improve the incumbent region by region, until a sweep over all of them gains nothing."""
        models, sweep, gained = self.models, 0, True
        # What a budget does not need in a region it must not pass over from outside: there all starts are considered.
        whole = replace(models.partition, needed=False)
        while gained and not self._reached(goal, bound):
            gained = False
            for nodes, part in regions(self.problem, self.best.decision, sweep):
                if left() <= 0.05 + models.last_build_s or models.cancelled():
                    return
                before = self._value(goal)
                partition = partition_of(self.problem, whole, self.best.decision, nodes)
                self._in_region(goal, partition, part, left)
                gained |= self._value(goal) < before
            sweep += 1

    def _in_region(self, goal: Goal, partition: Partition, part: float, left: Callable[[], float]) -> None:
        """Look for a better decision in a region, forbidding what showed to invert a job.

        Of what slack there is left the region may use a part, so that the first ones do not take it all.
        """
        before, most = self._value(goal), dict(self._shares(part))
        for _ in range(REGION_ROUNDS):
            inside = self.models.build(partition)
            for tier, limit in most.items():
                inside.model.add(inside.term(OBJECTIVES[tier])[0] <= limit)
            expression = inside.term(OBJECTIVES[goal.tier])[goal.part]
            run = self.models.run(inside, expression, max(0.01, min(left(), REGION_S)), doubt=False)
            if run.objective is None or run.objective >= before:
                return
            seen, last = self._take(inside, run, goal), partition
            partition = self._told_apart(partition, goal, seen, firmly=True)
            if self._value(goal) < before or partition == last:
                return

    def _shares(self, part: float) -> Iterator[tuple[str, int]]:
        """How far a region may go in every tier that has slack."""
        for tier in self.problem.policy.tiers:
            settled = [limit for name, index, limit in self.best.limits if (name, index) == (tier.name, 0)]
            if tier.slack and settled:
                value = self.best.values[tier.name][0]
                yield tier.name, value + math.ceil(part * (settled[0] - value))

    def improve(self, goal: Goal, budget: float) -> None:
        """Improve the incumbent once, as far as one solve of the coarse model and a closer look get."""
        left = self.models.meter(budget)
        if not self.models.whole():
            return
        try:
            self._once(goal, budget, left)
        except OutOfTime:
            self.models.forget()

    def _once(self, goal: Goal, budget: float, left: Callable[[], float]) -> None:
        ctx, expression = self.models.current(goal.tier, goal.part)
        run = self.models.run(ctx, expression, budget)
        if run.found:
            seen = self._take(ctx, run, goal)
            if not self._reached(goal, run.bound):
                self._look_closer(goal, run.bound, left, seen)

    def _took(self, run: Run) -> float:
        """What a solve took, in the unit of budgets."""
        return run.deterministic if self.problem.options.deterministic else run.seconds

    def _value(self, goal: Goal) -> int:
        return self.best.values[goal.tier][goal.part]

    def _reached(self, goal: Goal, bound: int | None) -> bool:
        return bound is not None and self._value(goal) <= bound

    def _take(self, ctx: ModelContext, run: Run, goal: Goal) -> _Seen:
        """Realise a solution, mend it by hand where that is cheap, and offer what comes of it."""
        victims = frozenset(j for j, var in ctx.e.items() if run.value(var))
        try:
            decision = realise(ctx, run.value)
        except UnrealisableError as reason:
            log.info("not realisable: %s", reason)
            return _Seen(None, [Violation("capacity", str(reason))], victims)
        pruned, upto = prune(self.problem, decision), goal.index + 1
        candidate = give_to_others(self.problem, pruned)
        broken = self.best.offer(candidate, upto, goal.prefer)
        if candidate is not pruned and broken:
            broken = violations(self.problem, pruned)  # what the model must tell apart, not what the exchange did
        elif candidate is not pruned and goal.tier in PLACED:
            # Where the exchange cost what the solution had reached, who serves whom must be told apart after all.
            value = OBJECTIVES[goal.tier].evaluate(self.problem, candidate)[goal.part]
            broken = violations(self.problem, pruned) if run.objective is not None and value > run.objective else broken
        self._put_in_order(candidate, goal)
        return _Seen(candidate, broken, victims)

    def _put_in_order(self, candidate: Decision, goal: Goal) -> None:
        """Offer a decision that passes over more than it may with those passed over put right by hand."""
        upto = goal.index + 1
        if self.models.hurry() or "inversion" not in self.best.tiers[:upto]:
            return
        passed = inverted(self.problem, candidate)
        if goal.tier != "inversion" and sum(weight(self.problem, j) for j in passed) <= self.best.most("inversion"):
            return
        if len(passed) <= MOST_EXCHANGED:
            self.best.offer(uninvert(self.problem, candidate, self.models.hurry), upto, goal.prefer)
        if "preemption" in self.best.tiers[goal.index :]:
            most = {tier: self.best.most(tier) for tier in ("starvation", "shortfall")}
            ordered = in_order(self.problem, candidate, passed, most)
            self.best.offer(give_to_others(self.problem, ordered), upto, goal.prefer)

    def _look_closer(self, goal: Goal, bound: int | None, left: Callable[[], float], seen: _Seen) -> None:
        """Look for decisions with the preemptions of a solution, or fewer, telling apart whatever shows to matter.

        The models are small, and what they tell apart the whole model need not; their bounds say nothing about it.
        Where a solution only breaks a rule about who is where, the same starts are first tried in other places.
        What inverts a job is forbidden whether the job would fit or not: that is often no loss, and costs nothing.
        """
        models = self.models
        last = replace(models.partition, stays=models.evictable() - seen.victims)
        same_starts = True
        for _ in range(NARROW_ROUNDS):
            narrow = self._told_apart(last, goal, seen, firmly=True)
            if narrow == last or self._in_vain(narrow, goal) or left() <= 0.01 or models.cancelled():
                break
            inside = models.narrow(narrow)
            expression = inside.term(OBJECTIVES[goal.tier])[goal.part]
            if bound is not None and not isinstance(expression, int):
                inside.model.add(expression >= bound)
            if same_starts := same_starts and bool(seen.broken) and seen.candidate is not None:
                start_the_same(inside, seen.candidate)
            run = models.run(inside, expression, max(0.01, left()), near=seen.candidate, doubt=False)
            if same_starts and not run.found:
                same_starts = False
                continue
            if not run.found:
                break
            if run.status is Status.OPTIMAL and run.objective is not None and not same_starts:
                self._narrow.append((narrow, run.objective))
            seen, last = self._take(inside, run, goal), narrow
            if self._reached(goal, bound):
                break

    def _in_vain(self, narrow: Partition, goal: Goal) -> bool:
        """Whether a model that leaves as much open or more has been solved, and is not better than the incumbent."""
        return any(
            optimum >= self._value(goal) and wide.stays <= narrow.stays and wide.firm <= narrow.firm
            for wide, optimum in self._narrow
        )

    def _refine(self, goal: Goal, run: Run, seen: _Seen) -> None:
        """Tell apart what the last answer showed must be told apart; the model is rebuilt if anything changed."""
        partition, ctx = self.models.partition, self.models.context
        fresh = self._told_apart(partition, goal, seen)
        pooled = ctx is not None and any(len(cell.nodes) > 1 for cell in ctx.layout.cells)
        if fresh == partition and run.status is Status.OPTIMAL and goal.tier in TIMED:
            # Instants may be too few; what room there is at one of them is pooled over like nodes.
            fresh = replace(fresh, fine=True, split=fresh.fine or not pooled)
        self.models.repartition(fresh)

    def _told_apart(self, partition: Partition, goal: Goal, seen: _Seen, *, firmly: bool = False) -> Partition:
        if seen.candidate is None:
            return replace(partition, split=True)
        return tell_apart(
            self.problem,
            partition,
            goal.tier,
            seen.candidate,
            seen.broken,
            incumbent=self.best.decision,
            affordable=self.models.affordable,
            inversion=self.best.most("inversion"),
            firmly=firmly,
        )
