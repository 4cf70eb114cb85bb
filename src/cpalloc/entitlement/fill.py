"""The fill of one pool: whole GPUs per leaf, split top down over the budget tree (policy section 3)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction

from cpalloc.entitlement.level import Line, water_level
from cpalloc.entitlement.tree import NO_CAP, Tree, integers


def fill(tree: Tree, gpus: int, protected: Sequence[int], demand: Sequence[int], horizon_s: int) -> list[int]:
    """Split ``gpus`` over the tree so that projected ratios are max-min fair among siblings.

    From the roots down, the q GPUs of a parent go to its children as

        x_i = clamp( (λ·owed_i − charged_i) / h , protected_i , demand_i ),   Σ x_i = min(q, Σ demand_i),

    with the exact λ (:func:`split`), and are then rounded to whole GPUs by largest remainder (:func:`whole`) before
    the next depth is split, so every parent's q is a whole number that its children use up. Owed, charged, protected
    and demand of an interior vertex are sums over its leaves. ``demand_i`` is read as

    - max(demand, protected) at a leaf; protected at a leaf that is owed nothing, which cannot fund more;
    - at a vertex with a cap, at most max(cap, protected); what a cap cuts goes to the vertex's siblings.

    Protected GPUs are never cut: when they exceed q, everyone gets what it has protected and no more.

    Parameters
    ----------
    tree
        Vertices with owed, charged and caps.
    gpus
        q at the root: whole GPUs.
    protected, demand
        Per leaf, whole GPUs.
    horizon_s
        h: ``charge_horizon``, seconds, over 0.

    Returns
    -------
    list of int
        Per leaf. The sum is max(Σ protected, min(q, Σ demand)) with the demand as read above. Largest remainder is
        not monotone: one GPU more to share may cost a leaf the GPU it had by rounding, never more at one depth.

    Raises
    ------
    ValueError
        When lengths disagree, an amount is negative or the horizon is not over 0.

    Examples
    --------
    Two budgets at 0.500 and 0.505 facing 64 GPUs (policy, worked decision 6):

    >>> tree = Tree(["x", "y"], [-1, -1], [5376 * 3600] * 2, [2688 * 3600, 271488 * 36])
    >>> fill(tree, 64, [0, 0], [800, 32], 3600)
    [45, 19]
    """
    (q,) = integers("gpus", [gpus], 1, 0)
    check_horizon(horizon_s)
    lines = bounds(tree, protected, demand)
    granted = [0] * len(tree.names)
    for parent in [-1, *(v for vertices in tree.by_depth for v in vertices)]:
        below = tree.children(parent)
        exact = split([lines[v] for v in below], q if parent < 0 else granted[parent], horizon_s)
        for v, amount in zip(below, whole(exact, [tree.names[v] for v in below]), strict=True):
            granted[v] = amount
    return [granted[v] for v in tree.leaves]


def bounds(tree: Tree, protected: Sequence[int], demand: Sequence[int]) -> list[Line]:
    """Per vertex, its line with low = protected and high = demand, summed up the tree as :func:`fill` reads them."""
    held = integers("protected", protected, len(tree.leaves), 0)
    asked = integers("demand", demand, len(tree.leaves), 0)
    most = [max(d, p) if o else p for d, p, o in zip(asked, held, tree.owed, strict=True)]
    low = tree.totals(held)
    caps = {v: max(cap, low[v]) for v, cap in enumerate(tree.cap) if cap != NO_CAP}
    rows = zip(tree.totals(tree.owed), tree.totals(tree.charged), low, tree.totals(most, caps), strict=True)
    return [Line(*row) for row in rows]


def split(lines: Sequence[Line], gpus: int, horizon_s: int) -> list[Fraction]:
    """Siblings' exact GPUs at the λ where they add up to max(Σ low, min(``gpus``, Σ high))."""
    level = water_level(lines, gpus, horizon_s)
    if level is None:
        return [Fraction(line.high) if line.owed else Fraction(line.low) for line in lines]
    return [line.at(level, horizon_s) for line in lines]


def whole(exact: Sequence[Fraction], names: Sequence[str], admits: Callable[[int], bool] | None = None) -> list[int]:
    """Round to whole GPUs by largest remainder, ties by name, keeping the sum.

    Parameters
    ----------
    exact
        Exact amounts, at least 0, adding up to a whole number.
    names
        Break ties, per amount.
    admits
        Asked per index, largest remainder first, whether that amount may be one more than its floor given the steps
        already admitted. Without it the first Σ exact − Σ floor are.

    Notes
    -----
    Nothing leaves its whole bounds: an amount is rounded up only when it is not whole, hence under its upper bound.
    """
    floors = [value.__floor__() for value in exact]
    left = int(sum(exact, Fraction(0))) - sum(floors)
    for i in by_remainder(exact, floors, names):
        if left > 0 and (admits is None or admits(i)):
            floors[i] += 1
            left -= 1
    return floors


def by_remainder(exact: Sequence[Fraction], floors: Sequence[int], names: Sequence[str]) -> Iterable[int]:
    """Indices of the amounts that are not whole, largest remainder first, ties by name."""
    remainder = [value - floor for value, floor in zip(exact, floors, strict=True)]
    return sorted((i for i, r in enumerate(remainder) if r), key=lambda i: (-remainder[i], names[i]))


def check_horizon(horizon_s: int) -> None:
    """ValueError unless the horizon is over 0: without a charge step the fill has no slope."""
    if horizon_s <= 0:
        raise ValueError(f"horizon_s: {horizon_s} given, it must be over 0")
