"""Idle: GPUs left free, then GPUs lent that could be allocated."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from cpalloc.metrics.occupancy import gives_back, node_use
from cpalloc.models.base import PartSpec
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
        free = int(node_use(problem, status_quo(problem)).free.sum())
        freed = [(gives_back(problem, j, everywhere), v) for j, v in ctx.e.items()]
        taken = [(-int(jobs.size[j]), v) for (j, _), v in ctx.y.items()]
        lent = [(int(jobs.size[j]), v) for (j, mode), v in ctx.y.items() if mode is Mode.BORROWED]
        return dot(freed + taken) + free, dot(lent)

    def evaluate(self, problem: Problem, decision: Decision) -> tuple[int, ...]:
        """From what is held after the round."""
        lent = (decision.action == Action.START) & (decision.mode == Mode.BORROWED)
        return int(node_use(problem, decision).free.sum()), int(problem.jobs.size[np.flatnonzero(lent)].sum())
