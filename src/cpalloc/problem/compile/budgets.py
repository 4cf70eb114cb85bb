"""The funding tree as arrays: shares, what is owed, and how far budgets are over it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from cpalloc.entitlement import default_owed, shares
from cpalloc.problem.problem import IntArray
from cpalloc.schema.request import Budget


@dataclass(frozen=True, slots=True)
class Funding:
    """Vertices sorted by name, leaves numbered in that order; arrays as in :class:`Budgets`."""

    names: tuple[str, ...]
    parent: IntArray
    weight: IntArray
    leaf_vertex: IntArray
    leaves_below: tuple[tuple[int, ...], ...]
    share: tuple[Fraction, ...]
    owed: IntArray
    charged: IntArray
    max_gpus: IntArray
    max_borrowed: IntArray

    @property
    def leaf_of(self) -> dict[str, int]:
        """Leaf index by name."""
        return {self.names[int(v)]: i for i, v in enumerate(self.leaf_vertex)}

    @property
    def interior(self) -> frozenset[str]:
        """Names of the vertices that are not leaves."""
        leaves = set(self.leaf_vertex.tolist())
        return frozenset(n for v, n in enumerate(self.names) if v not in leaves)


def funding(budgets: Sequence[Budget], in_service_gpus: int, window_s: int) -> Funding:
    """Read the tree. ``owed`` defaults to share × in-service GPUs × window, floored."""
    rows = sorted(budgets, key=lambda b: b.name)
    index = {b.name: i for i, b in enumerate(rows)}
    parent = [index[b.parent] if b.parent is not None else -1 for b in rows]
    inner = set(parent)
    leaf_vertex = [v for v in range(len(rows)) if v not in inner]
    below: list[list[int]] = [[] for _ in rows]
    for leaf, v in enumerate(leaf_vertex):
        while v >= 0:
            below[v].append(leaf)
            v = parent[v]
    share = shares(parent, [b.weight for b in rows])
    owed = []
    for v in leaf_vertex:
        given = rows[v].owed_gpu_seconds
        owed.append(default_owed(share[v], in_service_gpus, window_s) if given is None else given)
    return Funding(
        names=tuple(b.name for b in rows),
        parent=np.array(parent, dtype=np.int64),
        weight=np.array([b.weight for b in rows], dtype=np.int64),
        leaf_vertex=np.array(leaf_vertex, dtype=np.int64),
        leaves_below=tuple(tuple(x) for x in below),
        share=tuple(share[v] for v in leaf_vertex),
        owed=np.array(owed, dtype=np.int64),
        charged=np.array([rows[v].charged_gpu_seconds for v in leaf_vertex], dtype=np.int64),
        max_gpus=_caps([b.max_gpus for b in rows]),
        max_borrowed=_caps([b.max_borrowed_gpus for b in rows]),
    )


def _caps(values: Sequence[int | None]) -> IntArray:
    return np.array([-1 if v is None else v for v in values], dtype=np.int64)
