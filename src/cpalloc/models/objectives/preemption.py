"""Preemption: what voluntary preemptions cost, with ties broken as the policy says."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from cpalloc.models.base import PartSpec
from cpalloc.models.variables import Linear, ModelContext, dot
from cpalloc.problem.problem import US, Action, Decision, JobState, Problem


class Preemption:
    """GPUs × (lost work + restart_cost); then fewer jobs, fewer GPUs, the youngest (policy section 4)."""

    name: ClassVar[str] = "preemption"
    parts: ClassVar[tuple[PartSpec, ...]] = (
        PartSpec("cost", "GPU-seconds"),
        PartSpec("jobs", "jobs"),
        PartSpec("gpus", "GPUs"),
        PartSpec("age", "seconds"),
    )
    limits_model: ClassVar[bool] = True

    def floor(self, problem: Problem) -> tuple[int, ...]:
        """Nothing need be preempted."""
        return (0, 0, 0, 0)

    def build(self, ctx: ModelContext) -> tuple[Linear, ...]:
        """Sums over the preemption variables."""
        problem, jobs = ctx.problem, ctx.problem.jobs
        return (
            dot([(int(jobs.preempt_cost[j]), v) for j, v in ctx.e.items()]),
            dot([(1, v) for v in ctx.e.values()]),
            dot([(int(jobs.size[j]), v) for j, v in ctx.e.items()]),
            dot([(age_s(problem, j), v) for j, v in ctx.e.items()]),
        )

    def evaluate(self, problem: Problem, decision: Decision) -> tuple[int, ...]:
        """Sums over the victims."""
        jobs = problem.jobs
        gone = np.flatnonzero((decision.action == Action.PREEMPT) & (jobs.state == JobState.EVICTABLE)).tolist()
        return (
            int(jobs.preempt_cost[gone].sum()),
            len(gone),
            int(jobs.size[gone].sum()),
            sum(age_s(problem, j) for j in gone),
        )


def age_s(problem: Problem, job: int) -> int:
    """Seconds since a running job started (since it was placed while not up)."""
    jobs = problem.jobs
    began = int(jobs.started_us[job]) if jobs.started_us[job] >= 0 else int(jobs.placed_us[job])
    return max(0, problem.now_us - began) // US
