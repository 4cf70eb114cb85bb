"""Consolidated placement: as few nodes as possible, or wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cpalloc.sim.policies.room import Room
from cpalloc.sim.state import State


@dataclass(frozen=True, slots=True)
class Consolidate:
    """A gang that fits into one node goes whole into the fullest node with room for it, and waits for one.

    A larger one takes wholly free nodes, as many as it fills; replicas left over go to the nodes with the most room.
    This is how the published replays of the Helios traces place.
    """

    name: str = "consolidate"

    def prepare(self, state: State) -> None:
        """Nothing to prepare."""

    def pack(self, room: Room, replicas: int, gpus: int, nodes: Sequence[int]) -> list[tuple[int, int]] | None:
        """See :class:`cpalloc.sim.policies.placement.Placement`."""
        size, free = replicas * gpus, room.gpus
        fullest, least = -1, 1 << 62
        for node in nodes:
            if size <= free[node] < least:
                fullest, least = node, free[node]
        if fullest >= 0:
            return [(fullest, size)]
        largest = max([room.installed[node] for node in nodes], default=0)
        return None if size <= largest else _spread(room, replicas, gpus, nodes, largest)


def _spread(room: Room, replicas: int, gpus: int, nodes: Sequence[int], largest: int) -> list[tuple[int, int]] | None:
    """Fill wholly free nodes of the largest kind, then put what is left where the most room is."""
    free, each = room.gpus, largest // gpus
    if not each:
        return None
    filled = replicas * gpus // largest
    whole = [node for node in nodes if free[node] == largest][:filled]
    if len(whole) < filled:
        return None
    packed = [(node, each * gpus) for node in whole]
    left = replicas - filled * each
    if left:
        used = set(whole)
        for node in sorted((n for n in nodes if n not in used), key=lambda n: (-free[n], n)):
            here = min(left, free[node] // gpus)
            if not here:
                break
            packed.append((node, here * gpus))
            left -= here
            if not left:
                break
    return None if left else packed
