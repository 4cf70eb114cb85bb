"""Fabrics condensed to trees: rail-optimised, three-layer Clos, plain trees, and fabrics with faults."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpalloc.errors import InputError
from cpalloc.topology import Cluster

from .graphs import clos, host, rail_optimised, shuffled, small_tree, trees


def parts(cluster: Cluster, level: str) -> dict[str, set[str]]:
    """Names of the nodes in each domain of a level."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for node in cluster.nodes:
        if level in node.domains:
            found[node.domains[level]].add(node.name)
    return dict(found)


@pytest.mark.parametrize("spines_per_rail", [None, 2])
def test_rail_optimised_pods_become_domains(spines_per_rail: int | None) -> None:
    # spines of all leaves, or of one rail of every pod: either way every pod reaches all of them
    graph = rail_optimised(pods=4, hosts=6, spines_per_rail=spines_per_rail)
    cluster, notes = Cluster.from_fabric(graph, ["block", "pod"])
    assert cluster.levels == ("pod",)
    assert parts(cluster, "pod") == {f"p{p}-leaf0+7": {f"p{p}-h{i}" for i in range(6)} for p in range(4)}
    leaves = ", ".join(f"p0-leaf{rail}" for rail in range(8))
    assert notes[0] == f"pod `p0-leaf0+7`: 6 hosts wired to the same 8 switches: {leaves}"
    assert notes[4].startswith(f"cluster: 4 pods connected by {8 if spines_per_rail is None else 16} switches: ")
    assert notes[5:] == ("the fabric has no tier for block; left out",)


def test_three_layer_clos() -> None:
    cluster, notes = Cluster.from_fabric(clos(pods=3, leaves=2, spines=2, cores=4, hosts=3), ["zone", "pod", "rack"])
    assert cluster.levels == ("pod", "rack")
    assert parts(cluster, "rack") == {
        f"p{p}-l{i}": {f"p{p}-l{i}-h{h}" for h in range(3)} for p in range(3) for i in range(2)
    }
    assert parts(cluster, "pod") == {
        f"p{p}-s0+1": {f"p{p}-l{i}-h{h}" for i in range(2) for h in range(3)} for p in range(3)
    }
    assert notes == (
        "pod `p0-s0+1`: 2 racks wired to the same 2 switches: p0-s0, p0-s1",
        "pod `p1-s0+1`: 2 racks wired to the same 2 switches: p1-s0, p1-s1",
        "pod `p2-s0+1`: 2 racks wired to the same 2 switches: p2-s0, p2-s1",
        "cluster: 3 pods connected by 4 switches: core0, core1, core2, core3",
        "the fabric has no tier for zone; left out",
    )


def test_fewer_levels_than_tiers() -> None:
    cluster, notes = Cluster.from_fabric(clos(), ["rack"])
    assert cluster.levels == ("rack",)
    assert len(parts(cluster, "rack")) == 6
    assert notes[-1] == "no level is left for the switches above the 6 racks: " + ", ".join(
        f"p{p}-s{j}" for p in range(3) for j in range(2)
    )


def test_no_levels() -> None:
    cluster, notes = Cluster.from_fabric(clos(), [])
    assert (cluster.levels, notes) == ((), ())


def test_plain_tree() -> None:
    graph = small_tree()
    graph.add_node("core", level="cluster")
    graph.add_edges_from([("core", "b0"), ("core", "b1")])
    cluster, notes = Cluster.from_fabric(graph, ["block", "rack"])
    assert cluster == Cluster.from_graph(graph)
    assert notes == ("cluster: 2 blocks connected by 1 switch: core",)


def test_islands() -> None:
    graph = clos(pods=2, spines=2, cores=2)
    graph.remove_nodes_from(["core0", "core1"])
    cluster, notes = Cluster.from_fabric(graph, ["zone", "pod", "rack"])
    assert len(parts(cluster, "pod")) == 2
    assert notes[-2:] == ("cluster: 2 pods that no switch connects", "the fabric has no tier for zone; left out")


def test_single_switch() -> None:
    graph = nx.Graph(name="lab")
    host(graph, "n0", "s")
    host(graph, "n1", "s")
    cluster, notes = Cluster.from_fabric(graph, ["block", "rack"])
    assert (cluster.name, cluster.levels, parts(cluster, "rack")) == ("lab", ("rack",), {"s": {"n0", "n1"}})
    assert notes == ("the fabric has no tier for block; left out",)


def test_broken_link_is_told() -> None:
    graph = rail_optimised(pods=2, hosts=4)
    graph.remove_edge("p1-h3", "p1-leaf5")
    cluster, notes = Cluster.from_fabric(graph, ["pod"])
    assert parts(cluster, "pod")["p1-leaf0+6"] == {"p1-h3"}
    assert (
        "pod `p1-leaf0+6` is not wired to p1-leaf5, unlike the 3 hosts of `p1-leaf0+7`, and kept apart; "
        "is a link down? p1-h3"
    ) in notes


def test_several_hosts_under_one_name_are_told() -> None:
    graph = rail_optimised(pods=2, hosts=4)
    host(graph, "unnamed", *(v for v in list(graph) if "leaf" in v))
    _, notes = Cluster.from_fabric(graph, ["pod"])
    assert (
        "pod `p0-leaf0+15` is wired to all switches of p0-leaf0+7, p1-leaf0+7, and kept apart; "
        "are there several hosts under one name? unnamed"
    ) in notes


def test_what_does_not_count_is_told() -> None:
    graph = clos(pods=2)
    graph.add_edge("p0-l0", "aggregation")  # a dead end
    graph.add_edge("p0-l0", "p0-l1")
    graph.add_edge("p0-l0-h0", "p0-l0-h1")
    host(graph, "lonely")
    cluster, notes = Cluster.from_fabric(graph, ["pod", "rack"])
    plain, plain_notes = Cluster.from_fabric(clos(pods=2), ["pod", "rack"])
    assert [n for n in cluster.nodes if n.name != "lonely"] == list(plain.nodes)
    assert next(n.domains for n in cluster.nodes if n.name == "lonely") == {}
    assert notes == (
        "links between hosts do not count, 1 of them: p0-l0-h0, p0-l0-h1",
        "without a link to a switch, each a domain of its own: lonely",
        "connecting nothing, left out: aggregation",
        "links inside tier 1 do not count, 1 of them: p0-l0, p0-l1",
        *plain_notes,
    )


def test_switches_with_the_same_name_and_odd_names() -> None:
    graph = nx.Graph()
    for key, name in ((1, "leaf"), (2, "leaf"), (3, "MF0;X 1:MQM/U1"), (4, "MF0;X 2:MQM/U1")):
        graph.add_node(key, name=name)
        host(graph, f"n{key}", key)
    cluster, _ = Cluster.from_fabric(graph, ["rack"])
    assert parts(cluster, "rack") == {"1": {"n1"}, "2": {"n2"}, "MF0-X-1:MQM/U1": {"n3"}, "MF0-X-2:MQM/U1": {"n4"}}


def test_different_sets_with_the_same_first_switch() -> None:
    graph = nx.Graph()
    host(graph, "n0", "l0", "l1")
    host(graph, "n1", "l0", "l2")
    cluster, _ = Cluster.from_fabric(graph, ["rack"])
    assert parts(cluster, "rack") == {"l0+1": {"n0"}, "l0+1@2": {"n1"}}


def test_part_without_uplinks_stays_alone() -> None:
    graph = clos(pods=2)
    host(graph, "island0", "isle")
    host(graph, "island1", "isle")
    cluster, _ = Cluster.from_fabric(graph, ["pod", "rack"])
    assert parts(cluster, "pod")["isle"] == parts(cluster, "rack")["isle"] == {"island0", "island1"}


def test_malformed_levels_and_hosts() -> None:
    with pytest.raises(InputError) as refused:
        Cluster.from_fabric(clos(), ["node", "rack"])
    assert [(issue.code, issue.path) for issue in refused.value.issues] == [("reserved_level", "levels[0]")]
    graph = clos()
    host(graph, "bad", "p0-l0", gpus=-1)
    with pytest.raises(InputError) as refused:
        Cluster.from_fabric(graph, ["rack"])
    assert [(issue.code, issue.path) for issue in refused.value.issues] == [("range", "graph.nodes['bad'].gpus")]


@st.composite
def fabrics(draw: st.DrawFn) -> nx.Graph:
    """Hosts, leaves and spines wired at random."""
    graph = nx.Graph()
    for leaf in range(5):
        graph.add_edges_from((f"l{leaf}", f"s{s}") for s in draw(st.sets(st.integers(0, 3), max_size=3)))
    for i in range(draw(st.integers(0, 8))):
        host(graph, f"h{i}", *(f"l{leaf}" for leaf in draw(st.sets(st.integers(0, 4), max_size=3))))
    return graph


@given(st.data(), fabrics())
def test_order_does_not_matter(data: Any, graph: nx.Graph) -> None:
    again = data.draw(st.composite(shuffled)(graph))
    assert Cluster.from_fabric(again, ["block", "rack"]) == Cluster.from_fabric(graph, ["block", "rack"])


@given(fabrics())
def test_domains_are_the_hosts_wired_alike(graph: nx.Graph) -> None:
    cluster, _ = Cluster.from_fabric(graph, ["block", "rack"])
    leaves = {n.name: frozenset(graph.adj[n.name]) for n in cluster.nodes}
    for one in cluster.nodes:
        for two in cluster.nodes:
            if leaves[one.name] and leaves[two.name]:
                alike = leaves[one.name] == leaves[two.name]
                assert (one.domains["rack"] == two.domains["rack"]) == alike
        assert ("rack" in one.domains) == bool(leaves[one.name])


@given(trees(unique=True, whole=True))
def test_a_tree_condenses_to_itself(graph: nx.Graph) -> None:
    """Up to names: a single rack's uplinks end in nothing, and a lone top switch is the cluster."""
    expected = Cluster.from_graph(graph)
    cluster, _ = Cluster.from_fabric(graph, graph.graph["levels"])
    for level in cluster.levels:
        assert sorted(map(sorted, parts(cluster, level).values())) == sorted(
            map(sorted, parts(expected, level).values())
        )
    for level in expected.levels[: len(expected.levels) - len(cluster.levels)]:
        assert len(parts(expected, level)) <= 1
