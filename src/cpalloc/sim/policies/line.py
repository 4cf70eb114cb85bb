"""Pending jobs in order, alike ones together, so that the first that cannot start settles all that are like it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from heapq import heapify, heappop, heappush

from cpalloc.sim.state import State

Entry = tuple[int, int]
"""(order, job): small is first."""


class Line:
    """A queue of jobs of many kinds; it costs what its kinds cost, not what its jobs do."""

    __slots__ = ("_kinds",)

    def __init__(self) -> None:
        self._kinds: dict[Hashable, list[Entry]] = {}

    def add(self, job: int, order: int, kind: Hashable) -> None:
        """Put a job where its order says; ties by index."""
        heappush(self._kinds.setdefault(kind, []), (order, job))

    def serve(self, start: Callable[[int], bool], *, strict: bool) -> None:
        """Offer the jobs in order until none is left.

        Parameters
        ----------
        start : callable
            Whether the job starts; then it leaves the line. What is said of one holds for the rest of its kind.
        strict : bool
            The first that does not start ends it all.
        """
        heads = [(entries[0], i, kind) for i, (kind, entries) in enumerate(self._kinds.items())]
        heapify(heads)
        while heads:
            (_, job), i, kind = heappop(heads)
            if start(job):
                entries = self._kinds[kind]
                heappop(entries)
                if entries:
                    heappush(heads, (entries[0], i, kind))
                else:
                    del self._kinds[kind]
            elif strict:
                return


def shape_of(state: State, job: int) -> Hashable:
    """What decides whether a job can be placed: jobs of one shape fit or don't fit alike."""
    jobs = state.jobs
    return jobs.replicas[job], jobs.gpus_per_replica[job], jobs.pools[job], jobs.required_level[job]
