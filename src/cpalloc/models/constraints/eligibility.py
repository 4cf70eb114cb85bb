"""Eligibility: GPU types, labels, exclusions, node state, and GPUs of one group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from cpalloc.models.base import Violation
from cpalloc.models.variables import ModelContext
from cpalloc.problem.problem import Decision, Problem


class Eligibility:
    """Starts go to nodes that meet their terms; ``same_gpu_group`` replicas lie in one group of GPUs."""

    name: ClassVar[str] = "eligibility"

    def applies(self, problem: Problem) -> bool:
        """Always."""
        return True

    def build(self, ctx: ModelContext) -> None:
        """Nothing to add: a kind has replica variables on eligible nodes only; groups are capacity."""

    def check(self, problem: Problem, decision: Decision) -> Iterator[Violation]:
        """Replica by replica."""
        jobs, nodes = problem.jobs, problem.nodes
        for j, placement in decision.placement.items():
            allowed = problem.eligibility[jobs.eligibility[j]]
            for rep in placement:
                if rep.node < 0:
                    continue
                name = (nodes.names[rep.node],)
                if not allowed[rep.node]:
                    yield Violation(self.name, f"{jobs.ids[j]} may not run on {name[0]}", (jobs.ids[j],), name)
                if jobs.same_gpu_group[j] and (
                    rep.devices < 0 or not any(rep.devices & ~group == 0 for group in nodes.groups[rep.node])
                ):
                    message = f"a replica of {jobs.ids[j]} on {name[0]} is not in one GPU group"
                    yield Violation(self.name, message, (jobs.ids[j],), name)
