"""The whole model of a round: variables, then every constraint that applies."""

from __future__ import annotations

from cpalloc.models.constraints import CONSTRAINTS
from cpalloc.models.kinds import Partition
from cpalloc.models.variables import ModelContext
from cpalloc.problem.problem import Problem


def build(problem: Problem, partition: Partition, memo: dict[object, object] | None = None) -> ModelContext:
    """Build the model of a round under a partition, without an objective; ``memo`` outlives the model."""
    ctx = ModelContext(problem, partition, memo)
    for constraint in CONSTRAINTS:
        if constraint.applies(problem):
            constraint.build(ctx)
    return ctx
