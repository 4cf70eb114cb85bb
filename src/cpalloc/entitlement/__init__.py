"""Fair shares and what they entitle to this round: pure functions of integers and exact fractions (policy section 3).

``entitlements`` and ``claims`` are the fills a round needs; ``Tree`` is what they work on.
"""

from __future__ import annotations

from collections.abc import Sequence

from cpalloc.entitlement.fill import fill
from cpalloc.entitlement.pools import Asked, by_pools, fill_pools
from cpalloc.entitlement.shares import default_owed, projected_ratio_key, ratio, shares
from cpalloc.entitlement.tree import NO_CAP, Tree, integers

__all__ = [
    "NO_CAP",
    "Asked",
    "Tree",
    "claims",
    "default_owed",
    "entitlements",
    "fill",
    "fill_pools",
    "projected_ratio_key",
    "ratio",
    "shares",
]


def entitlements(
    tree: Tree,
    pools: Sequence[int],
    protected: Sequence[Sequence[int]],
    demand: Sequence[Sequence[Asked]],
    horizon_s: int,
) -> list[int]:
    """``entitled_gpus`` of every leaf: GPUs it may claim this round, given what is protected.

    Parameters
    ----------
    tree
        Budgets with owed, charged and caps.
    pools
        Per pool, in-service GPUs plus GPUs of draining nodes still held by protected jobs.
    protected
        Per leaf and pool, GPUs of protected running jobs.
    demand
        Per leaf, GPUs of its allocatable jobs (running ones included, which accept the one pool they run in) with the
        pools accepted.
    horizon_s
        ``charge_horizon`` in seconds, over 0.

    Raises
    ------
    ValueError
        As :func:`fill_pools`.
    """
    if len(pools) != 1:
        return fill_pools(tree, pools, protected, demand, horizon_s)
    held = [integers("protected", row, 1, 0)[0] for row in protected]
    asked = [sum(by_pools(amounts, 1).values()) for amounts in demand]
    return fill(tree, pools[0], held, asked, horizon_s)


def claims(tree: Tree, pools: Sequence[int], demand: Sequence[Sequence[Asked]], horizon_s: int) -> list[int]:
    """``claim_gpus`` of every leaf: the same fill as :func:`entitlements` with nothing protected."""
    nothing = [[0] * len(pools) for _ in tree.leaves]
    return entitlements(tree, pools, nothing, demand, horizon_s)
