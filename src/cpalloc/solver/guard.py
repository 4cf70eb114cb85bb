"""The last look before an answer leaves: every rule checked, every tier recomputed, in plain Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cpalloc.metrics.reservations import reserve
from cpalloc.models.base import Violation
from cpalloc.models.objectives import OBJECTIVES
from cpalloc.problem.problem import Decision, Problem, status_quo
from cpalloc.solver.results import PartResult, Solution, TierResult
from cpalloc.solver.values import Values, violations


def guard(problem: Problem, solution: Solution, values: Values | None = None) -> tuple[Solution, list[Violation]]:
    """The solution if it breaks nothing; else the status quo with forced ends, and what was broken.

    Tier values are recomputed: a tier whose final value exceeds what later tiers had to respect, or lies below its
    proven bound, is a bug of ours as well. ``values`` are the decision's, where the caller has use for them afterwards.
    """
    values = Values(problem, solution.decision) if values is None else values
    broken = violations(problem, solution.decision)
    for tier in solution.tiers:
        for part, value in zip(tier.parts, values[tier.name], strict=True):
            if value > part.limit:
                broken.append(Violation("tier", f"{tier.name}.{part.name} is {value}, over its limit {part.limit}"))
            if part.bound is not None and value < part.bound and part.limit == part.best:
                broken.append(Violation("tier", f"{tier.name}.{part.name} is {value}, below its bound {part.bound}"))
    if not broken:
        return solution, []
    return fallback(problem, solution.tiers), broken


def fallback(problem: Problem, tiers: Sequence[TierResult] = ()) -> Solution:
    """The status quo with forced ends, nothing proved: what is answered when the solver cannot be trusted."""
    decision = status_quo(problem)
    holds, blocked = reserve(problem, decision, kept=problem.holds)
    decision = replace(decision, reservations=holds, blocked=blocked)
    seconds = {t.name: t.seconds for t in tiers}
    rows = tuple(
        _unproved(problem, t.name, decision, seconds.get(t.name, 0.0))
        for t in problem.policy.tiers
        if t.name in OBJECTIVES
    )
    return Solution(decision, rows, "guard_failed", 0, 0, 0.0, sum(seconds.values()))


def _unproved(problem: Problem, name: str, decision: Decision, seconds: float) -> TierResult:
    objective = OBJECTIVES[name]
    parts = tuple(
        PartResult(spec.name, spec.unit, value, None, value, "none", 0.0)
        for spec, value in zip(objective.parts, objective.evaluate(problem, decision), strict=True)
    )
    return TierResult(name, parts, seconds)
