"""The funding tree the fills work on: plain integers, no arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import index

NO_CAP = -1
"""``cap`` of a vertex without one, and ``parent`` of a root."""


@dataclass(frozen=True)
class Tree:
    """A forest of budgets under one implicit root (-1).

    Leaves are the vertices without children, numbered in vertex order; everything per leaf follows that numbering.
    Any integer type is accepted (numpy's too) and kept as ``int``, which cannot overflow.

    Parameters
    ----------
    names
        Per vertex, unique; break ties.
    parent
        Per vertex, index of the parent, -1 for roots. Parents may come after their children.
    owed, charged
        Per leaf, in GPU-seconds of the window, at least 0.
    cap
        Per vertex, most allocated GPUs its leaves may claim together, -1 for none; empty for no caps at all. What is
        protected is never cut by a cap.

    Attributes
    ----------
    leaves
        Vertex of each leaf.
    by_depth
        Vertices by depth, roots first; in vertex order inside a depth.

    Raises
    ------
    ValueError
        When lengths disagree, an amount is negative, or ``parent`` is not a forest.
    """

    names: Sequence[str]
    parent: Sequence[int]
    owed: Sequence[int]
    charged: Sequence[int]
    cap: Sequence[int] = ()
    leaves: tuple[int, ...] = field(init=False, repr=False, compare=False)
    by_depth: tuple[tuple[int, ...], ...] = field(init=False, repr=False, compare=False)
    _children: tuple[tuple[int, ...], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        size = len(self.names)
        self._keep("names", tuple(self.names))
        self._keep("parent", integers("parent", self.parent, size, -1))
        self._keep("cap", integers("cap", self.cap if len(self.cap) else [NO_CAP] * size, size, NO_CAP))
        below = children(self.parent)
        self._keep("_children", tuple(tuple(c) for c in below[:-1]))
        self._keep("leaves", tuple(v for v in range(size) if not below[v]))
        self._keep("by_depth", tuple(tuple(d) for d in depths(below)))
        self._keep("owed", integers("owed", self.owed, len(self.leaves), 0))
        self._keep("charged", integers("charged", self.charged, len(self.leaves), 0))

    def _keep(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def children(self, vertex: int) -> tuple[int, ...]:
        """Children of a vertex in vertex order; of the implicit root for -1."""
        if vertex < 0:
            return self.by_depth[0] if self.by_depth else ()
        return self._children[vertex]

    def bottom_up(self) -> Iterator[int]:
        """Yield every vertex after its children."""
        for vertices in reversed(self.by_depth):
            yield from vertices

    def totals(self, per_leaf: Sequence[int], limit: Mapping[int, int] | None = None) -> list[int]:
        """Per vertex, the sum of a quantity over its leaves, where no vertex passes up more than its ``limit``."""
        limit = limit or {}
        total = [0] * len(self.names)
        for leaf, amount in zip(self.leaves, per_leaf, strict=True):
            total[leaf] = amount
        for v in self.bottom_up():
            if v in limit:
                total[v] = min(total[v], limit[v])
            if self.parent[v] >= 0:
                total[self.parent[v]] += total[v]
        return total


def integers(what: str, values: Iterable[int], size: int, least: int) -> tuple[int, ...]:
    """``values`` as ints; ValueError unless there are ``size`` of them, none under ``least``."""
    result = tuple(index(v) for v in values)
    if len(result) != size:
        raise ValueError(f"{what}: {size} values expected, {len(result)} given")
    if any(v < least for v in result):
        raise ValueError(f"{what}: {min(result)} given, the least allowed is {least}")
    return result


def children(parent: Sequence[int]) -> list[list[int]]:
    """Children of every vertex, in vertex order; the last entry holds the roots.

    Raises
    ------
    ValueError
        When a parent is not a vertex.
    """
    below: list[list[int]] = [[] for _ in range(len(parent) + 1)]
    for v, p in enumerate(parent):
        if not -1 <= p < len(parent):
            raise ValueError(f"parent of vertex {v} is {p}, which is no vertex")
        below[p].append(v)
    return below


def depths(below: Sequence[Sequence[int]]) -> list[list[int]]:
    """Vertices by depth, from what :func:`children` returns; ValueError when there is a cycle."""
    found: list[list[int]] = []
    front = list(below[-1])
    while front:
        found.append(sorted(front))
        front = [c for v in front for c in below[v]]
    if sum(map(len, found)) != len(below) - 1:
        raise ValueError("parent has a cycle")
    return found
