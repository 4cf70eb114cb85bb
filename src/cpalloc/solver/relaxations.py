"""Bounds of relaxations that are cheaper than the whole model, and decisions after their solutions.

Without nodes a round is small whatever its size: kinds of jobs by budget, and slots by pool (``models/pooled.py``). In
whole numbers its optimum says who starts and who may be preempted for that, and mostly all of that has a place: the
greedy that follows it reaches the bound of ``shortfall`` at once where serving budget by budget leaves some of them
short of GPUs that others have beyond their entitlement. Whoever finds no place is placed again before the others, or
the relaxation does without it and is solved again. For lost work budgets serve their queues in turn, or the relaxation
gets the rows that hold where nobody is passed over.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from types import MappingProxyType

from cpalloc.models.objectives.inversion import inverted
from cpalloc.models.pooled import Pooled
from cpalloc.problem.problem import Decision
from cpalloc.solver.following import as_wanted, sparing
from cpalloc.solver.goals import BY_GRANTS, FEW_NODES, Goal
from cpalloc.solver.incumbent import Incumbent
from cpalloc.solver.models import Models
from cpalloc.solver.outcome import Run
from cpalloc.solver.own_loans import take_back_own_loans

log = logging.getLogger(__name__)

SHARE = 0.4
"""Part of a tier's time for bounds of relaxations."""

SPARE_SHARE = 0.85
"""The same of that for ``preemption`` beyond few nodes, where following them gains more than the whole model does."""

PASS_S = 1e-4
"""Seconds a job that a pass of the greedy takes (1 to 2 s at 10,000 nodes): with less time it is not begun."""

AGAIN = 6
"""Passes that there must be time for where one is worth little: another one, or one within the slack."""

ONCE, FAR = 4, 1.05
"""The same for the first one within the slack where the value is more than so many times its bound."""

PLACINGS = 3
"""Times that the jobs which a solution wants to start are placed."""

FOLLOWED = 6
"""Solutions of a relaxation that are followed at most."""

TURNS_COST = 1.005
"""What serving queues in turn may cost, as a part of the least, without pools being told apart."""

SPARING = (1.0, 0.95, 0.9, 0.8)
"""Parts of the shortfall allowed that are tried for a relaxation without nodes."""

NOTHING = {"starvation": 0, "shortfall": 0}
"""What starvation and shortfall may be while they are minimised."""


class Relaxations:
    """The relaxations of a round.

    Parameters
    ----------
    put_in_order
        Offers a decision that passes over more than it may with those passed over put right.
    """

    def __init__(self, models: Models, best: Incumbent, put_in_order: Callable[[Decision, Goal], None]) -> None:
        self.models, self.best, self.problem = models, best, models.problem
        self._put_in_order = put_in_order
        self._own: set[int] = set()
        """Budgets that found no room for all they were to start even when they chose first: mostly their own work is
        what is to go, which may make room for others only (rule 6)."""
        self.passing: list[Decision] = []
        """Decisions of the last part worked on that would be good, but pass somebody over."""

    def bound(self, goal: Goal, known: int | None, left: Callable[[], float]) -> tuple[int | None, str]:
        """The best bound, ``known`` or of a relaxation, and where it comes from; the incumbent improves by the way."""
        bound, source = known, "trivial"
        self.passing.clear()
        for relaxation, name in self._bounds(goal, left):
            if relaxation > self._value(goal):
                message = "bound %d (%s) of tier %s contradicts the known value %d"
                log.error(message, relaxation, name, goal.tier, self._value(goal))
            elif bound is None or relaxation > bound:
                bound, source = relaxation, name
        return bound, source

    def _value(self, goal: Goal) -> int:
        return self.best.values[goal.tier][goal.part]

    def _bounds(self, goal: Goal, left: Callable[[], float]) -> Iterator[tuple[int, str]]:
        """Bounds of ever closer relaxations, until one is reached, and where they come from."""
        models, few = self.models, len(self.problem.nodes.names) <= FEW_NODES
        within = models.meter((SPARE_SHARE if goal.tier == "preemption" and not few else SHARE) * left())
        if not few:
            pooled = models.pooled(goal.tier, within())
            if pooled is not None:
                least = pooled[0]
                yield least, "pooled"
                if goal.tier == "preemption" and self._value(goal) > least:
                    for sharper in self._spare(goal, least, pooled[1], within):
                        least = sharper
                        yield least, "pooled"
                if self._value(goal) <= least:
                    return
        if goal.tier in BY_GRANTS:
            exact, run = models.exactly_pooled(goal.tier, within())
            if run.bound is not None:
                yield run.bound, "pooled"
                if self._value(goal) <= run.bound:
                    return
            if not few:  # with few nodes the whole model is as quick
                if self._time_for_a_pass():
                    candidate = take_back_own_loans(self.problem, self.best.decision, NOTHING, models.hurry)
                    self._offer_unless_late(candidate, goal)
                self._follow(goal, exact, run, left)
            if run.bound is not None and self._value(goal) <= run.bound:
                return
        relaxation = models.relaxed(goal.tier, within())
        if relaxation is not None:
            yield relaxation, "lp"

    def _follow(self, goal: Goal, pooled: Pooled, run: Run, left: Callable[[], float]) -> None:
        """Start whom the relaxation starts, as far as they find room, and preempt hardly anybody else for that."""
        models, bound, took = self.models, run.bound, 0.0
        within_slack = bound is not None and self._value(goal) <= bound + goal.slack
        near = bound is not None and self._value(goal) <= FAR * bound
        if within_slack and not self._time_for_a_pass(AGAIN if near else ONCE):
            return  # within the slack the later tiers need the time more
        apart: set[int] = set()
        for _ in range(FOLLOWED):
            if run.values is None or left() <= took or not self._time_for_a_pass():
                return
            began = time.perf_counter()
            wanted, stays = pooled.starts(run.values), pooled.stays(run.values)
            _, missed = self._place(goal, stays, wanted, NOTHING, bound or 0)
            if models.hurry():
                return
            if not missed or (bound is not None and self._value(goal) <= bound):
                return
            if self._own <= apart:
                pooled.without(missed, run.values)
            pooled.apart(self._own - apart)
            apart |= self._own
            took = 0.0 if self.problem.options.deterministic else time.perf_counter() - began
            if took > models.left() / AGAIN:
                return  # later tiers need the time more
            run = models.solved_pooled(pooled, SHARE * left())

    def _spare(self, goal: Goal, least: int, stays: frozenset[int], left: Callable[[], float]) -> Iterator[int]:
        """Preempt hardly anybody who ``stays`` where nodes are left out, until what is lost is the ``least`` that may
        be, with ever less shortfall to start from: gangs that do not fit after all must find room within the limit.

        Budgets are served as ever, or start what they start there if each serves its queue in turn; neither is always
        better. Where that costs more than it may, the rows that hold where nobody is passed over say how much at least.
        Yields bounds in whole numbers, if any.
        """
        models, most = self.models, {tier: self.best.most(tier) for tier in BY_GRANTS}
        for share in SPARING:
            before, limits = left(), {"shortfall": int(share * most["shortfall"])} if share < 1 else {}
            if share < 1:
                pooled = models.pooled(goal.tier, before, limits)
                if pooled is None:
                    return
                stays = pooled[1]
            self._offer(goal, sparing(self.problem, stays, most, models.hurry))
            if self._value(goal) <= least or not self._time_for_a_pass() or left() < before - left():
                return  # another one would take longer than there is time
            exact, run = models.exactly_pooled(goal.tier, left(), limits)
            if run.bound is not None and share == 1:
                least = max(least, run.bound)  # with less shortfall it is none
                yield least
            done = run.values is None or self._serve_in_turn(goal, least, exact.starts(run.values), limits, left)
            if share == 1 and self._value(goal) > least:
                for sharper in self._serve_in_order(goal, least, left):
                    least = max(least, sharper)
                    yield least
            if done or (run.bound or 0) >= self._value(goal):
                return
            if self._value(goal) <= least or not self._time_for_a_pass() or left() < (before - left()) / 2:
                return

    def order(self, goal: Goal, left: Callable[[], float]) -> None:
        """Look for a decision that passes nobody over: one in which budgets serve their queues in turn, which loses as
        little as may be."""
        if len(self.problem.nodes.names) <= FEW_NODES or not self._time_for_a_pass(AGAIN):
            return
        within = self.models.meter(SHARE * left())
        exact, run = self.models.exactly_pooled("preemption", within())
        if run.values is not None:
            self._serve_in_turn(goal, run.bound or 0, exact.starts(run.values), {}, within)

    def _serve_in_turn(
        self,
        goal: Goal,
        least: int,
        likely: Mapping[int, int],
        limits: Mapping[str, int],
        left: Callable[[], float],
    ) -> bool:
        """Follow the relaxation with budgets that serve their queues in turn, without those that found no room before;
        pool by pool as well once all together cost more, and then with more choices. ``likely``: the starts that would
        be cheapest in any order.

        Returns whether nothing is gained by asking for less: all found room that way, or what was reached is hardly
        more than the optimum.
        """
        models, missed, by_pool, finely = self.models, set[int](), False, False
        most = {tier: self.best.most(tier) for tier in BY_GRANTS}
        for _ in range(FOLLOWED):
            before, apart = left(), frozenset(self._own)
            pooled, run = models.pooled_in_turn(
                "preemption", before, limits, likely, missed, apart, by_pool=by_pool, finely=finely
            )
            if run.values is None or not self._time_for_a_pass():
                return False
            wanted, stays = pooled.starts(run.values), pooled.stays(run.values)
            _, fresh = self._place(goal, stays, wanted, most, least)
            dear = (run.objective or 0) > TURNS_COST * least
            near = goal.tier == "preemption" and self._value(goal) <= TURNS_COST * (run.objective or 0)
            if (not fresh and (finely or not dear)) or (dear and near and finely):
                return True
            how = by_pool, finely
            finely = not fresh and dear and (by_pool or len(self.problem.pool_names) == 1)
            by_pool |= dear and len(self.problem.pool_names) > 1
            if how == (by_pool, True) and not finely:
                return True  # with more choices some found no room
            reached = self._value(goal) <= (least if goal.tier == "preemption" else 0)
            if reached or left() < before - left() or not self._time_for_a_pass():
                return False
            if self._own <= apart and how == (by_pool, finely):
                missed |= fresh  # the same model would want them again
        return False

    def _serve_in_order(self, goal: Goal, least: int, left: Callable[[], float]) -> Iterator[int]:
        """Follow the relaxation with the rows that hold where nobody is passed over, and ever more that forbid what
        its solutions pass over on nodes, and what found no room there. Yields its bound, if any."""
        models = self.models
        if ("inversion", 0, 0) not in self.best.limits or not self._time_for_a_pass():
            return
        most = {tier: self.best.most(tier) for tier in BY_GRANTS}
        pooled, order = models.pooled_in_order(goal.tier)
        apart: set[int] = set()
        for attempt in range(FOLLOWED):
            before = left()
            run = models.solved_pooled(pooled, before)
            if attempt == 0 and run.bound is not None:
                least = max(least, run.bound)
                yield least
            if run.values is None or self._value(goal) <= least or not self._time_for_a_pass():
                return
            wanted, stays, lent = pooled.starts(run.values), pooled.stays(run.values), order.lent(run.values)
            candidate, missed = self._place(goal, stays, wanted, most, least, lent)
            took = before - left()
            if self._value(goal) <= least or left() < took or models.hurry():
                return
            passed = inverted(self.problem, candidate)
            if passed:
                self.passing.append(candidate)
            order.forbid(passed)
            if not passed and self._own <= apart:
                if not missed:
                    return  # it would be the same again
                pooled.without(missed, run.values)
            pooled.apart(self._own - apart)
            apart |= self._own

    def _place(
        self,
        goal: Goal,
        stays: Collection[int],
        wanted: Mapping[int, int],
        most: Mapping[str, int],
        least: int,
        lent: Mapping[int, int] = MappingProxyType({}),
    ) -> tuple[Decision, frozenset[int]]:
        """Offer the decision that starts jobs where they are wanted, and that in which budgets that found no room
        choose first: what their own work leaves is room for others only, who would take what they need.

        Returns the one in which fewest find none, and who does not.
        """
        first, out = set[int](), list[tuple[Decision, frozenset[int]]]()
        for _ in range(PLACINGS):
            candidate, missed = as_wanted(self.problem, stays, wanted, most, self.models.hurry, lent, first)
            if goal.tier in BY_GRANTS:
                self._offer_unless_late(candidate, goal)
            else:
                self._offer(goal, candidate)
            out.append((candidate, missed))
            leaves, value = {int(self.problem.jobs.leaf[j]) for j in missed}, self._value(goal)
            self._own |= leaves & first
            # What is near its bound and has slack is worth no pass that lost work may need.
            near = bool(goal.slack) and value <= FAR * least
            if leaves <= first or value <= least or not self._time_for_a_pass(AGAIN if near else 2):
                break
            first |= leaves
        return min(out, key=lambda placed: len(placed[1]))

    def _time_for_a_pass(self, times: int = 1) -> bool:
        """Whether the round has time for so many passes of the greedy, and somebody wants them."""
        models, deterministic = self.models, self.problem.options.deterministic
        return not models.hurry() and (deterministic or models.left() > times * PASS_S * len(self.problem.jobs))

    def _offer(self, goal: Goal, candidate: Decision) -> None:
        """A decision as it is, and put in order."""
        self._offer_unless_late(candidate, goal)
        if not self.models.hurry():
            self._put_in_order(candidate, goal)

    def _offer_unless_late(self, candidate: Decision, goal: Goal) -> None:
        """A decision; whoever was late may have stopped half-way."""
        if not self.models.hurry():
            self.best.offer(candidate, goal.index + 1, goal.prefer)
