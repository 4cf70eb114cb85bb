"""Starvation: shortfall beyond a quarter of an entitlement, the worst off weighing most."""

from __future__ import annotations

from typing import ClassVar

from ortools.sat.python import cp_model

from cpalloc.models.base import PartSpec
from cpalloc.models.variables import Linear, ModelContext, dot
from cpalloc.problem.grants import granted
from cpalloc.problem.problem import Decision, IntArray, Problem


class Starvation:
    """Σ_leaf Σ_{k=1..3} 2^(k−1) · seg_k, seg_k = min(max(4·short − k·e, 0), e) (policy section 7)."""

    name: ClassVar[str] = "starvation"
    parts: ClassVar[tuple[PartSpec, ...]] = (PartSpec("starvation", "weighted quarter GPUs"),)
    limits_model: ClassVar[bool] = True

    def floor(self, problem: Problem) -> tuple[int, ...]:
        """Nothing can be below 0."""
        return (0,)

    def build(self, ctx: ModelContext) -> tuple[Linear, ...]:
        """Quarters of each shortfall as variables; the convex weights fill them in order."""
        terms: list[tuple[int, cp_model.IntVar]] = []
        for leaf, entitled in enumerate(ctx.problem.budgets.entitled.tolist()):
            if not entitled:
                continue
            quarters = [ctx.model.new_int_var(0, entitled, f"seg{leaf},{k}") for k in range(4)]
            ctx.model.add(dot([(1, q) for q in quarters]) >= 4 * ctx.short(leaf))
            terms.extend((2 ** (k - 1), quarters[k]) for k in (1, 2, 3))
        return (dot(terms),)

    def evaluate(self, problem: Problem, decision: Decision) -> tuple[int, ...]:
        """Leaf by leaf, quarter by quarter."""
        return (starvation_of(problem.budgets.entitled, granted(problem, decision)),)


def starvation_of(entitled: IntArray, have: IntArray) -> int:
    """What entitlements and grants of the leaves make of the tier; shape (L,) each."""
    return sum(starving(e, got) for e, got in zip(entitled.tolist(), have.tolist(), strict=True))


def starving(entitled: int, granted_gpus: int) -> int:
    """What one leaf adds to the tier."""
    short = max(0, entitled - granted_gpus)
    return sum(2 ** (k - 1) * min(max(4 * short - k * entitled, 0), entitled) for k in (1, 2, 3))
