"""Funding: where a job that takes either mode may be allocated, and who can fund at all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from cpalloc.models.base import Violation
from cpalloc.models.variables import ModelContext
from cpalloc.problem.grants import granted
from cpalloc.problem.problem import Action, Decision, Mode, Problem


class Funding:
    """An ``any`` job is newly allocated only where its budget's claim reaches: granted without it < claim."""

    name: ClassVar[str] = "funding"

    def applies(self, problem: Problem) -> bool:
        """Where a job may run in either mode, or a budget is owed nothing."""
        jobs = problem.jobs
        return bool((jobs.may_allocate & jobs.may_borrow).any() or (problem.budgets.owed == 0).any())

    def build(self, ctx: ModelContext) -> None:
        """Newly allocated ⇒ granted ≤ claim − 1 + size, for starts and promotions."""
        jobs, budgets = ctx.problem.jobs, ctx.problem.budgets
        fresh = [(j, v) for (j, mode), v in ctx.y.items() if mode is Mode.ALLOCATED and jobs.may_borrow[j]]
        for j, var in [*fresh, *ctx.p.items()]:
            leaf = int(jobs.leaf[j])
            most = int(budgets.claim[leaf]) - 1 + int(jobs.size[j])
            ctx.model.add(ctx.granted([leaf]) <= most).only_enforce_if(var)

    def check(self, problem: Problem, decision: Decision) -> Iterator[Violation]:
        """Job by job."""
        jobs, budgets, have = problem.jobs, problem.budgets, granted(problem, decision)
        fresh = (decision.action == Action.START) & (decision.mode == Mode.ALLOCATED) | decision.promoted
        for j in np.flatnonzero(fresh).tolist():
            leaf = int(jobs.leaf[j])
            if budgets.owed[leaf] == 0:
                message = f"{jobs.ids[j]} is allocated although its budget is owed nothing"
                yield Violation(self.name, message, (jobs.ids[j],))
            elif jobs.may_borrow[j] and have[leaf] - jobs.size[j] >= budgets.claim[leaf]:
                claim = f"its claim of {int(budgets.claim[leaf])} GPUs"
                message = f"{jobs.ids[j]} is allocated although its budget has {claim} without it"
                yield Violation(self.name, message, (jobs.ids[j],))
