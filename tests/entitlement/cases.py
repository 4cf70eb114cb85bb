"""Random trees and amounts, small enough to make ties, empty groups and saturated pools common."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import strategies as st

from cpalloc.entitlement import Asked, Tree


@dataclass(frozen=True)
class Case:
    """Arguments of ``fill_pools``."""

    tree: Tree
    gpus: tuple[int, ...]
    protected: tuple[tuple[int, ...], ...]
    demand: tuple[tuple[Asked, ...], ...]
    horizon_s: int

    @property
    def arguments(self):
        return self.tree, self.gpus, self.protected, self.demand, self.horizon_s

    @property
    def one_pool(self):
        """Arguments of ``fill`` when all pools are taken as one."""
        held = [sum(row) for row in self.protected]
        asked = [sum(gpus for _, gpus in row) for row in self.demand]
        return self.tree, sum(self.gpus), held, asked, self.horizon_s


def accepted(num_pools: int):
    return st.frozensets(st.integers(0, num_pools - 1), min_size=1)


@st.composite
def trees(draw, max_vertices: int = 9, caps: bool = True):
    size = draw(st.integers(1, max_vertices))
    parent = [draw(st.integers(-1, v - 1)) for v in range(size)]
    num_leaves = size - len(set(parent) - {-1})
    amounts = st.lists(st.integers(0, 12), min_size=num_leaves, max_size=num_leaves)
    cap = [draw(st.sampled_from([-1, -1, -1, 0, 2, 5])) if caps else -1 for _ in range(size)]
    # names are in another order than the vertices, so that ties by name are not ties by index
    names = draw(st.permutations([f"b{v}" for v in range(size)]))
    return Tree(names, parent, draw(amounts), draw(amounts), cap)


@st.composite
def cases(draw, max_pools: int = 3, max_vertices: int = 9, caps: bool = True):
    tree = draw(trees(max_vertices, caps))
    pools = draw(st.integers(1, max_pools))
    few = st.sampled_from([0, 0, 0, 1, 2, 3])
    asked = st.lists(st.tuples(accepted(pools), st.integers(0, 7)), max_size=3)
    return Case(
        tree,
        tuple(draw(st.integers(0, 12)) for _ in range(pools)),
        tuple(tuple(draw(few) for _ in range(pools)) for _ in tree.leaves),
        tuple(tuple(draw(asked)) for _ in tree.leaves),
        draw(st.integers(1, 4)),
    )


def permuted(case: Case, order: list[int]) -> tuple[Case, list[int]]:
    """The same case with vertex ``order[i]`` in place ``i``, and the old leaf number of each new leaf."""
    tree = case.tree
    place = {v: i for i, v in enumerate(order)}
    leaf_of = {v: i for i, v in enumerate(tree.leaves)}
    old = [leaf_of[v] for v in order if v in leaf_of]
    moved = Tree(
        [tree.names[v] for v in order],
        [place.get(tree.parent[v], -1) for v in order],
        [tree.owed[i] for i in old],
        [tree.charged[i] for i in old],
        [tree.cap[v] for v in order],
    )
    changed = replace(
        case, tree=moved, protected=[case.protected[i] for i in old], demand=[case.demand[i] for i in old]
    )
    return changed, old
