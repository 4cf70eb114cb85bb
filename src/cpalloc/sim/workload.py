"""What a simulation replays: a cluster, budgets, jobs with the work they bring, and what happens to the nodes.

Simulated time is whole seconds since ``Workload.epoch`` (``*_s``). Everything is frozen: a run never changes its
workload, so that many policies can replay the same one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from cpalloc.schema import Budget, Cluster
from cpalloc.schema.types import Funding, JobKind, NodeState, Priority


class Provenance(StrEnum):
    """Where the figures of a workload come from; printed with every table, page and document, never mixed."""

    CONSTRUCTED = "constructed"
    TRACE = "trace"
    LIVE = "live"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkJob:
    """A job as it will be submitted, and what the scheduler cannot know: how long it really has to run.

    Parameters
    ----------
    id, budget : str
        Unique id; the leaf budget (the team) that pays.
    submitted_s : int
        When it is submitted, seconds since the workload's epoch.
    replicas, gpus_per_replica : int
        The gang; all replicas start together.
    work_s : int
        Seconds of running it needs in all, without interruptions, restarts and waits. 0 is allowed: it ends at once.
    order : int
        Breaks ties of equal ``submitted_s`` (the position in the trace).
    min_runtime_s, timeout_s, resumable, restart_cost_s, funding, priority, kind, gpu_types
        As on the wire; ``timeout_s`` -1: none. A job whose work is longer than its timeout ends at the timeout.
    required_level, preferred_level : str, optional
        Level of the topology inside one domain of which the gang must, or should, lie.
    checkpoint_interval_s : int
        A resumable job saves its progress each time it has run this long since its start (0: continuously).
    wants_opt_out, inflates : bool
        Behaviour under the policy ``priority`` only: asks not to be preempted; shouts a higher class than it has.
    """

    id: str
    budget: str
    submitted_s: int
    replicas: int
    gpus_per_replica: int
    work_s: int
    order: int = 0
    user: str = ""
    priority: Priority = Priority.NORMAL
    kind: JobKind = JobKind.BATCH
    min_runtime_s: int = 0
    timeout_s: int = -1
    resumable: bool = False
    restart_cost_s: int = 0
    checkpoint_interval_s: int = 0
    funding: Funding | None = None
    gpu_types: tuple[str, ...] | None = None
    required_level: str | None = None
    preferred_level: str | None = None
    wants_opt_out: bool = False
    inflates: bool = False

    @property
    def size(self) -> int:
        """GPUs of the whole gang."""
        return self.replicas * self.gpus_per_replica

    @property
    def may_allocate(self) -> bool:
        """Whether it is ever allocated (charged and protected): policy section 2."""
        return self.min_runtime_s > 0 and self.funding is not Funding.BORROWED


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """A node changes its state: a drain, a repair, a failure."""

    at_s: int
    node: str
    state: NodeState


@dataclass(frozen=True, slots=True)
class BudgetChange:
    """The funding tree is replaced. Charges of leaves that stay are kept."""

    at_s: int
    budgets: tuple[Budget, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Everything a policy is confronted with.

    Parameters
    ----------
    provenance : Provenance
        Where its jobs come from; ``notes`` says what was filled in by which recipe and seed.
    jobs : tuple of WorkJob
        In order of (submitted_s, order, id).
    team_nodes : mapping of str to tuple of str
        Nodes of each leaf under policies that partition the cluster; empty: derived from the shares.
    """

    name: str
    provenance: Provenance
    epoch: datetime
    cluster: Cluster
    budgets: tuple[Budget, ...]
    jobs: tuple[WorkJob, ...]
    node_events: tuple[NodeEvent, ...] = ()
    budget_changes: tuple[BudgetChange, ...] = ()
    team_nodes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
