"""Fragmentation gradient descent (Weng et al., USENIX ATC'23, section 4) for whole GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from cpalloc.sim.policies.room import Room
from cpalloc.sim.state import State


class Fgd:
    """Every replica goes where the expected fragmentation of its node grows least; ties: the fullest, then by node.

    The fragmentation of a node with f free GPUs is ``f · P(g > f)``: the GPUs that a replica drawn from the workload,
    of g GPUs, could not use there. It can only fall, too, when a node is filled up.
    """

    def __init__(self) -> None:
        self._fragments: list[int] = [0]
        """Per number of free GPUs: f times the replicas of the workload that don't fit into f."""

    @property
    def name(self) -> str:
        """``fgd``."""
        return "fgd"

    def prepare(self, state: State) -> None:
        """Count the replicas of the workload by size."""
        most = max(state.nodes.gpus, default=0)
        larger = [0] * (most + 1)
        for replicas, gpus in zip(state.jobs.replicas, state.jobs.gpus_per_replica, strict=True):
            for free in range(min(gpus, most + 1)):
                larger[free] += replicas
        self._fragments = [free * n for free, n in enumerate(larger)]

    def pack(self, room: Room, replicas: int, gpus: int, nodes: Sequence[int]) -> list[tuple[int, int]] | None:
        """See :class:`cpalloc.sim.policies.placement.Placement`."""
        cost, free = self._fragments, room.gpus
        heap = [(cost[free[n] - gpus] - cost[free[n]], free[n], n) for n in nodes if free[n] >= gpus]
        heapify(heap)
        held: dict[int, int] = {}
        for _ in range(replicas):
            if not heap:
                return None
            _, left, node = heappop(heap)
            held[node] = held.get(node, 0) + gpus
            left -= gpus
            if left >= gpus:
                heappush(heap, (cost[left - gpus] - cost[left], left, node))
        return list(held.items())
