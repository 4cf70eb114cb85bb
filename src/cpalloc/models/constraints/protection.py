"""Protection: rules 1 and 3 of policy section 4."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from cpalloc.models.base import Violation
from cpalloc.models.variables import ModelContext
from cpalloc.problem.problem import US, Action, Decision, JobState, Problem


class Protection:
    """A protected job, and one whose budget is within its share, is never preempted."""

    name: ClassVar[str] = "protection"

    def applies(self, problem: Problem) -> bool:
        """Where anything must stay."""
        return bool((problem.jobs.state == JobState.FIXED).any())

    def build(self, ctx: ModelContext) -> None:
        """Nothing to add: only evictable jobs have a preemption variable."""

    def check(self, problem: Problem, decision: Decision) -> Iterator[Violation]:
        """Every job that must stay and does not."""
        jobs = problem.jobs
        for j in np.flatnonzero((jobs.state == JobState.FIXED) & (decision.action != Action.KEEP)).tolist():
            yield Violation(self.name, f"{jobs.ids[j]} {_why(problem, j)} and must stay", (jobs.ids[j],))


def _why(problem: Problem, job: int) -> str:
    """Why a job that runs must stay."""
    jobs, budgets = problem.jobs, problem.budgets
    if jobs.protected[job]:
        left_s = -(-(int(jobs.protected_until_us[job]) - problem.now_us) // US)
        return f"is protected for another {left_s} s"
    if any(rep.node < 0 for rep in jobs.placement[job]):
        return "runs on a node that is not in the snapshot"
    leaf = int(jobs.leaf[job])
    have = f"charged {int(budgets.charged[leaf])} of {int(budgets.owed[leaf])} GPU-seconds owed"
    return f"belongs to a budget within its share ({have})"
