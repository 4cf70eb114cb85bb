"""The last look before an answer leaves: every rule checked, every tier recomputed, in plain Python."""

from __future__ import annotations

from dataclasses import replace

from cpalloc.metrics.reservations import reserve
from cpalloc.models.base import Violation
from cpalloc.models.objectives import OBJECTIVES
from cpalloc.problem.problem import Decision, Problem, status_quo
from cpalloc.solver.strict import PartResult, Solution, TierResult, violations


def guard(problem: Problem, solution: Solution) -> tuple[Solution, list[Violation]]:
    """The solution if it breaks nothing; else the status quo with forced ends, and what was broken.

    Tier values are recomputed: a tier whose final value exceeds what later tiers had to respect, or lies below its
    proven bound, is a bug of ours as well.
    """
    broken = violations(problem, solution.decision)
    for tier in solution.tiers:
        values = OBJECTIVES[tier.name].evaluate(problem, solution.decision)
        for part, value in zip(tier.parts, values, strict=True):
            if value > part.limit:
                broken.append(Violation("tier", f"{tier.name}.{part.name} is {value}, over its limit {part.limit}"))
            if part.bound is not None and value < part.bound and part.limit == part.best:
                broken.append(Violation("tier", f"{tier.name}.{part.name} is {value}, below its bound {part.bound}"))
    if not broken:
        return solution, []
    decision = status_quo(problem)
    holds, blocked = reserve(problem, decision, kept=problem.holds)
    decision = replace(decision, reservations=holds, blocked=blocked)
    tiers = tuple(_unproved(problem, t, decision) for t in solution.tiers)
    return replace(solution, decision=decision, tiers=tiers, stop_reason="guard_failed"), broken


def _unproved(problem: Problem, tier: TierResult, decision: Decision) -> TierResult:
    values = OBJECTIVES[tier.name].evaluate(problem, decision)
    parts = tuple(
        PartResult(p.name, p.unit, value, None, value, "none", p.seconds)
        for p, value in zip(tier.parts, values, strict=True)
    )
    return replace(tier, parts=parts)
