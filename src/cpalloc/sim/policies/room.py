"""Free GPUs as a policy tries its moves on them, and the nodes it may use."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

from cpalloc.problem.problem import NodeState
from cpalloc.sim.columns import NO_LEVEL
from cpalloc.sim.state import NodePlaces, State


class Room:
    """A copy of the free GPUs per node, to take from and give back to while a round is being decided.

    ``gpus`` and ``devices`` (bitmasks) are free, ``installed`` are all GPUs of a node.
    """

    __slots__ = ("_state", "devices", "gpus", "installed")

    def __init__(self, state: State, *, empty: bool = False) -> None:
        """Copy what is free now; ``empty``: as if every node was ready and nothing ran."""
        self._state = state
        self.installed = state.nodes.gpus
        self.devices = list(state.nodes.healthy if empty else state.free_devices)
        self.gpus = [mask.bit_count() for mask in self.devices] if empty else list(state.free_gpus)

    def copy(self) -> Room:
        """One to try something on."""
        other = copy(self)
        other.devices, other.gpus = list(self.devices), list(self.gpus)
        return other

    def take(self, places: NodePlaces) -> None:
        """Use GPUs that are free."""
        for node, devices in places:
            self.devices[node] &= ~devices
            self.gpus[node] = self.devices[node].bit_count()

    def give(self, places: NodePlaces) -> None:
        """Free the GPUs of a job; those of nodes out of service and broken ones stay out of use."""
        for node, devices in places:
            if self._state.node_state[node] is NodeState.READY:
                self.devices[node] |= devices & self._state.nodes.healthy[node]
                self.gpus[node] = self.devices[node].bit_count()

    def pick(self, node: int, gpus: int) -> int:
        """Bitmask of the first ``gpus`` free GPUs of a node."""
        left = self.devices[node]
        if gpus == self.gpus[node]:
            return left
        for _ in range(gpus):
            left &= left - 1
        return self.devices[node] & ~left


class Area:
    """Nodes a queue may use, and their parts that a gang may lie in: one pool and, where asked for, one domain."""

    def __init__(self, state: State, nodes: Sequence[int]) -> None:
        self.nodes = tuple(nodes)
        self._parts: dict[tuple[tuple[int, ...], int, int], tuple[tuple[tuple[int, ...], ...], ...]] = {}
        self._state = state

    def free_gpus(self, room: Room) -> int:
        """Free GPUs of the area."""
        gpus = room.gpus
        return sum([gpus[node] for node in self.nodes])

    def in_service_gpus(self) -> int:
        """Healthy GPUs of the area's ready nodes."""
        state = self._state
        ready = (node for node in self.nodes if state.node_state[node] is NodeState.READY)
        return sum(state.nodes.healthy[node].bit_count() for node in ready)

    def parts(self, job: int) -> tuple[tuple[tuple[int, ...], ...], ...]:
        """Parts a job may lie in: those of its preferred level first, then those of its required one."""
        jobs = self._state.jobs
        key = (jobs.pools[job], jobs.required_level[job], jobs.preferred_level[job])
        if key not in self._parts:
            pools, required, preferred = key
            tiers = [self._split(pools, (required,))]
            if preferred != NO_LEVEL:
                tiers.insert(0, self._split(pools, (required, preferred)))
            self._parts[key] = tuple(tiers)
        return self._parts[key]

    def _split(self, pools: tuple[int, ...], levels: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
        columns = self._state.nodes
        parts: dict[tuple[int, ...], list[int]] = {}
        for node in self.nodes:
            if columns.pool[node] in pools:
                key = (columns.pool[node], *(columns.domain_of[level][node] for level in levels))
                parts.setdefault(key, []).append(node)
        return tuple(tuple(nodes) for nodes in parts.values())
