"""Clusters from graphs: trees as they are, names, and every kind of graph that is not a tree."""

from __future__ import annotations

from typing import Any

import networkx as nx
import pytest

from cpalloc.errors import InputError, Issue
from cpalloc.topology import Cluster

from .graphs import clos, from_wire_graph, host, node, node_link, placed, rail_optimised, small_tree


def domains(cluster: Cluster) -> dict[str, dict[str, str]]:
    return {n.name: n.domains for n in cluster.nodes}


def refusal(graph: nx.Graph) -> tuple[Issue, ...]:
    with pytest.raises(InputError) as refused:
        Cluster.from_graph(graph)
    return refused.value.issues


def codes(graph: nx.Graph) -> list[tuple[str, str]]:
    return [(issue.code, issue.path) for issue in refusal(graph)]


SMALL = {
    "n0": {"block": "b0", "rack": "r0"},
    "n1": {"block": "b0", "rack": "r0"},
    "n2": {"block": "b1", "rack": "r1"},
}


def test_forest_under_top_level_roots() -> None:
    cluster = Cluster.from_graph(small_tree())
    assert (cluster.name, cluster.levels, domains(cluster)) == ("made-up", ("block", "rack"), SMALL)


def test_root_of_level_cluster() -> None:
    graph = small_tree()
    graph.add_node("root", level="cluster")
    graph.add_edges_from([("root", "b0"), ("root", "b1")])
    assert domains(Cluster.from_graph(graph)) == SMALL


@pytest.mark.parametrize("kind", [nx.DiGraph, nx.MultiGraph, nx.MultiDiGraph])
def test_directions_and_parallel_links_do_not_matter(kind: type[nx.Graph]) -> None:
    graph = kind(small_tree())
    graph.add_edges_from([("r0", "b0"), ("n1", "r0"), ("n1", "r0")])
    assert Cluster.from_graph(graph) == Cluster.from_graph(small_tree())


@pytest.mark.parametrize("links", ["edges", "links"])
def test_node_link_data(links: str) -> None:
    assert from_wire_graph(node_link(small_tree(), links=links)) == Cluster.from_graph(small_tree())


def test_fields_of_nodes_are_kept() -> None:
    fields: dict[str, Any] = {
        "gpus": 4,
        "gpu_type": "a100",
        "state": "draining",
        "resources": {"cpu": 96},
        "labels": {"zone": "west"},
        "gpu_groups": [[0, 1], [2, 3]],
        "unhealthy_gpus": [3],
    }
    graph = small_tree()
    host(graph, "n3", "r1", **fields, asset="not ours")
    expected = node("n3", **fields, domains={"block": "b1", "rack": "r1"})
    assert Cluster.from_graph(graph).nodes[3] == expected
    assert from_wire_graph(node_link(graph)).nodes[3] == expected


def test_name_attribute_comes_before_the_id() -> None:
    graph = nx.Graph(levels=["rack"])
    graph.add_node(7, level="rack")
    graph.add_node(8, level="rack", name="r8")
    host(graph, 1, 7)
    host(graph, 2, 8, name="n2")
    assert domains(Cluster.from_graph(graph)) == {"1": {"rack": "7"}, "n2": {"rack": "r8"}}


def test_repeated_names_are_qualified_by_their_parents() -> None:
    graph = nx.Graph(levels=["zone", "block", "rack"])
    for z in range(2):
        graph.add_node(f"z{z}", level="zone")
        graph.add_node(f"z{z}b", level="block", name="b")
        graph.add_node(f"z{z}r", level="rack", name=f"r{z}")
        graph.add_node(f"z{z}s", level="rack", name="spare")
        graph.add_edges_from([(f"z{z}", f"z{z}b"), (f"z{z}b", f"z{z}r"), (f"z{z}b", f"z{z}s")])
        host(graph, f"n{z}", f"z{z}r")
    assert domains(Cluster.from_graph(graph)) == {
        "n0": {"zone": "z0", "block": "z0/b", "rack": "z0/b/r0"},
        "n1": {"zone": "z1", "block": "z1/b", "rack": "z1/b/r1"},
    }


def test_node_at_a_coarser_level_has_no_finer_domain() -> None:
    graph = small_tree()
    host(graph, "n3", "b1")
    host(graph, "n4")
    assert domains(Cluster.from_graph(graph)) == {**SMALL, "n3": {"block": "b1"}, "n4": {}}


def test_domain_that_skips_a_level_is_one_of_its_own_there() -> None:
    graph = nx.Graph(levels=["block", "rack"])
    graph.add_node("root", level="cluster")
    graph.add_node("b", level="block", name="rack:r0")
    graph.add_edge("root", "b")
    for rack in ("r0", "r1"):
        graph.add_node(rack, level="rack")
        graph.add_edge("root", rack)
    host(graph, "n0", "r0")
    host(graph, "n1", "r0")
    host(graph, "n2", "r1")
    assert domains(Cluster.from_graph(graph)) == {
        "n0": {"block": "rack:rack:r0", "rack": "r0"},
        "n1": {"block": "rack:rack:r0", "rack": "r0"},
        "n2": {"rack": "r1"},
    }


def test_domains_without_nodes_are_dropped() -> None:
    graph = small_tree()
    graph.add_node("b2", level="block")
    assert domains(Cluster.from_graph(graph)) == SMALL


def test_host_without_gpus_is_a_node_by_its_level() -> None:
    graph = small_tree()
    host(graph, "n3", "r1", gpus=0, level="node")
    assert Cluster.from_graph(graph).nodes[3] == node("n3", gpus=0, domains={"block": "b1", "rack": "r1"})


def test_graph_of_a_cluster() -> None:
    cluster = Cluster("made-up", ("rack",), (placed("rack", rack="rack"), placed("n1")))
    graph = cluster.to_graph()
    assert set(graph) == {"cluster made-up", "rack rack", "rack", "n1"}
    assert set(map(frozenset, graph.edges())) == {
        frozenset({"cluster made-up", "rack rack"}),
        frozenset({"rack rack", "rack"}),
        frozenset({"cluster made-up", "n1"}),
    }
    assert graph.nodes["n1"] == {"name": "n1", "level": "node", "gpu_type": "h100", "gpus": 8}
    assert nx.is_tree(graph)


def test_cycle_is_named_in_order() -> None:
    graph = small_tree()
    graph.add_node("top", level="cluster")
    graph.add_edges_from([("top", "b0"), ("top", "b1"), ("b1", "r0")])
    (issue,) = refusal(graph)
    assert (issue.code, issue.path) == ("graph_cycle", "graph.nodes['top']")
    assert "round in a circle: top > b0 > r0 > b1 > top;" in issue.message


def test_cycle_in_node_link_data() -> None:
    graph = small_tree()
    graph.add_edges_from([("n0", "b0")])
    with pytest.raises(InputError) as refused:
        from_wire_graph(node_link(graph))
    (issue,) = refused.value.issues
    assert (issue.code, issue.path) == ("graph_cycle", "cluster.graph.nodes[0]")
    assert ": b0 > n0 > r0 > b0;" in issue.message


def test_link_of_a_vertex_to_itself() -> None:
    graph = small_tree()
    graph.add_edge("r1", "r1")
    (issue,) = refusal(graph)
    assert (issue.code, issue.path) == ("graph_cycle", "graph.nodes['r1']")
    assert ": r1 > r1;" in issue.message


def test_every_part_with_a_cycle_is_told_and_the_shortest_cycle_named() -> None:
    graph = rail_optimised(pods=2, hosts=2)
    graph.add_nodes_from((v for v in graph if "leaf" in v), level="rack")
    graph.add_nodes_from((v for v in graph if "spine" in v), level="block")
    graph.graph["levels"] = ["block", "rack"]
    graph.add_edges_from([("x", "y"), ("y", "z"), ("z", "x")])
    graph.add_nodes_from(["x", "y", "z"], level="block")
    first, second = refusal(graph)
    assert (first.code, second.code) == ("graph_cycle", "graph_cycle")
    assert ": spine0 > p0-leaf0 > p0-h0 > p0-leaf1 > spine0;" in first.message
    assert ": x > y > z > x;" in second.message


def test_three_layer_clos_is_no_tree() -> None:
    graph = clos()
    graph.add_nodes_from((v for v in graph if "gpus" not in graph.nodes[v]), level="switch")
    graph.graph["levels"] = ["switch"]
    assert [code for code, _ in codes(graph)] == ["graph_cycle"]


def test_double_parents_are_named() -> None:
    graph = small_tree()
    graph.add_edge("b1", "r0")
    (issue,) = refusal(graph)
    assert (issue.code, issue.path) == ("domain_two_parents", "graph.nodes['r0']")
    assert issue.message == "rack `r0` lies in block `b0` and in block `b1`; it may lie in one only"


def test_double_parents_of_a_node_are_named() -> None:
    graph = small_tree()
    graph.add_edge("n0", "b1")
    (issue,) = refusal(graph)
    assert (issue.code, issue.path) == ("node_two_parents", "graph.nodes['n0']")
    assert issue.message == "node `n0` lies in block `b1` and in rack `r0`; it may lie in one only"


def _rack_on_nothing(graph: nx.Graph) -> None:
    graph.add_node("r2", level="rack")
    host(graph, "n3", "r2")


def _linked_nodes(graph: nx.Graph) -> None:
    host(graph, "n3", "n2")


def _two_roots(graph: nx.Graph) -> None:
    graph.add_nodes_from(["x", "y"], level="cluster")


def _same_name_same_parent(graph: nx.Graph) -> None:
    graph.add_node("r2", level="rack", name="r1")
    graph.add_edge("b1", "r2")


def _same_block_name(graph: nx.Graph) -> None:
    graph.add_node("b2", level="block", name="b1")


def _same_node_name(graph: nx.Graph) -> None:
    host(graph, "n3", "r1", name="n2")


def _no_level(graph: nx.Graph) -> None:
    graph.add_edge("b1", "r2")


def _unknown_level(graph: nx.Graph) -> None:
    graph.add_node("r2", level="row")


def _gpus_on_a_rack(graph: nx.Graph) -> None:
    graph.add_node("r1", gpus=72, gpu_type="gb200")


def _levels_missing(graph: nx.Graph) -> None:
    del graph.graph["levels"]


def _levels_reserved(graph: nx.Graph) -> None:
    graph.graph["levels"] = ["cluster", "block", "rack"]


def _blank_in_a_name(graph: nx.Graph) -> None:
    graph.add_node("r1", name="rack 1")


def _malformed_node(graph: nx.Graph) -> None:
    graph.add_node("n0", gpus=-8)
    graph.add_node("n1", state="broken")


REFUSED = {
    "rack on nothing": (_rack_on_nothing, [("detached_domain", "graph.nodes['r2']")]),
    "linked nodes": (_linked_nodes, [("same_level_link", "graph.nodes['n2']")]),
    "two roots": (_two_roots, [("duplicate_domain", "graph.nodes['y']")]),
    "same name, same parent": (_same_name_same_parent, [("duplicate_domain", "graph.nodes['r2']")]),
    "same block name": (_same_block_name, [("duplicate_domain", "graph.nodes['b2']")]),
    "same node name": (_same_node_name, [("duplicate_id", "graph.nodes['n3']")]),
    "no level": (_no_level, [("missing", "graph.nodes['r2'].level")]),
    "unknown level": (_unknown_level, [("unknown_level", "graph.nodes['r2'].level")]),
    "GPUs on a rack": (_gpus_on_a_rack, [("node_level", "graph.nodes['r1']")]),
    "levels missing": (_levels_missing, [("missing", "graph.graph.levels")]),
    "levels reserved": (_levels_reserved, [("reserved_level", "graph.graph.levels[0]")]),
    "blank in a name": (_blank_in_a_name, [("pattern", "graph.nodes['r1'].name")]),
    "malformed node": (_malformed_node, [("range", "graph.nodes['n0'].gpus"), ("enum", "graph.nodes['n1'].state")]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    change, expected = REFUSED[case]
    graph = small_tree()
    change(graph)
    assert codes(graph) == expected


def test_names_that_collide_once_qualified() -> None:
    graph = nx.Graph(levels=["block", "rack"])
    for i, (block, rack) in enumerate([("a", "b/c"), ("a/b", "c"), ("d", "c")]):
        graph.add_node(f"b{i}", level="block", name=block)
        graph.add_node(f"r{i}", level="rack", name=rack)
        graph.add_edge(f"b{i}", f"r{i}")
    (issue,) = refusal(graph)
    assert (issue.code, issue.message) == ("duplicate_domain", "`r1` and `r0` are both rack `a/b/c`; rename one")


def test_malformed_node_link_data() -> None:
    data = node_link(small_tree())
    data["nodes"] += ["n9", {"gpus": 8}, {"id": "b0"}, {"id": [1]}]
    data["edges"] += [["n0", "r0"], {"source": "n0"}, {"source": "n0", "target": "r9"}]
    with pytest.raises(InputError) as refused:
        from_wire_graph(data)
    assert [(issue.code, issue.path) for issue in refused.value.issues] == [
        ("type", "cluster.graph.nodes[7]"),
        ("missing", "cluster.graph.nodes[8].id"),
        ("duplicate_id", "cluster.graph.nodes[9].id"),
        ("type", "cluster.graph.nodes[10].id"),
        ("type", "cluster.graph.edges[5]"),
        ("missing", "cluster.graph.edges[6].target"),
        ("unknown_vertex", "cluster.graph.edges[7]"),
    ]


def test_levels_of_the_wrong_type() -> None:
    graph = small_tree()
    graph.graph["levels"] = "rack"
    assert codes(graph)[0] == ("type", "graph.graph.levels")
