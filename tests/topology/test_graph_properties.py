"""Properties of reading and drawing trees, on random ones."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import networkx as nx
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cpalloc.errors import InputError
from cpalloc.topology import Cluster, to_arrays

from .graphs import clusters, from_wire_graph, node_link, shuffled, trees

IN_A_CIRCLE = re.compile(r"round in a circle: (.*?);")


@given(clusters())
def test_a_drawn_cluster_reads_back(cluster: Cluster) -> None:
    assert Cluster.from_graph(cluster.to_graph()) == cluster
    assert from_wire_graph(node_link(cluster.to_graph())) == cluster
    assert Cluster.from_wire(cluster.to_wire()) == cluster


def _read(graph: nx.Graph) -> Cluster:
    """Read a drawn tree; names such as ``a/b`` and ``b`` may meet once qualified, which is refused."""
    try:
        return Cluster.from_graph(graph)
    except InputError as error:
        assume({issue.code for issue in error.issues} != {"duplicate_domain"})
        raise


@given(trees())
def test_a_tree_is_taken_as_it_is(graph: nx.Graph) -> None:
    cluster = _read(graph)
    order, topology = to_arrays(cluster)
    index = {name: i for i, name in enumerate(order)}
    for row, level in enumerate(graph.graph["levels"], start=1):
        at = {index[graph.nodes[v]["name"]]: _ancestor(graph, v, row) for v in graph if "gpus" in graph.nodes[v]}
        for i in at:
            for k in at:
                together = topology.domain_of[row, i] == topology.domain_of[row, k]
                assert together == (at[i] == at[k]), (level, order[i], order[k])


def _ancestor(graph: nx.Graph, vertex: int, row: int) -> int:
    """Coarsest vertex on the way up from ``vertex`` that is not above level ``row``."""
    ranks = {level: rank for rank, level in enumerate(("cluster", *graph.graph["levels"]))}
    way = nx.shortest_path(graph, 0, vertex)
    return next(v for v in way if ranks.get(graph.nodes[v].get("level"), 99) >= row)


@given(trees())
def test_a_tree_that_was_read_is_drawn_and_read_again(graph: nx.Graph) -> None:
    cluster = _read(graph)
    assert Cluster.from_graph(cluster.to_graph()) == cluster


@given(st.data(), trees())
def test_order_of_vertices_and_links_does_not_matter(data: Any, graph: nx.Graph) -> None:
    cluster = _read(graph)
    assert Cluster.from_graph(data.draw(st.composite(shuffled)(graph))) == cluster


@given(st.data(), trees())
def test_a_further_link_is_refused_with_a_cycle_of_the_graph(data: Any, graph: nx.Graph) -> None:
    missing = sorted(nx.complement(graph).edges())
    assume(missing)
    graph.add_edge(*data.draw(st.sampled_from(missing)))
    with pytest.raises(InputError) as refused:
        Cluster.from_graph(graph)
    (issue,) = refused.value.issues
    assert issue.code == "graph_cycle"
    found = IN_A_CIRCLE.search(issue.message)
    assert found is not None
    cycle = [int(v) for v in found[1].split(" > ")]
    assert cycle[0] == cycle[-1]
    assert len(set(cycle)) == len(cycle) - 1 >= 3
    assert all(graph.has_edge(u, v) for u, v in pairwise(cycle))
    again = data.draw(st.composite(shuffled)(graph))
    with pytest.raises(InputError) as refused_again:
        Cluster.from_graph(again)
    assert refused_again.value.issues == refused.value.issues
