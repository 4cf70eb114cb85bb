"""Nodes of the request as arrays, and what running jobs hold on them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from cpalloc.problem.problem import IntArray, NodeState
from cpalloc.schema.request import Node

_STATE = {"ready": NodeState.READY, "draining": NodeState.DRAINING, "down": NodeState.DOWN}


def mask_of(devices: Sequence[int]) -> int:
    """Bitmask of device indices."""
    mask = 0
    for d in devices:
        mask |= 1 << d
    return mask


@dataclass(frozen=True, slots=True)
class Hardware:
    """The nodes themselves, before any job is looked at; arrays as in :class:`Nodes`.

    ``labelled`` are the indices of the nodes with a label of some value, by (label, value).
    """

    names: tuple[str, ...]
    index: Mapping[str, int]
    pool_names: tuple[str, ...]
    pool: IntArray
    state: IntArray
    gpus: IntArray
    healthy: IntArray
    healthy_devices: tuple[int, ...]
    resource_names: tuple[str, ...]
    resources: IntArray
    groups: tuple[tuple[int, ...], ...]
    labels: tuple[Mapping[str, str], ...]
    labelled: Mapping[tuple[str, str], Sequence[int]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        labelled: dict[tuple[str, str], list[int]] = defaultdict(list)
        for n, labels in enumerate(self.labels):
            for label in labels.items():
                labelled[label].append(n)
        object.__setattr__(self, "labelled", dict(labelled))


def hardware(nodes: Sequence[Node], asked_for: Iterable[str]) -> Hardware:
    """Arrays of the nodes, sorted by name. Resources are all that a node has or that are asked for."""
    rows = sorted(nodes, key=lambda n: n.name)
    pools = sorted({n.gpu_type for n in rows})
    pool_index = {p: i for i, p in enumerate(pools)}
    names = sorted({r for n in rows for r in n.resources}.union(asked_for))
    healthy_devices = tuple(((1 << n.gpus) - 1) & ~mask_of(n.unhealthy_gpus) for n in rows)
    return Hardware(
        names=tuple(n.name for n in rows),
        index={n.name: i for i, n in enumerate(rows)},
        pool_names=tuple(pools),
        pool=np.array([pool_index[n.gpu_type] for n in rows], dtype=np.int64),
        state=np.array([_STATE[n.state] for n in rows], dtype=np.int64),
        gpus=np.array([n.gpus for n in rows], dtype=np.int64),
        healthy=np.array([m.bit_count() for m in healthy_devices], dtype=np.int64),
        healthy_devices=healthy_devices,
        resource_names=tuple(names),
        resources=np.array([[n.resources.get(r, 0) for r in names] for n in rows], dtype=np.int64).reshape(
            len(rows), len(names)
        ),
        groups=tuple(_groups(n) for n in rows),
        labels=tuple(n.labels for n in rows),
    )


def _groups(node: Node) -> tuple[int, ...]:
    """Masks of the GPU groups; GPUs in no group are a group each. Without groups all GPUs are one."""
    if not node.gpu_groups:
        return ((1 << node.gpus) - 1,)
    masks = [mask_of(g) for g in node.gpu_groups if g]
    joined = sum(masks)
    return tuple(masks + [1 << d for d in range(node.gpus) if not joined >> d & 1])
