"""Preemption: rules 2 and 6 of policy section 4, and the bound on a round's voluntary preemptions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from cpalloc.models.base import Violation
from cpalloc.models.variables import ModelContext, dot
from cpalloc.problem.problem import Action, Decision, JobState, Mode, Problem


class Preemption:
    """Every voluntary preemption makes room for an allocated start of another budget on a node of the victim."""

    name: ClassVar[str] = "preemption"

    def applies(self, problem: Problem) -> bool:
        """Where anything may be preempted."""
        return bool((problem.jobs.state == JobState.EVICTABLE).any())

    def build(self, ctx: ModelContext) -> None:
        """Preempted ⇒ an allocated replica of another budget on one of the victim's nodes; GPUs preempted ≤ bound.

        Where the partition does not tell a leaf's allocated starts from others' the rule is relaxed to *any* allocated
        start there; the solver refines the partition when that matters. With needed starts only nobody asks.
        """
        jobs, held = ctx.problem.jobs, ctx.problem.held
        cells_of: dict[int, set[int]] = defaultdict(set)
        for job, node in zip(held.job.tolist(), held.node.tolist(), strict=True):
            if job in ctx.e and node in ctx.layout.cell_of:
                cells_of[job].add(ctx.layout.cell_of[node])
        for j, preempted in ctx.e.items() if not ctx.partition.only_needed() else ():
            if ctx.partition.region and j in ctx.partition.gone:
                continue  # whoever it makes room for may be outside
            leaf = int(jobs.leaf[j])
            helpers = [
                ctx.a[k, c]
                for c in sorted(cells_of[j])
                for k in ctx.kinds_on[c]
                if ctx.kind(k).party.mode == Mode.ALLOCATED and ctx.kind(k).party.leaf != leaf
            ]
            ctx.model.add(preempted <= dot([(1, h) for h in helpers]))
        bound = ctx.problem.policy.max_preempted_gpus
        if bound >= 0 and ctx.e:
            ctx.model.add(dot([(int(jobs.size[j]), v) for j, v in ctx.e.items()]) <= bound)

    def check(self, problem: Problem, decision: Decision) -> Iterator[Violation]:
        """Victim by victim, then the sum."""
        jobs, leaf, gone = problem.jobs, problem.jobs.leaf.tolist(), victims(problem, decision)
        served: dict[int, set[int]] = defaultdict(set)  # leaves with an allocated start, node by node
        for j in decision.starts_in(Mode.ALLOCATED):
            for rep in decision.placement[j]:
                served[rep.node].add(leaf[j])
        for j in gone:
            if not any(served[rep.node] - {leaf[j]} for rep in jobs.placement[j] if rep.node >= 0):
                message = f"{jobs.ids[j]} is preempted for no allocated start of another budget on its nodes"
                yield Violation(self.name, message, (jobs.ids[j],))
        bound, total = problem.policy.max_preempted_gpus, int(jobs.size[gone].sum())
        if 0 <= bound < total:
            message = f"{total} GPUs are preempted, at most {bound} may be"
            yield Violation(self.name, message, tuple(jobs.ids[j] for j in gone))


def victims(problem: Problem, decision: Decision) -> list[int]:
    """Jobs preempted without being forced to end."""
    chosen = (decision.action == Action.PREEMPT) & (problem.jobs.state == JobState.EVICTABLE)
    return [int(j) for j in np.flatnonzero(chosen)]
