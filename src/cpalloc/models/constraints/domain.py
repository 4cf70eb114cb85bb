"""Topology: a gang with a required level lies in one domain of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from cpalloc.models.base import Violation
from cpalloc.models.variables import ModelContext
from cpalloc.problem.problem import Decision, Problem


class Domain:
    """All replicas of a start in one domain of its required level."""

    name: ClassVar[str] = "domain"

    def applies(self, problem: Problem) -> bool:
        """Where any job requires a level below the cluster."""
        return bool((problem.jobs.required_level > 0).any())

    def build(self, ctx: ModelContext) -> None:
        """Nothing to add: gangs are counted at domains of their level, and take replicas from below these."""

    def check(self, problem: Problem, decision: Decision) -> Iterator[Violation]:
        """Start by start."""
        jobs, topology = problem.jobs, problem.topology
        for j, placement in decision.placement.items():
            level = int(jobs.required_level[j])
            domains = sorted({int(topology.domain_of[level, r.node]) for r in placement if r.node >= 0})
            if len(domains) > 1:
                yield Violation(
                    self.name,
                    f"{jobs.ids[j]} must lie in one {topology.levels[level]} and spans "
                    f"{', '.join(topology.names[level][d] for d in domains)}",
                    (jobs.ids[j],),
                )
