"""Idle: GPUs left free, then GPUs lent that could be allocated."""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

import numpy as np

from cpalloc.metrics.occupancy import gives_back, node_use
from cpalloc.models.base import PartSpec
from cpalloc.models.partition import Possible
from cpalloc.models.variables import Linear, ModelContext, dot
from cpalloc.problem.problem import Action, Decision, Mode, Problem, status_quo


class Idle:
    """In-service GPUs left free, then GPUs started borrowed."""

    name: ClassVar[str] = "idle"
    parts: ClassVar[tuple[PartSpec, ...]] = (PartSpec("free", "GPUs"), PartSpec("lent", "GPUs"))
    limits_model: ClassVar[bool] = True

    def floor(self, problem: Problem) -> tuple[int, ...]:
        """Every GPU could be in use, all of it allocated."""
        return (0, 0)

    def build(self, ctx: ModelContext) -> tuple[Linear, ...]:
        """Free GPUs now, plus what preemptions free, less what starts take; then GPUs started borrowed."""
        problem, jobs = ctx.problem, ctx.problem.jobs
        everywhere = np.ones(len(problem.nodes.names), dtype=np.bool_)
        free = free_now(problem)
        freed = [(gives_back(problem, j, everywhere), v) for j, v in ctx.e.items()]
        taken = [(-int(jobs.size[j]), v) for (j, _), v in ctx.y.items()]
        lent = [(int(jobs.size[j]), v) for (j, mode), v in ctx.y.items() if mode is Mode.BORROWED]
        return dot(freed + taken) + free, dot(lent)

    def evaluate(self, problem: Problem, decision: Decision) -> tuple[int, ...]:
        """From what is held after the round."""
        lent = (decision.action == Action.START) & (decision.mode == Mode.BORROWED)
        return int(node_use(problem, decision).free.sum()), int(problem.jobs.size[np.flatnonzero(lent)].sum())


def free_now(problem: Problem) -> int:
    """In-service GPUs that are free if nothing is done."""
    return problem.once("free now", lambda: int(node_use(problem, status_quo(problem)).free.sum()))


def least_idle(problem: Problem, possible: Possible, gone: Collection[int]) -> tuple[int, int]:
    """What the parts are where everybody starts who can, and nobody is preempted but those who are for sure.

    No decision leaves fewer GPUs free, if there is one at all. In those that leave as few everybody starts, and who can
    only borrow does: the second part is at least so much there.
    """
    size = problem.jobs.size
    everywhere = np.ones(len(problem.nodes.names), dtype=np.bool_)
    freed = sum(gives_back(problem, j, everywhere) for j in gone)
    starts = {j for j, _ in possible.starts}
    lent = starts - {j for j, mode in possible.starts if mode is Mode.ALLOCATED}
    return free_now(problem) + freed - sum(int(size[j]) for j in starts), sum(int(size[j]) for j in lent)
