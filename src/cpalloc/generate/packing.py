"""Placing gangs as a sane scheduler would: best fit, bottom up in the tree."""

from __future__ import annotations

import numpy as np

from cpalloc.generate.cluster import ClusterPlan, IntArray
from cpalloc.generate.sizes import Shape


class Packer:
    """Which GPUs are free, and where the next gang goes."""

    def __init__(self, cluster: ClusterPlan) -> None:
        up = cluster.state != 2
        self.free: IntArray = np.where(up, cluster.healthy_gpus, 0)
        self._cpus: IntArray | None = None if cluster.cpus is None else cluster.cpus.copy()
        self._devices = [list(h) if ok else [] for h, ok in zip(cluster.healthy, up.tolist(), strict=True)]
        self._rack, self._block = cluster.rack, cluster.block
        self._rack_free: IntArray = np.bincount(self._rack, weights=self.free).astype(np.int64)
        self._members = [np.flatnonzero(cluster.pool == p) for p in range(len(cluster.pools))]

    def place(self, shape: Shape, pool: int, *, level: str | None = None, cpu: int = 0) -> list[tuple[int, list[int]]]:
        """Place a gang in the tightest domain that holds it.

        Parameters
        ----------
        shape : Shape
        pool : int
            The pool whose nodes may be used.
        level : {"rack", "block"}, optional
            Required level.
        cpu : int
            CPUs per replica.

        Returns
        -------
        list of (int, list of int)
            Node and devices of each replica; empty when the gang does not fit.
        """
        members = self._members[pool]
        if shape.replicas == 1:
            nodes = self._one_node(members, shape.gpus, cpu)
        else:
            nodes = self._gang(members, shape, level, cpu)
        return [(n, self._take(n, shape.gpus, cpu)) for n in nodes]

    def _one_node(self, members: IntArray, gpus: int, cpu: int) -> list[int]:
        """The fullest node that holds it, in the fullest rack."""
        free = self.free[members]
        fits = free >= gpus
        if self._cpus is not None:
            fits &= self._cpus[members] >= cpu
        candidates = members[fits]
        if not candidates.size:
            return []
        rack_free = self._rack_free[self._rack[candidates]]
        return [int(candidates[np.argmin(self.free[candidates] * (int(self._rack_free.max()) + 1) + rack_free)])]

    def _gang(self, members: IntArray, shape: Shape, level: str | None, cpu: int) -> list[int]:
        """One rack if one holds it, else one block, else several; the fewest domains, the tightest first."""
        slots = self.free[members] // shape.gpus
        if self._cpus is not None and cpu:
            slots = np.minimum(slots, self._cpus[members] // cpu)
        members, slots = members[slots > 0], slots[slots > 0]
        if int(slots.sum()) < shape.replicas:
            return []
        in_rack = _sums(self._rack[members], slots)
        in_block = _sums(self._block[members], slots)
        chosen = _tightest(in_rack, self._rack[members], shape.replicas)
        if chosen is None and level != "rack":
            chosen = _tightest(in_block, self._block[members], shape.replicas)
        if chosen is None:
            if level is not None:
                return []
            chosen = np.ones(members.size, dtype=np.bool_)
        members, slots = members[chosen], slots[chosen]
        rack, block = self._rack[members], self._block[members]
        order = np.lexsort((members, rack, -in_rack[rack], block, -in_block[block]))
        return [int(n) for n in np.repeat(members[order], slots[order])[: shape.replicas]]

    def _take(self, n: int, gpus: int, cpu: int) -> list[int]:
        devices, self._devices[n] = self._devices[n][:gpus], self._devices[n][gpus:]
        self._count(n, gpus, cpu)
        return devices

    def _count(self, n: int, gpus: int, cpu: int) -> None:
        self.free[n] -= gpus
        self._rack_free[self._rack[n]] -= gpus
        if self._cpus is not None:
            self._cpus[n] -= cpu


def _sums(domain: IntArray, slots: IntArray) -> IntArray:
    return np.bincount(domain, weights=slots).astype(np.int64)


def _tightest(sums: IntArray, domain: IntArray, need: int) -> np.typing.NDArray[np.bool_] | None:
    """Mask of the nodes of the domain with the fewest slots among those that have enough."""
    enough = np.flatnonzero(sums >= need)
    if not enough.size:
        return None
    mask: np.typing.NDArray[np.bool_] = domain == enough[np.argmin(sums[enough])]
    return mask
