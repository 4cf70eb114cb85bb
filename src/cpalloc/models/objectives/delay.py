"""Delay: how long the blocked gangs still wait for what they were promised."""

from __future__ import annotations

from typing import ClassVar

from ortools.sat.python import cp_model

from cpalloc.models.base import PartSpec
from cpalloc.models.variables import Linear, ModelContext, dot
from cpalloc.problem.problem import US, Action, Decision, Problem


class Delay:
    """Σ over the blocked jobs of GPUs × (starts_by − now); no promise counts as the window."""

    name: ClassVar[str] = "delay"
    parts: ClassVar[tuple[PartSpec, ...]] = (PartSpec("delay", "GPU-seconds"),)
    limits_model: ClassVar[bool] = False

    def floor(self, problem: Problem) -> tuple[int, ...]:
        """A promise can be for now."""
        return (0,)

    def build(self, ctx: ModelContext) -> tuple[Linear, ...]:
        """Σ over the blocked jobs of what waiting costs each at least, unless it starts after all."""
        terms: list[tuple[int, cp_model.IntVar]] = []
        const = 0
        for job, cost in ctx.partition.delays:
            const += cost
            terms.extend((-cost, var) for var in ctx.started(job))
        return (dot(terms) + const,)

    def evaluate(self, problem: Problem, decision: Decision) -> tuple[int, ...]:
        """Job by job; one that starts after all waits no longer."""
        promised = {h.job: h.starts_us for h in decision.reservations}
        total = 0
        for j in decision.blocked:
            if decision.action[j] != Action.WAIT:
                continue
            size = int(problem.jobs.size[j])
            at_us = promised.get(j)
            total += (
                size * problem.policy.window_s if at_us is None else size * max(0, at_us - problem.now_us) // US
            )
        return (total,)
