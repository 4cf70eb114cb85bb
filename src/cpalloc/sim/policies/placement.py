"""Where a gang goes: the Protocol of placements, and what they have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from cpalloc.sim.policies.room import Area, Room
from cpalloc.sim.state import NodePlaces, State


class Placement(Protocol):
    """Chooses nodes for a gang. It may be prepared once, and keeps nothing from one gang to the next."""

    @property
    def name(self) -> str:
        """The name in tables and files, e.g. ``best-fit``."""
        ...

    def prepare(self, state: State) -> None:
        """See the workload once, before the first round."""
        ...

    def pack(self, room: Room, replicas: int, gpus: int, nodes: Sequence[int]) -> list[tuple[int, int]] | None:
        """Choose nodes for ``replicas`` of ``gpus`` GPUs each.

        Parameters
        ----------
        room : Room
            What is free.
        replicas, gpus : int
        nodes : sequence of int
            The nodes of one part of an area, ascending.

        Returns
        -------
        list of (node, GPUs), or None
            Each node once, with whole replicas; None where the gang does not fit.
        """
        ...


def place(placement: Placement, state: State, room: Room, area: Area, job: int) -> NodePlaces | None:
    """Find places for a job in an area, in the fullest part that takes it; None where there is none."""
    jobs = state.jobs
    if area.free_gpus(room) < jobs.size[job]:
        return None
    for tier in area.parts(job):
        parts = tier if len(tier) == 1 else sorted(tier, key=lambda nodes: sum(room.gpus[n] for n in nodes))
        for nodes in parts:
            packed = placement.pack(room, jobs.replicas[job], jobs.gpus_per_replica[job], nodes)
            if packed is not None:
                return tuple((node, room.pick(node, gpus)) for node, gpus in packed)
    return None
