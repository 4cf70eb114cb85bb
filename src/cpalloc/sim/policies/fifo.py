"""First in, first out; the first that does not fit blocks all others."""

from __future__ import annotations

from cpalloc.sim.policies.consolidate import Consolidate
from cpalloc.sim.policies.placement import Placement
from cpalloc.sim.policies.queues import QueuePolicy
from cpalloc.sim.state import State


def fifo(placement: Placement | None = None, *, partitioned: bool = False, name: str = "fifo") -> QueuePolicy:
    """By submission, strictly; ``partitioned``: inside each team's own nodes."""
    return QueuePolicy(name, by_submission, placement or Consolidate(), partitioned=partitioned)


def by_submission(state: State, job: int) -> int:
    """All alike: the index of a job is its place in the order of submission."""
    return 0
