"""Who may use which nodes: one pool for all, or every team its own nodes."""

from __future__ import annotations

from fractions import Fraction

from cpalloc.sim.policies.room import Area
from cpalloc.sim.state import State


def one_area(state: State) -> tuple[list[Area], list[int]]:
    """One area for all; and per leaf the number of its area."""
    return [Area(state, range(len(state.nodes)))], [0] * len(state.ledger.leaf_names)


def team_areas(state: State) -> tuple[list[Area], list[int]]:
    """One area per leaf: the workload's ``team_nodes``, or whole nodes by share (:func:`nodes_by_share`)."""
    given = state.workload.team_nodes
    if given:
        of_leaf = [sorted(state.nodes.index[n] for n in given.get(leaf, ())) for leaf in state.ledger.leaf_names]
    else:
        of_leaf = nodes_by_share(state)
    return [Area(state, nodes) for nodes in of_leaf], list(range(len(of_leaf)))


def nodes_by_share(state: State) -> list[list[int]]:
    """Nodes of each leaf: of every pool its present share, by largest remainder (ties by name), in order of names."""
    nodes: list[list[int]] = [[] for _ in state.ledger.leaf_names]
    for pool in range(len(state.nodes.pool_names)):
        inside = [n for n, p in enumerate(state.nodes.pool) if p == pool]
        first = 0
        for leaf, count in enumerate(largest_remainder(state.ledger.shares, len(inside))):
            nodes[leaf] += inside[first : first + count]
            first += count
    return nodes


def largest_remainder(shares: list[Fraction], whole: int) -> list[int]:
    """Split ``whole`` things by share; what is left after rounding down goes to the largest remainders, first first.

    Examples
    --------
    >>> largest_remainder([Fraction(1, 2), Fraction(1, 3), Fraction(1, 6)], 10)
    [5, 3, 2]
    """
    exact = [share * whole for share in shares]
    counts = [int(x) for x in exact]
    left = int(sum(exact)) - sum(counts)
    by_remainder = sorted(range(len(exact)), key=lambda i: (counts[i] - exact[i], i))
    for i in by_remainder[:left]:
        counts[i] += 1
    return counts
