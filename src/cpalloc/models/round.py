"""The whole model of a round: variables, then every constraint that applies."""

from __future__ import annotations

from collections.abc import Callable

from cpalloc.models.constraints import CONSTRAINTS
from cpalloc.models.partition import Partition
from cpalloc.models.variables import ModelContext
from cpalloc.problem.problem import Problem


def build(
    problem: Problem,
    partition: Partition,
    memo: dict[object, object] | None = None,
    out_of_time: Callable[[], bool] = lambda: False,
) -> ModelContext:
    """Build the model of a round under a partition, without an objective; ``memo`` outlives the model.

    Raises
    ------
    OutOfTime
        When that becomes true on the way; so may the terms that are asked for later.
    """
    ctx = ModelContext(problem, partition, memo, out_of_time)
    for constraint in CONSTRAINTS:
        if constraint.applies(problem):
            ctx.check_time()
            constraint.build(ctx)
    return ctx
