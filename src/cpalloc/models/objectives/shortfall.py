"""Shortfall: entitled GPUs that are not granted."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from cpalloc.models.base import PartSpec
from cpalloc.models.variables import Linear, ModelContext, dot
from cpalloc.problem.grants import granted
from cpalloc.problem.problem import Decision, IntArray, Problem


class Shortfall:
    """Σ_leaf max(0, entitled − granted)."""

    name: ClassVar[str] = "shortfall"
    parts: ClassVar[tuple[PartSpec, ...]] = (PartSpec("shortfall", "GPUs"),)
    limits_model: ClassVar[bool] = True

    def floor(self, problem: Problem) -> tuple[int, ...]:
        """Nothing can be below 0."""
        return (0,)

    def build(self, ctx: ModelContext) -> tuple[Linear, ...]:
        """Σ short over the leaves."""
        leaves = np.flatnonzero(ctx.problem.budgets.entitled).tolist()
        return (dot([(1, ctx.short(leaf)) for leaf in leaves]),)

    def evaluate(self, problem: Problem, decision: Decision) -> tuple[int, ...]:
        """Leaf by leaf."""
        return (shortfall_of(problem.budgets.entitled, granted(problem, decision)),)


def shortfall_of(entitled: IntArray, have: IntArray) -> int:
    """What entitlements and grants of the leaves make of the tier; shape (L,) each."""
    return int(np.maximum(entitled - have, 0).sum())
