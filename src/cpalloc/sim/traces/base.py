"""What a trace reader returns: jobs as far as the trace knows them, and what it says about the cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime

from cpalloc.schema import Budget, Cluster, Node
from cpalloc.sim.workload import Provenance, WorkJob, Workload
from cpalloc.topology.naming import as_id

ALWAYS_KNOWN = frozenset({"id", "budget", "submitted_s", "replicas", "gpus_per_replica", "work_s", "order"})
"""Fields of :class:`WorkJob` that every trace must give."""

JOB_FIELDS = tuple(f.name for f in fields(WorkJob))
"""All fields of :class:`WorkJob`, in its order."""

NO_TEAM = "all"
"""Budget of the jobs of a trace without teams."""

GPU_TYPE = "gpu"
"""GPU type of nodes where the trace has only one and does not say which."""

WEIGHT_OF_A_NODE = 1_000
"""Budget weight per node, so that a team without nodes can have the smallest share there is: weight 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """What is known of the cluster a trace ran on.

    Parameters
    ----------
    nodes : tuple of Node
    levels : tuple of str
        Levels of the topology, coarse to fine; empty: unknown.
    team_nodes : mapping of str to tuple of str
        The nodes each team has for itself; empty: unknown.
    """

    nodes: tuple[Node, ...]
    levels: tuple[str, ...] = ()
    team_nodes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A trace as it was read, before anything is filled in.

    Parameters
    ----------
    epoch : datetime
        Instant 0 of all ``*_s``: the midnight on or before the first submission.
    jobs : tuple of WorkJob
        Sorted by (submitted_s, order, id). Fields that are not in ``known`` have their defaults.
    known : frozenset of str
        Fields of :class:`WorkJob` that the trace itself says; a recipe leaves them alone.
    facts : ClusterFacts
    notes : tuple of str
        What was counted, rounded, merged or assumed while reading.
    """

    name: str
    epoch: datetime
    jobs: tuple[WorkJob, ...]
    facts: ClusterFacts
    known: frozenset[str] = ALWAYS_KNOWN
    notes: tuple[str, ...] = ()

    def as_workload(self) -> Workload:
        """The trace as it stands: nothing is filled in, jobs have the defaults of :class:`WorkJob`.

        Budgets are one leaf per team, weighed by its nodes, or by its GPU-seconds where no nodes are known.
        """
        weights = team_weights(self)
        return Workload(
            name=self.name,
            provenance=Provenance.TRACE,
            epoch=self.epoch,
            cluster=Cluster(name=as_id(self.name), levels=self.facts.levels, nodes=self.facts.nodes),
            budgets=tuple(Budget(name=team, weight=weight) for team, weight in weights.items()),
            jobs=self.jobs,
            team_nodes=dict(self.facts.team_nodes),
            notes=self.notes + self.facts.notes + nodeless_notes(self),
        )


def team_weights(trace: Trace) -> dict[str, int]:
    """Weight of every team, sorted by name: 1,000 a node, or in proportion to GPU-seconds where no nodes are known.

    A team without nodes (or work) has weight 1, so that its jobs can run at all.
    """
    work_s: dict[str, int] = dict.fromkeys(trace.facts.team_nodes, 0)
    for job in trace.jobs:
        work_s[job.budget] = work_s.get(job.budget, 0) + job.size * job.work_s
    if trace.facts.team_nodes:
        nodes = {team: len(names) for team, names in trace.facts.team_nodes.items()}
        return {team: max(1, WEIGHT_OF_A_NODE * nodes.get(team, 0)) for team in sorted(work_s)}
    total = max(1, sum(work_s.values()))
    return {team: max(1, round(work_s[team] / total * 1_000_000)) for team in sorted(work_s)}


def nodeless_notes(trace: Trace) -> tuple[str, ...]:
    """Say how many teams have jobs but no nodes, where teams have nodes."""
    without = {job.budget for job in trace.jobs} - trace.facts.team_nodes.keys() if trace.facts.team_nodes else set()
    return (f"{len(without)} teams have no nodes: the smallest share there is, weight 1",) if without else ()
