"""Budget limits: caps on allocated and on borrowed GPUs, at any level of the tree."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from cpalloc.models.base import Violation
from cpalloc.models.variables import ModelContext
from cpalloc.problem.grants import borrowed, granted
from cpalloc.problem.problem import Action, Decision, JobState, Mode, Problem


class Limits:
    """Caps bind starts and promotions; they never preempt."""

    name: ClassVar[str] = "limits"

    def applies(self, problem: Problem) -> bool:
        """Where any budget has a cap."""
        return bool((problem.budgets.max_gpus >= 0).any() or (problem.budgets.max_borrowed >= 0).any())

    def build(self, ctx: ModelContext) -> None:
        """For every capped vertex v and mode: something new below v ⇒ kept + new GPUs of the mode below v ≤ cap."""
        budgets, jobs, model = ctx.problem.budgets, ctx.problem.jobs, ctx.model
        for mode, caps in ((Mode.ALLOCATED, budgets.max_gpus), (Mode.BORROWED, budgets.max_borrowed)):
            for vertex in np.flatnonzero(caps >= 0).tolist():
                leaves = budgets.leaves_below[vertex]
                below = np.isin(jobs.leaf, leaves)
                new = [v for (j, m), v in ctx.y.items() if m is mode and below[j]]
                if mode is Mode.ALLOCATED:
                    new += [v for j, v in ctx.p.items() if below[j]]
                if not new:
                    continue
                total = ctx.granted(leaves) if mode is Mode.ALLOCATED else ctx.borrowed(leaves)
                cap = int(caps[vertex])
                runs = (jobs.state == JobState.FIXED) | (jobs.state == JobState.EVICTABLE)
                kept = int(jobs.size[below & runs & (jobs.mode == mode)].sum())
                if kept <= cap:
                    model.add(total <= cap)
                    continue
                for start in new:
                    model.add(total <= cap).only_enforce_if(start)

    def check(self, problem: Problem, decision: Decision) -> Iterator[Violation]:
        """Vertex by vertex."""
        budgets, jobs = problem.budgets, problem.jobs
        starts = decision.action == Action.START
        for mode, caps, have, fresh in (
            (Mode.ALLOCATED, budgets.max_gpus, granted(problem, decision), starts | decision.promoted),
            (Mode.BORROWED, budgets.max_borrowed, borrowed(problem, decision), starts),
        ):
            for vertex in np.flatnonzero(caps >= 0).tolist():
                leaves = list(budgets.leaves_below[vertex])
                new = np.flatnonzero(fresh & (decision.mode == mode) & np.isin(jobs.leaf, leaves)).tolist()
                total = int(have[leaves].sum())
                if new and total > caps[vertex]:
                    have_now = f"would hold {total} {mode.name.lower()} GPUs"
                    message = f"budget {budgets.names[vertex]} {have_now}, at most {int(caps[vertex])}"
                    yield Violation(self.name, message, tuple(jobs.ids[j] for j in new))
