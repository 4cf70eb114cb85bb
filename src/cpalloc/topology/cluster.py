"""A cluster: its levels, and its nodes with the domains they lie in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import networkx as nx

from cpalloc.errors import InputError, Issue
from cpalloc.schema import Cluster as WireCluster
from cpalloc.schema import Node
from cpalloc.schema._translate import join_path
from cpalloc.topology.fabric import condense
from cpalloc.topology.naming import CLUSTER, is_id, level_issues, pattern_issue
from cpalloc.topology.tree import draw_tree, read_tree
from cpalloc.topology.vertices import Drawing, from_networkx, from_node_link


@dataclass(frozen=True, slots=True)
class Cluster:
    """The tree of a cluster; two are equal when they say the same, whatever order their nodes came in.

    Attributes
    ----------
    name : str
        Name of the cluster.
    levels : tuple of str
        User levels, coarse to fine; ``cluster`` above and ``node`` below them are not listed.
    nodes : tuple of Node
        Sorted by name. A level missing in ``domains`` makes the node a domain of its own there.

    Raises
    ------
    InputError
        ``pattern``, ``reserved_level``, ``duplicate_level``, ``duplicate_id`` (nodes), ``unknown_level`` and
        ``domain_two_parents``, all of them at once.
    """

    name: str
    levels: tuple[str, ...]
    nodes: tuple[Node, ...]

    def __post_init__(self) -> None:
        issues = [] if is_id(self.name) else [pattern_issue("cluster.name", self.name)]
        issues += level_issues(self.levels, "cluster.levels")
        issues += _duplicates(self.nodes)
        issues += _unknown_levels(self.levels, self.nodes)
        issues += _double_parents(self.levels, self.nodes)
        if issues:
            raise InputError(issues)
        object.__setattr__(self, "levels", tuple(self.levels))
        object.__setattr__(self, "nodes", tuple(sorted(self.nodes, key=lambda node: node.name)))

    @classmethod
    def from_wire(cls, cluster: WireCluster) -> Cluster:
        """Read the ``cluster`` of a round: ``levels`` and ``nodes``, or a node-link ``graph``.

        Raises
        ------
        InputError
            As the constructor, or as :meth:`from_graph`; paths are those of the request.
        """
        if cluster.graph is None:
            return cls(cluster.name, cluster.levels, cluster.nodes)
        return cls._from_drawing(cluster.name, from_node_link(cluster.graph, "cluster.graph"))

    @classmethod
    def from_graph(cls, graph: nx.Graph, *, name: str | None = None) -> Cluster:
        """Read a tree of nodes and domains.

        Vertices with a positive ``gpus`` (or of level ``node``) are nodes and carry the fields of the wire's nodes;
        the others carry ``level``. Vertices are called by their attribute ``name``, else by their id. The graph's
        attribute ``levels`` orders the levels. Which end of a link is the domain follows from the levels, so that
        directions do not matter; parallel links count as one. Domains without nodes are dropped. A domain attached
        more than one level up is a domain of its own at the levels between. Where names repeat within a level, all
        domains of that level are qualified by their parents' names, as in ``b0/r3``.

        Parameters
        ----------
        graph : networkx.Graph or networkx.DiGraph
            A tree, or a forest whose roots are domains of the coarsest level or nodes. A root of level ``cluster`` may
            be there. Multigraphs are taken as well.
        name : str, optional
            Name of the cluster; default: the graph's attribute ``name``, else ``cluster``.

        Raises
        ------
        InputError
            Malformed vertices: ``missing``, ``unknown_level``, ``node_level`` (a node with another level),
            ``duplicate_id``, ``duplicate_domain``, ``pattern`` and the codes of wire nodes. Not a tree:
            ``graph_cycle`` (with the cycle), ``domain_two_parents`` and ``node_two_parents`` (with both),
            ``same_level_link``, ``detached_domain``.
        """
        given = graph.graph.get("name")
        return cls._from_drawing(name or (str(given) if given else CLUSTER), from_networkx(graph))

    @classmethod
    def from_fabric(
        cls, graph: nx.Graph, levels: Sequence[str], *, name: str | None = None
    ) -> tuple[Cluster, tuple[str, ...]]:
        """Condense a fabric of hosts and switches to a tree (see :func:`cpalloc.topology.fabric.condense`).

        Parameters
        ----------
        graph : networkx.Graph or networkx.DiGraph
            Hosts are the vertices with a positive ``gpus`` (or of level ``node``), with the fields of the wire's nodes;
            the others are switches. Directions, parallel links and the levels of switches are not looked at.
        levels : sequence of str
            Names for the tiers of domains, coarse to fine: the last one for the leaf switches' domains.
        name : str, optional
            As in :meth:`from_graph`.

        Returns
        -------
        cluster : Cluster
            Its levels are the last ones of ``levels``, as many as the fabric has tiers below the one that connects
            everything.
        notes : tuple of str
            What was merged, left out, and looks like a broken link; one sentence each.

        Raises
        ------
        InputError
            Malformed hosts or levels.
        """
        issues = list(level_issues(levels, "levels"))
        if issues:
            raise InputError(issues)
        given = graph.graph.get("name")
        used, nodes, notes = condense(from_networkx(graph, tree=False), levels)
        return cls(name or (str(given) if given else CLUSTER), used, nodes), notes

    @classmethod
    def _from_drawing(cls, name: str, drawing: Drawing) -> Cluster:
        return cls(name, drawing.levels, read_tree(drawing))

    def to_wire(self) -> WireCluster:
        """Write the cluster as ``levels`` and ``nodes`` of a round."""
        return WireCluster(name=self.name, levels=self.levels, nodes=self.nodes)

    def to_graph(self) -> nx.Graph:
        """Draw the tree; :meth:`from_graph` reads it back to an equal cluster.

        Returns
        -------
        networkx.Graph
            Ids are the names of the nodes, and ``"<level> <name>"`` for domains and the root (no name has a blank).
            Attributes are plain JSON, so that ``networkx.node_link_data`` of it is the wire's ``graph``.
        """
        return draw_tree(self.name, self.levels, self.nodes)


def _duplicates(nodes: Sequence[Node]) -> Iterator[Issue]:
    first: dict[str, int] = {}
    for i, node in enumerate(nodes):
        other = first.setdefault(node.name, i)
        if other != i:
            message = f"`{node.name}` is also cluster.nodes[{other}]; names must be unique"
            yield Issue("duplicate_id", f"cluster.nodes[{i}].name", message)


def _unknown_levels(levels: Sequence[str], nodes: Sequence[Node]) -> Iterator[Issue]:
    known = frozenset(levels)
    for i, node in enumerate(nodes):
        for level in node.domains.keys() - known:
            message = f"`{level}` is not among the cluster's levels; list it or remove it here"
            yield Issue("unknown_level", join_path("cluster.nodes", i, "domains", level), message)


def _double_parents(levels: Sequence[str], nodes: Sequence[Node]) -> Iterator[Issue]:
    """Find domains that lie in two of the level above; a node without one there is one of its own."""
    for coarse, fine in pairwise(levels):
        parents: dict[str, tuple[str | None, str | None]] = {}
        told: set[str] = set()
        for i, node in enumerate(nodes):
            domain = node.domains.get(fine)
            if domain is None:
                continue
            above = node.domains.get(coarse)
            mine = (above, None if above is not None else node.name)
            first = parents.setdefault(domain, mine)
            if first != mine and domain not in told:
                told.add(domain)
                one, two = (f"`{a}`" if a is not None else f"node `{n}` alone" for a, n in (first, mine))
                message = f"{fine} `{domain}` lies in {coarse} {one} and in {coarse} {two}; it may lie in one only"
                yield Issue("domain_two_parents", join_path("cluster.nodes", i, "domains", fine), message)
