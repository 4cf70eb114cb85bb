"""Made-up trees and fabrics, and strategies that draw them."""

from __future__ import annotations

import json
from collections.abc import Hashable
from typing import Any

import networkx as nx
from hypothesis import strategies as st

from cpalloc.schema import Cluster as WireCluster
from cpalloc.schema import Node
from cpalloc.topology import Cluster

NAMES = ("a", "b", "c", "node:a", "node:node:a", "rack:a", "a/b", "b/c")
"""Names that repeat between levels and look like those made up for skipped levels."""


def node(name: str, **fields: Any) -> Node:
    return Node.model_validate({"name": name, "gpu_type": "h100", "gpus": 8, **fields})


def placed(name: str, **domains: str) -> Node:
    return node(name, domains=domains)


def host(graph: nx.Graph, key: Hashable, /, *switches: Hashable, **fields: Any) -> None:
    graph.add_node(key, **{"gpus": 8, "gpu_type": "h100", **fields})
    graph.add_edges_from((switch, key) for switch in switches)


def small_tree() -> nx.Graph:
    """Two blocks, a rack with two nodes in one and a rack with one node in the other."""
    graph = nx.Graph(name="made-up", levels=["block", "rack"])
    for block in ("b0", "b1"):
        graph.add_node(block, level="block")
    for rack, block in (("r0", "b0"), ("r1", "b1")):
        graph.add_node(rack, level="rack")
        graph.add_edge(block, rack)
    host(graph, "n0", "r0")
    host(graph, "n1", "r0")
    host(graph, "n2", "r1")
    return graph


def rail_optimised(pods: int = 4, hosts: int = 6, *, spines_per_rail: int | None = None) -> nx.Graph:
    """Every host is wired to the 8 leaves (rails) of its pod; spines are shared by all leaves or by those of a rail."""
    graph = nx.Graph()
    for pod in range(pods):
        leaves = [f"p{pod}-leaf{rail}" for rail in range(8)]
        for rail, leaf in enumerate(leaves):
            spines = range(8) if spines_per_rail is None else range(spines_per_rail)
            prefix = "spine" if spines_per_rail is None else f"rail{rail}-spine"
            graph.add_edges_from((leaf, f"{prefix}{spine}") for spine in spines)
        for i in range(hosts):
            host(graph, f"p{pod}-h{i}", *leaves)
    return graph


def clos(pods: int = 3, leaves: int = 2, spines: int = 2, cores: int = 4, hosts: int = 3) -> nx.Graph:
    """A three-layer Clos: the j-th spine of every pod has the j-th share of the cores, as in a fat tree."""
    graph = nx.Graph()
    share = cores // spines
    for pod in range(pods):
        for j in range(spines):
            graph.add_edges_from((f"p{pod}-s{j}", f"core{j * share + k}") for k in range(share))
            graph.add_edges_from((f"p{pod}-l{i}", f"p{pod}-s{j}") for i in range(leaves))
        for i in range(leaves):
            for h in range(hosts):
                host(graph, f"p{pod}-l{i}-h{h}", f"p{pod}-l{i}")
    return graph


def node_link(graph: nx.Graph, *, links: str = "edges") -> dict[str, Any]:
    """Node-link data as it arrives: through JSON, and written here because networkx has changed its argument."""
    data = {
        "directed": graph.is_directed(),
        "multigraph": graph.is_multigraph(),
        "graph": graph.graph,
        "nodes": [{**attributes, "id": key} for key, attributes in graph.nodes(data=True)],
        links: [{"source": u, "target": v} for u, v in graph.edges()],
    }
    loaded: dict[str, Any] = json.loads(json.dumps(data))
    return loaded


def from_wire_graph(data: dict[str, Any], name: str = "made-up") -> Cluster:
    return Cluster.from_wire(WireCluster(name=name, graph=data))


def shuffled(draw: st.DrawFn, graph: nx.Graph) -> nx.Graph:
    """The same graph, vertices and links in another order, links turned round."""
    again = nx.DiGraph(**graph.graph)
    for key in draw(st.permutations(list(graph))):
        again.add_node(key, **graph.nodes[key])
    for u, v in draw(st.permutations(list(graph.edges()))):
        again.add_edge(*draw(st.sampled_from([(u, v), (v, u)])))
    return again


@st.composite
def trees(draw: st.DrawFn, *, unique: bool = False, whole: bool = False) -> nx.Graph:
    """Trees under a root of level ``cluster``; vertices are numbered, 0 being the root.

    Names repeat in a level under different parents unless ``unique``; vertices skip levels unless ``whole``.
    """
    levels = ["zone", "block", "rack"][draw(st.integers(0, 3)) :]
    graph = nx.Graph(levels=levels)
    graph.add_node(0, level="cluster", name="root")
    by_rank: list[list[int]] = [[0]]
    called: dict[tuple[int, int], set[str]] = {}
    for rank, level in enumerate(levels, start=1):
        here: list[int] = []
        for name in draw(st.lists(st.sampled_from(NAMES), max_size=4, unique=unique)):
            above = by_rank[-1] if whole else [v for vertices in by_rank for v in vertices]
            if not above:
                continue
            parent = draw(st.sampled_from(above))
            scope = called.setdefault((rank, parent), set())
            if name not in scope:
                scope.add(name)
                key = len(graph)
                graph.add_node(key, level=level, name=name)
                graph.add_edge(parent, key)
                here.append(key)
        by_rank.append(here)
    places = by_rank[-1] if whole else [v for vertices in by_rank for v in vertices]
    for name in draw(st.lists(st.sampled_from(NAMES), max_size=8, unique=True)) if places else []:
        host(graph, len(graph), draw(st.sampled_from(places)), name=name, gpus=draw(st.integers(1, 8)))
    return graph


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Clusters from lists: nodes take a random way down a random tree and may stop early or start late."""
    levels = ("zone", "block", "rack")[draw(st.integers(0, 3)) :]
    parent = {
        (rank, name): draw(st.sampled_from(NAMES[:3])) if rank else None for rank in range(3) for name in NAMES[:5]
    }
    nodes: list[Node] = []
    for name in draw(st.lists(st.sampled_from(NAMES), max_size=8, unique=True)):
        domains: dict[str, str] = {}
        depth = draw(st.integers(0, len(levels)))
        domain: str | None = draw(st.sampled_from(NAMES[:5] if depth == len(levels) else NAMES[:3]))
        for rank in range(depth - 1, -1, -1):
            assert domain is not None
            domains[levels[rank]] = domain
            domain = parent[rank, domain]
        nodes.append(node(name, domains=domains, gpus=draw(st.integers(0, 8))))
    # a node that is alone in a domain may leave open the levels above it
    if nodes and levels and draw(st.booleans()):
        nodes[0] = nodes[0].model_copy(update={"domains": {levels[-1]: "alone"}})
    return Cluster("made-up", levels, tuple(nodes))
