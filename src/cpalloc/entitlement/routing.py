"""What the pools can take: demand as a flow from budgets to the pools their jobs accept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import lcm

from cpalloc.entitlement.flow import Network
from cpalloc.entitlement.tree import Tree

Pools = frozenset[int]
"""A set of pools, by index."""


class Routing:
    """Where demand may go; all of it free to be given or not (what is protected was taken out before).

    Parameters
    ----------
    tree
        The budget tree.
    wants
        Per leaf, GPUs of demand by the set of pools it accepts.
    spare
        Per pool, whole GPUs.
    limit
        Most GPUs of the vertices that have a cap.
    """

    def __init__(
        self, tree: Tree, wants: Sequence[Mapping[Pools, int]], spare: Sequence[int], limit: Mapping[int, int]
    ) -> None:
        self.tree = tree
        self.wants = wants
        self.spare = spare
        self.limit = limit
        self.wants_below: list[dict[Pools, int]] = [{} for _ in tree.names]
        self.above_caps: set[int] = set()
        for v, want in zip(tree.leaves, wants, strict=True):
            self.wants_below[v] = dict(want)
        for v in tree.bottom_up():
            parent = tree.parent[v]
            if parent >= 0:
                for accepted, gpus in self.wants_below[v].items():
                    self.wants_below[parent][accepted] = self.wants_below[parent].get(accepted, 0) + gpus
            if v in limit or v in self.above_caps:
                self.above_caps.add(parent)

    def outside(self, pools: Pools) -> list[int]:
        """Per vertex, the most it could be given if ``pools`` took nothing and the other pools were endless.

        With no pools that is the vertex's demand. What a vertex gets beyond it must go to ``pools``.
        """
        per_leaf = [sum(gpus for accepted, gpus in want.items() if accepted - pools) for want in self.wants]
        return self.tree.totals(per_leaf, self.limit)

    def overload(self, given: Mapping[int, Fraction]) -> Pools | None:
        """Pools that cannot hold what ``given`` sends there for want of others; None when all of it can be routed.

        By max-flow min-cut ``given`` can be routed if and only if every set S of pools has

            Σ_v max(0, given_v − outside_v(S))  ≤  Σ_{p in S} spare_p.

        Parameters
        ----------
        given
            GPUs of vertices none of which lies below another; each at most its demand, ``outside(∅)``.
        """
        route = Route(self, given)
        if route.complete:
            return None
        distance = route.network.distances(route.source)
        return frozenset(p for p, node in enumerate(route.pools) if distance[node] >= 0)


class Route:
    """A maximum flow that gives vertices what they are to get, or as much of it as can be routed.

    source → vertex → (capped vertices below it →) pool set accepted → pool → sink, in units of one GPU over the
    common denominator of ``given``.

    Attributes
    ----------
    complete
        Whether everything given is routed.
    """

    def __init__(self, routing: Routing, given: Mapping[int, Fraction]) -> None:
        self.routing = routing
        self.scale = lcm(*(gpus.denominator for gpus in given.values()))
        self.network = Network()
        self.source, self.sink = self.network.node(), self.network.node()
        self.pools = [self.network.node() for _ in routing.spare]
        for node, spare in zip(self.pools, routing.spare, strict=True):
            self.network.arc(node, self.sink, spare * self.scale)
        self._accepting: dict[Pools, int] = {}
        self._entry = {v: self._enter(v) for v in given}
        self._closed = {self.source}
        for v, gpus in given.items():
            self.network.arc(self.source, self._entry[v], int(gpus * self.scale))
        self.complete = self.network.maximise(self.source, self.sink) == sum(given.values()) * self.scale

    def admit(self, vertex: int) -> bool:
        """Route one unit more for a vertex if that is possible; a vertex refused once is refused for good."""
        return self.network.send_one(self._entry[vertex], self.sink, self._closed)

    def _enter(self, vertex: int) -> int:
        node = self.network.node()
        wants = self.routing.wants_below
        if vertex in self.routing.above_caps:
            for child in self.routing.tree.children(vertex):
                most = self.routing.limit.get(child, sum(wants[child].values()))
                self.network.arc(node, self._enter(child), most * self.scale)
        else:
            for accepted, gpus in wants[vertex].items():
                self.network.arc(node, self._accept(accepted), gpus * self.scale)
        return node

    def _accept(self, accepted: Pools) -> int:
        if accepted not in self._accepting:
            node = self._accepting[accepted] = self.network.node()
            endless = (sum(self.routing.spare) + 1) * self.scale  # never part of a smallest cut
            for p in sorted(accepted):
                self.network.arc(node, self.pools[p], endless)
        return self._accepting[accepted]
