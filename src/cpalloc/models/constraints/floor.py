"""The floor: rule 4 of policy section 4."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from cpalloc.models.base import Violation
from cpalloc.models.variables import ModelContext
from cpalloc.problem.grants import granted
from cpalloc.problem.problem import Action, Decision, JobState, Mode, Problem


class Floor:
    """A budget that loses an allocated job ends the round with granted ≥ its claim."""

    name: ClassVar[str] = "floor"

    def applies(self, problem: Problem) -> bool:
        """Where an allocated job may be preempted."""
        return bool(((problem.jobs.state == JobState.EVICTABLE) & (problem.jobs.mode == Mode.ALLOCATED)).any())

    def build(self, ctx: ModelContext) -> None:
        """For every leaf: an allocated job preempted ⇒ granted ≥ claim."""
        jobs, budgets = ctx.problem.jobs, ctx.problem.budgets
        losers: dict[int, list[int]] = defaultdict(list)
        for j in ctx.e:
            if jobs.mode[j] == Mode.ALLOCATED:
                losers[int(jobs.leaf[j])].append(j)
        for leaf, victims in losers.items():
            loses = ctx.model.new_bool_var(f"loses{leaf}")
            for j in victims:
                ctx.model.add_implication(ctx.e[j], loses)
            ctx.model.add(ctx.granted([leaf]) >= int(budgets.claim[leaf]) * loses)

    def check(self, problem: Problem, decision: Decision) -> Iterator[Violation]:
        """Leaf by leaf."""
        jobs, have = problem.jobs, granted(problem, decision)
        lost: dict[int, list[int]] = defaultdict(list)
        gone = (decision.action == Action.PREEMPT) & (jobs.state == JobState.EVICTABLE) & (jobs.mode == Mode.ALLOCATED)
        for j in np.flatnonzero(gone).tolist():
            lost[int(jobs.leaf[j])].append(j)
        for leaf, gone_jobs in lost.items():
            claim = int(problem.budgets.claim[leaf])
            if have[leaf] < claim:
                yield Violation(
                    self.name,
                    f"budget {problem.budgets.leaf_names[leaf]} loses allocated work and keeps {int(have[leaf])} of "
                    f"the {claim} GPUs it can claim",
                    tuple(jobs.ids[j] for j in gone_jobs),
                )
