"""The fill of several pools: what a leaf gets must fit the pools its jobs accept (policy section 3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from cpalloc.entitlement.fill import check_horizon, whole
from cpalloc.entitlement.level import Line
from cpalloc.entitlement.raising import Limit, progressive_fill
from cpalloc.entitlement.routing import Pools, Route, Routing
from cpalloc.entitlement.tree import NO_CAP, Tree, integers

Asked = tuple[Pools, int]
"""Pools accepted, by index, and GPUs of demand that accept exactly these."""


def fill_pools(
    tree: Tree,
    gpus: Sequence[int],
    protected: Sequence[Sequence[int]],
    demand: Sequence[Sequence[Asked]],
    horizon_s: int,
) -> list[int]:
    """Split the GPUs of several pools over the tree; with one pool, exactly what :func:`fill` gives.

    Definition. Depth by depth from the roots, λ is raised for *all* vertices of the depth at once,

        x_v = clamp( (λ·owed_v − charged_v) / h , protected_v , demand_v ),

    under two kinds of limits: children get together at most what their parent got, and the whole of the depth must be
    routable, as a flow from vertices through the demand of their leaves to the pools accepted. Whatever runs into a
    limit freezes there and the others go on. Then the depth is rounded: floors, and one GPU more in order of
    remainder (ties by name) wherever parents and an integer flow allow it; only then the next depth is split.

    So the tree keeps its meaning: what a vertex gets depends on its own ratio and never on how it is divided inside,
    and a busy leaf inherits the claim of its sleeping siblings. Where pools bind across parents, cousins compete for
    them by their own projected ratios, their parents' totals being settled. Routable amounts form a polymatroid with
    whole ranks, and so do sums over the vertices of a depth: the exact result is the lexicographically max-min one,
    every parent's GPUs are used up, and the greedy rounding never ends in a dead end.

    Parameters
    ----------
    tree
        Vertices with owed, charged and caps.
    gpus
        Per pool, whole GPUs.
    protected
        Per leaf and pool, whole GPUs. They stay in their pool. When they exceed it the pool has nothing to share.
    demand
        Per leaf, amounts with the pools they accept, those of protected jobs included: what is protected in a pool is
        taken out of the amounts that accept it, the choosiest first (then by the pools' indices), and counts besides
        where there is none left. A leaf that is owed nothing gets what it has protected. Caps as in :func:`fill`.
    horizon_s
        h: ``charge_horizon``, seconds, over 0.

    Returns
    -------
    list of int
        Per leaf. What goes beyond the protected GPUs can be routed to whole GPUs of the pools.

    Raises
    ------
    ValueError
        When lengths disagree, an amount is negative, a pool is unknown, an amount accepts no pool, or the horizon is
        not over 0.

    Examples
    --------
    Only ``b`` may use pool 1, so ``a`` gets pool 0 although its ratio is the same:

    >>> tree = Tree(["a", "b"], [-1, -1], [36_000, 36_000], [0, 0])
    >>> fill_pools(tree, [8, 8], [[0, 0], [0, 0]], [[(frozenset({0}), 16)], [(frozenset({0, 1}), 12)]], 3600)
    [8, 8]
    """
    check_horizon(horizon_s)
    capacity = integers("gpus", gpus, len(gpus), 0)
    held = [integers(f"protected[{i}]", row, len(capacity), 0) for i, row in enumerate(protected)]
    kept = tree.totals([sum(row) for row in held])
    routing = Routing(
        tree,
        [
            unprotected(by_pools(asked, len(capacity)), row) if owed else {}
            for asked, row, owed in zip(demand, held, tree.owed, strict=True)
        ],
        [max(0, total - sum(row[p] for row in held)) for p, total in enumerate(capacity)],
        {v: max(0, cap - kept[v]) for v, cap in enumerate(tree.cap) if cap != NO_CAP},
    )
    extra = _Depths(routing, kept, horizon_s).fill()
    return [kept[v] + extra[v] for v in tree.leaves]


def by_pools(asked: Iterable[Asked], num_pools: int) -> dict[Pools, int]:
    """Add up demand by the pools it accepts; ValueError for no pool, unknown pools and negative amounts."""
    want: dict[Pools, int] = {}
    for pools, gpus in asked:
        accepted = frozenset(int(p) for p in pools)
        if not accepted or not all(0 <= p < num_pools for p in accepted):
            raise ValueError(f"demand accepts the pools {sorted(accepted)}; there are pools 0 to {num_pools - 1}")
        want[accepted] = want.get(accepted, 0) + integers("demand", [gpus], 1, 0)[0]
    return want


def unprotected(want: Mapping[Pools, int], held: Sequence[int]) -> dict[Pools, int]:
    """Demand by pools accepted, less what is protected in each pool; see ``demand`` of :func:`fill_pools`."""
    free = {accepted: want[accepted] for accepted in sorted(want, key=lambda pools: (len(pools), sorted(pools)))}
    for p, left in enumerate(held):
        for accepted in free:
            if p in accepted:
                taken = min(left, free[accepted])
                free[accepted] -= taken
                left -= taken
    return {accepted: gpus for accepted, gpus in free.items() if gpus}


class _Depths:
    """The fill of what is not protected, depth by depth; ``charged`` is moved on by what the protected will cost."""

    def __init__(self, routing: Routing, kept: Sequence[int], horizon_s: int) -> None:
        self.tree = tree = routing.tree
        self.routing = routing
        self.horizon_s = horizon_s
        rows = zip(tree.totals(tree.owed), tree.totals(tree.charged), kept, routing.outside(frozenset()), strict=True)
        self.lines = [Line(owed, charged + horizon_s * keeps, 0, most) for owed, charged, keeps, most in rows]
        self.granted: list[int] = [0] * len(tree.names)
        self.outside: dict[Pools, list[int]] = {}

    def fill(self) -> list[int]:
        """Whole GPUs of every vertex beyond its protected ones."""
        settled: list[int] = []
        for vertices in self.tree.by_depth:
            self._round(self._exact(vertices, settled), settled)
            settled += [v for v in vertices if not self.tree.children(v)]
        return self.granted

    def _exact(self, vertices: Sequence[int], settled: Sequence[int]) -> dict[int, Fraction]:
        """Exact GPUs of a depth, by cutting planes: pools found overloaded become a limit until none are.

        A fill under fewer limits that breaks none of the others is the fill under all of them, since amounts only
        rise with λ.
        """
        parents = {self.tree.parent[v] for v in vertices} - {-1}
        sums = [Limit(dict.fromkeys(self.tree.children(p), 0), self.granted[p]) for p in sorted(parents)]
        lines = {v: self.lines[v] for v in vertices}
        fixed = {v: Fraction(self.granted[v]) for v in settled}
        while True:
            excesses = [self._excess(pools, vertices, settled) for pools in self.outside]
            exact = progressive_fill(lines, [*sums, *excesses], self.horizon_s)
            pools = self.routing.overload(exact | fixed)
            if pools is None:
                return exact
            if pools in self.outside:
                raise AssertionError(f"pools {sorted(pools)} are overloaded under their own limit")
            self.outside[pools] = self.routing.outside(pools)

    def _excess(self, pools: Pools, vertices: Sequence[int], settled: Sequence[int]) -> Limit:
        """What must go to ``pools`` for want of others is at most what they have to spare."""
        outside = self.outside[pools]
        low = {v: outside[v] for v in vertices}
        taken = sum(max(0, self.granted[v] - outside[v]) for v in settled)
        return Limit(low, sum(self.routing.spare[p] for p in pools) - taken + sum(low.values()))

    def _round(self, exact: Mapping[int, Fraction], settled: Sequence[int]) -> None:
        """Round a depth to whole GPUs that parents' totals and the pools allow."""
        vertices = list(exact)
        floors = {v: Fraction(int(exact[v])) for v in vertices}
        route = Route(self.routing, floors | {v: Fraction(self.granted[v]) for v in settled})
        left = dict(enumerate(self.granted))
        for v in vertices:
            left[self.tree.parent[v]] = left.get(self.tree.parent[v], 0) - int(exact[v])

        def admits(at: int) -> bool:
            parent = self.tree.parent[vertices[at]]
            if (parent >= 0 and not left[parent]) or not route.admit(vertices[at]):
                return False
            left[parent] -= 1
            return True

        names = [self.tree.names[v] for v in vertices]
        for v, amount in zip(vertices, whole(list(exact.values()), names, admits), strict=True):
            self.granted[v] = amount
