"""What the tables take from the round, because an allocation does not repeat it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class JobFacts:
    """Budget, size and funding state of a job."""

    budget: str
    replicas: int
    gpus_per_replica: int

    @property
    def gpus(self) -> int:
        """GPUs of the whole gang."""
        return self.replicas * self.gpus_per_replica

    @property
    def size(self) -> str:
        """GPUs, and the shape of a gang."""
        return str(self.gpus) if self.replicas == 1 else f"{self.gpus} ({self.replicas}×{self.gpus_per_replica})"


@dataclass(frozen=True, slots=True)
class Context:
    """Jobs by id, and the domains of nodes: from fine to coarse, by node name."""

    jobs: Mapping[str, JobFacts] = field(default_factory=dict)
    domains: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def domains_of(self, nodes: Iterable[str]) -> list[str]:
        """Name the domains some nodes lie in, on the finest level on which there are at most four, or the coarsest."""
        chains = [self.domains[node] for node in set(nodes) if self.domains.get(node)]
        depth = max(map(len, chains), default=0)
        found: set[str] = set()
        for level in range(depth):
            found = {chain[min(level, len(chain) - 1)] for chain in chains}
            if len(found) <= 4:
                break
        return sorted(found)


def context_of(document: Mapping[str, Any]) -> Context:
    """Pick the facts from a round that was solved, so that it is known to be well-formed.

    A cluster given as a graph has no domains here.
    """
    jobs = {
        job["id"]: JobFacts(job["budget"], job["replicas"], job["gpus_per_replica"]) for job in document.get("jobs", ())
    }
    cluster = document.get("cluster", {})
    fine_first = tuple(reversed(cluster.get("levels", ())))
    domains: dict[str, tuple[str, ...]] = {}
    for node in cluster.get("nodes", ()):
        own = node.get("domains", {})
        domains[node["name"]] = tuple(own[level] for level in fine_first if level in own)
    return Context(jobs, domains)
