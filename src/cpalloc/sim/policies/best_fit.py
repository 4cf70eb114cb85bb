"""Best-fit placement: every replica into the fullest node that takes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cpalloc.sim.policies.room import Room
from cpalloc.sim.state import State


@dataclass(frozen=True, slots=True)
class BestFit:
    """Replica by replica, each into the node with the fewest free GPUs that still takes it; ties by node."""

    name: str = "best-fit"

    def prepare(self, state: State) -> None:
        """Nothing to prepare."""

    def pack(self, room: Room, replicas: int, gpus: int, nodes: Sequence[int]) -> list[tuple[int, int]] | None:
        """See :class:`cpalloc.sim.policies.placement.Placement`."""
        free = room.gpus
        packed = []
        # The node that took a replica is the fullest still, so that nodes are filled one after the other.
        for room_left, node in sorted([(free[node], node) for node in nodes if free[node] >= gpus]):
            here = min(replicas, room_left // gpus)
            packed.append((node, here * gpus))
            replicas -= here
            if not replicas:
                return packed
        return None
