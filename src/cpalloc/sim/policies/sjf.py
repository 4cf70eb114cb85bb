"""Shortest job first, an oracle: it knows how long jobs will run."""

from __future__ import annotations

from cpalloc.sim.policies.consolidate import Consolidate
from cpalloc.sim.policies.placement import Placement
from cpalloc.sim.policies.queues import QueuePolicy
from cpalloc.sim.state import State


def sjf(placement: Placement | None = None, *, partitioned: bool = False, name: str = "sjf") -> QueuePolicy:
    """By the seconds a job still needs, strictly: the shortest that does not fit blocks all others."""
    return QueuePolicy(name, by_need, placement or Consolidate(), partitioned=partitioned)


def by_need(state: State, job: int) -> int:
    """Seconds of running it needs."""
    return state.needed_s(job)
