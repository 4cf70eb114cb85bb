"""Every team its own nodes, as clusters without budgets are run."""

from __future__ import annotations

from cpalloc.sim.policies.best_fit import BestFit
from cpalloc.sim.policies.placement import Placement
from cpalloc.sim.policies.queues import QueuePolicy
from cpalloc.sim.state import State


def partition(placement: Placement | None = None, *, backfill: bool = True, name: str = "partition") -> QueuePolicy:
    """By priority class, then submission, inside the nodes of each team; jobs may overtake one that does not fit.

    The nodes are the workload's ``team_nodes``, otherwise whole nodes by share, dealt anew when budgets change.
    """
    return QueuePolicy(name, by_class, placement or BestFit(), partitioned=True, backfill=backfill)


def by_class(state: State, job: int) -> int:
    """Higher classes first."""
    return -state.jobs.priority[job]
