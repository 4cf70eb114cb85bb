"""The best decision so far: feasible, checked and evaluated in plain Python.

A solution of a model only ever becomes the incumbent by passing every check and beating it on exact values. So a wrong
or coarse model can cost quality, never correctness.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property

from cpalloc.metrics.reservations import reserve
from cpalloc.models.base import Violation
from cpalloc.models.constraints.holds import intrusions
from cpalloc.models.objectives import OBJECTIVES
from cpalloc.models.objectives.delay import Delay
from cpalloc.problem.problem import Decision, Hold, Problem, status_quo
from cpalloc.solver.jointly import promised_jointly
from cpalloc.solver.promising import best_order
from cpalloc.solver.values import Values, same, violations

MOST_SEEN = 4
"""Former incumbents kept beside the first."""


class _Candidate:
    """A decision that may become the incumbent: what it breaks, what it is worth, and its promises when asked for."""

    def __init__(
        self, problem: Problem, decision: Decision, broken: list[Violation], promise: Callable[[Decision], Decision]
    ) -> None:
        self.decision, self.broken, self._promise = decision, broken, promise
        self.values = Values(problem, decision, lambda: self.promised)

    @cached_property
    def promised(self) -> Decision:
        """The decision with its promises."""
        return self._promise(self.decision)


class Incumbent:
    """The incumbent of a round, from the status quo on.

    Attributes
    ----------
    decision, values
        The best decision so far, and what it is worth.
    limits : list of (tier, part, most)
        What may not be exceeded any more.
    kept, fresh
        Promises that are renewed, and those of them that this round made: the latter bind whoever comes after.
    blocked
        Whom promises are for, in the order they are given; None while that is not settled.
    jointly
        Whether promises are given all together where that delays less: while delay is minimised.
    seen
        Former incumbents: what lost on a tier with slack may be within it, and better from there on.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.tiers = [t.name for t in problem.policy.tiers if t.name in OBJECTIVES]
        self.limits: list[tuple[str, int, int]] = []
        self.kept: tuple[Hold, ...] = problem.holds
        self.fresh: tuple[Hold, ...] = ()
        self.blocked: tuple[int, ...] | None = None
        self.jointly = False
        self.seen: list[Decision] = []
        self._last_promised: tuple[Decision, object, Decision] | None = None
        self._looked_at: dict[int, tuple[object, _Candidate]] = {}
        self.decision = self._with_reservations(status_quo(problem))
        self.values = Values(problem, self.decision)

    def offer(
        self, decision: Decision, upto: int, prefer: tuple[str, int] | None = None, *, ties: bool = False
    ) -> list[Violation]:
        """Make a decision the incumbent if it breaks no rule, keeps the limits and is better.

        Better on the first ``upto`` tiers in strict order, the last of them being worked on (with ``ties``: or no
        worse there), or on the part to ``prefer``. Returns what it breaks.
        """
        if same(decision, self.decision):
            return []
        candidate = self._look_at(decision)
        values = candidate.values
        if candidate.broken:
            return candidate.broken
        # Delay last, as the promises that it minds take longest.
        limits = sorted(self.limits, key=lambda limit: limit[0] == Delay.name)
        if any(values[name][part] > most for name, part, most in limits):
            return []
        if prefer is not None:
            name, part = prefer
            if values[name][part] < self.values[name][part]:
                self.decision, self.values = candidate.promised, values
            return []
        names = self.tiers[:upto]
        free = [n for n in names if not any(n == name for name, _, _ in self.limits)] or names[-1:]
        first = next((n for n in free if values[n] != self.values[n]), None)
        if (first is None and ties) or (first is not None and values[first] < self.values[first]):
            self.seen = [*self.seen[:1], *self.seen[1:][1 - MOST_SEEN :], self.decision]
            self.decision, self.values = candidate.promised, values
        return []

    def offer_seen(self, upto: int) -> None:
        """Offer former incumbents again: what lost on a tier with slack may be better from there on."""
        for decision in self.seen:
            if not same(decision, self.decision):
                self._looked_at[id(decision)] = self._promising(), self._look_at(decision)
                self.offer(decision, upto)

    def _look_at(self, decision: Decision) -> _Candidate:
        """A decision as a candidate; former incumbents are remembered as such."""
        known = self._looked_at.get(id(decision))
        if known is not None and known[1].decision is decision and known[0] == self._promising():
            return known[1]
        broken = violations(self.problem, decision)
        broken += intrusions(self.problem, decision, self.fresh, bind_all=True)
        return _Candidate(self.problem, decision, broken, self._with_reservations)

    def _promising(self) -> object:
        """All that promises depend on besides the decision."""
        return self.kept, self.fresh, self.blocked, self.jointly

    def most(self, tier: str) -> int:
        """What the first part of a tier may be at most, as it was settled; 0 where it was not."""
        return next((limit for name, part, limit in self.limits if (name, part) == (tier, 0)), 0)

    def settle_blocked(self, *, hurry: bool = False) -> None:
        """Settle whom promises are for from here on: the blocked jobs of the decision; in a ``hurry`` by rank alone."""
        self.blocked = reserve(self.problem, self.decision, kept=self.kept)[1]
        self.jointly = not hurry
        if not hurry:
            self.promise_best()
            return
        self.decision = self._with_reservations(self.decision)
        self.values = Values(self.problem, self.decision)

    def promise_best(self) -> None:
        """Give the promises in the order that delays least; candidates get theirs in the same order."""
        self.blocked = best_order(self.problem, self.decision, self.kept, self.blocked or ())
        self.decision = self._with_reservations(self.decision)
        self.values = Values(self.problem, self.decision)

    def keep_promises(self) -> None:
        """What is promised now binds whatever comes after.

        Who could start at once was looked for before those promises that came after it; beside all of them it may be
        blocked after all, and is promised something itself.
        """
        before = {h.job for h in self.problem.holds}
        self.jointly = False
        self.kept = self.decision.reservations
        self.decision = self._with_reservations(self.decision)
        self.values = Values(self.problem, self.decision)
        self.kept = self.decision.reservations
        self.fresh = tuple(h for h in self.kept if h.job not in before)

    def _with_reservations(self, decision: Decision) -> Decision:
        """Attach promises: once the blocked jobs are settled, to these, in the domains already promised if any."""
        holds, blocked = reserve(self.problem, decision, kept=self.kept, jobs=self.blocked)
        promised = replace(decision, reservations=holds, blocked=blocked)
        if not self.jointly:
            return promised
        known = self._last_promised
        if known is None or known[1] != self._promising() or not same(known[0], decision):
            jointly = promised_jointly(self.problem, promised, self.kept, self.blocked or ())
            known = self._last_promised = decision, self._promising(), jointly
        return known[2]
