"""Replicas of one job put together by node."""

from __future__ import annotations

from collections.abc import Iterable

from cpalloc.problem.problem import Replica

Share = tuple[int, int, int, int]
"""What a job has on a node: node, replicas, GPUs, device bitmask (-1 where devices of any replica are unknown)."""


def by_node(replicas: Iterable[Replica]) -> tuple[Share, ...]:
    """What a job has on each listed node, in the order of the replicas."""
    here: dict[int, Share] = {}
    for rep in replicas:
        if rep.node >= 0:
            n, count, gpus, mask = here.get(rep.node, (rep.node, 0, 0, 0))
            here[n] = n, count + 1, gpus + rep.gpus, -1 if mask < 0 or rep.devices < 0 else mask | rep.devices
    return tuple(here.values())
