"""Shares, what they owe, and how budgets compare: charged over owed, exact."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from cpalloc.entitlement.tree import children, depths, integers


def shares(parent: Sequence[int], weight: Sequence[int]) -> list[Fraction]:
    """Share of every vertex of the funding tree, whether it is active or not.

    ``share_v = share_parent(v) · weight_v / Σ_{siblings of v, v included} weight``, with 1 above the roots. Shares of
    the leaves add to 1 unless a group's weights are all 0: then each of the group has share 0, and what the group's
    parent has is owed to nobody.

    Parameters
    ----------
    parent
        Per vertex, index of the parent, -1 for roots, which are siblings of each other.
    weight
        Per vertex, at least 0, relative to its siblings.

    Raises
    ------
    ValueError
        When lengths disagree, a weight is negative, or ``parent`` is not a forest.

    Examples
    --------
    >>> [str(s) for s in shares([-1, -1, 1, 1], [3, 1, 1, 1])]
    ['3/4', '1/4', '1/8', '1/8']
    """
    parents = integers("parent", parent, len(parent), -1)
    weights = integers("weight", weight, len(parents), 0)
    below = children(parents)
    group = [sum(weights[v] for v in siblings) for siblings in below]
    share = [Fraction(0)] * len(parents)
    for v in (v for vertices in depths(below) for v in vertices):
        above = share[parents[v]] if parents[v] >= 0 else Fraction(1)
        if group[parents[v]]:
            share[v] = above * weights[v] / group[parents[v]]
    return share


def default_owed(share: Fraction, in_service_gpus: int, window_s: int) -> int:
    """GPU-seconds a share is owed over the window: ``⌊share · in-service GPUs · window⌋``.

    Examples
    --------
    >>> default_owed(Fraction(1), 1024, 7 * 86_400)
    619315200
    """
    return share.numerator * int(in_service_gpus) * int(window_s) // share.denominator


def ratio(charged: int, owed: int) -> Fraction | None:
    """``charged / owed``, both in GPU-seconds; None stands for infinite, where nothing is owed."""
    return Fraction(int(charged), int(owed)) if owed else None


def projected_ratio_key(charged: int, owed: int, step_gpus: int, horizon_s: int) -> tuple[bool, Fraction]:
    """Sort key, best first: the leaf's ratio after one charge step, ``(charged + step · h) / owed``.

    Parameters
    ----------
    charged, owed
        GPU-seconds of the leaf in the window.
    step_gpus
        GPUs the step would start.
    horizon_s
        ``charge_horizon`` h in seconds.

    Returns
    -------
    tuple of (bool, Fraction)
        Leaves that are owed nothing (ratio infinite) sort last and equal to each other.

    Examples
    --------
    >>> projected_ratio_key(0, 7200, 8, 3600) < projected_ratio_key(10**9, 0, 0, 3600)
    True
    """
    if not owed:
        return True, Fraction(0)
    return False, Fraction(int(charged) + int(step_gpus) * int(horizon_s), int(owed))
