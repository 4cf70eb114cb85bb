"""Where running jobs lie, as arrays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from cpalloc.problem.compile.nodes import Hardware, mask_of
from cpalloc.problem.problem import IntArray, Replica
from cpalloc.problem.replicas import Share, by_node
from cpalloc.schema.request import Placement


@dataclass(frozen=True, slots=True)
class Lies:
    """Where one job runs.

    ``here`` is what it has on the listed nodes, by node. ``faults`` are (code, key below the job, message).
    """

    replicas: tuple[Replica, ...]
    here: tuple[Share, ...]
    faults: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True)
class Stays:
    """One row per (running job, listed node), by job and node; ``devices`` -1: unknown."""

    job: IntArray
    node: IntArray
    replicas: IntArray
    gpus: IntArray
    devices: tuple[int, ...]


NOWHERE = Lies((), (), ())
"""Where a pending job is."""


def read_placement(placement: Sequence[Placement], hw: Hardware) -> Lies:
    """Find the nodes of a placement."""
    replicas, faults = [], []
    for i, entry in enumerate(placement):
        node = hw.index.get(entry.node, -1)
        if node < 0:
            message = f"node {entry.node} is not in the snapshot; the job is kept and takes no capacity there"
            faults.append(("node_missing", f"running.placement[{i}].node", message))
        if isinstance(entry.gpus, int):
            replicas.append(Replica(node, entry.gpus, -1))
            continue
        mask = mask_of(entry.gpus)
        if node >= 0 and mask & ~hw.healthy_devices[node]:
            message = f"runs on an unhealthy GPU of {entry.node}"
            faults.append(("unhealthy_gpu", f"running.placement[{i}].gpus", message))
        replicas.append(Replica(node, len(entry.gpus), mask))
    replicas.sort(key=lambda r: (r.node, r.devices))
    return Lies(tuple(replicas), by_node(replicas), tuple(faults))


def stays_of(here: Iterable[Sequence[Share]]) -> Stays:
    """Rows of all jobs, from what each has on its nodes."""
    rows = [(j, *share) for j, shares in enumerate(here) for share in shares]
    job, node, replicas, gpus, devices = zip(*rows, strict=True) if rows else ((), (), (), (), ())
    numbers = np.array([job, node, replicas, gpus], dtype=np.int64)
    return Stays(numbers[0], numbers[1], numbers[2], numbers[3], devices)
