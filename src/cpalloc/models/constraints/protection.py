"""Protection: rules 1 and 3 of policy section 4."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from cpalloc.models.base import Violation
from cpalloc.models.variables import ModelContext
from cpalloc.problem.problem import Action, Decision, JobState, Problem


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
            why = "is protected" if jobs.protected[j] else "belongs to a budget within its share, or runs on an absent node"
            yield Violation(self.name, f"{jobs.ids[j]} {why} and must stay", (jobs.ids[j],))
