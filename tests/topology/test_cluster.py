"""Clusters from lists: what is refused, and the wire form."""

from __future__ import annotations

import pytest

from cpalloc.errors import InputError
from cpalloc.schema import Cluster as WireCluster
from cpalloc.topology import Cluster

from .graphs import node, placed


def test_order_of_nodes_does_not_matter() -> None:
    nodes = (placed("n2", rack="r0"), placed("n1", rack="r1"))
    assert Cluster("c", ("rack",), nodes) == Cluster("c", ("rack",), nodes[::-1])
    assert [n.name for n in Cluster("c", ("rack",), nodes).nodes] == ["n1", "n2"]


def test_wire_form_is_read_and_written() -> None:
    wire = WireCluster(
        name="jupiter",
        levels=("block", "rack"),
        nodes=(
            node("n2", gpu_groups=[[0, 1], [2, 3]], unhealthy_gpus=[5], state="draining", labels={"zone": "west"}),
            placed("n1", block="b0", rack="r0"),
        ),
    )
    cluster = Cluster.from_wire(wire)
    assert cluster.to_wire() == wire.model_copy(update={"nodes": wire.nodes[::-1]})
    assert Cluster.from_wire(cluster.to_wire()) == cluster


def test_cluster_without_nodes() -> None:
    cluster = Cluster.from_wire(WireCluster(name="empty", nodes=()))
    assert cluster == Cluster("empty", (), ())
    assert Cluster.from_graph(cluster.to_graph()) == cluster


CASES = {
    "reserved level": (("node", "rack"), [], [("reserved_level", "cluster.levels[0]")]),
    "level twice": (("rack", "rack"), [], [("duplicate_level", "cluster.levels[1]")]),
    "node twice": (("rack",), [placed("n"), placed("n")], [("duplicate_id", "cluster.nodes[1].name")]),
    "unknown level": (("rack",), [placed("n", row="x")], [("unknown_level", "cluster.nodes[0].domains.row")]),
    "two parents": (
        ("block", "rack"),
        [placed("n0", block="b0", rack="r"), placed("n1", block="b1", rack="r")],
        [("domain_two_parents", "cluster.nodes[1].domains.rack")],
    ),
    "a parent and none": (
        ("block", "rack"),
        [placed("n0", block="b0", rack="r"), placed("n1", rack="r")],
        [("domain_two_parents", "cluster.nodes[1].domains.rack")],
    ),
    "no parent twice": (
        ("block", "rack"),
        [placed("n0", rack="r"), placed("n1", rack="r")],
        [("domain_two_parents", "cluster.nodes[1].domains.rack")],
    ),
    "a gap between": (
        ("zone", "block", "rack"),
        [placed("n0", zone="z", rack="r"), placed("n1", zone="z", rack="r")],
        [("domain_two_parents", "cluster.nodes[1].domains.rack")],
    ),
    "everything": (
        ("cluster", "rack"),
        [placed("n", row="x"), placed("n", rack="r")],
        [
            ("reserved_level", "cluster.levels[0]"),
            ("duplicate_id", "cluster.nodes[1].name"),
            ("unknown_level", "cluster.nodes[0].domains.row"),
        ],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_refused(case: str) -> None:
    levels, nodes, expected = CASES[case]
    with pytest.raises(InputError) as refused:
        Cluster("made-up", levels, tuple(nodes))
    assert [(issue.code, issue.path) for issue in refused.value.issues] == expected


def test_both_parents_are_named() -> None:
    nodes = (placed("n0", block="b0", rack="r"), placed("n1", block="b1", rack="r"), placed("n2", rack="r"))
    with pytest.raises(InputError) as refused:
        Cluster("made-up", ("block", "rack"), nodes)
    (issue,) = refused.value.issues
    assert issue.message == "rack `r` lies in block `b0` and in block `b1`; it may lie in one only"


def test_malformed_name() -> None:
    with pytest.raises(InputError) as refused:
        Cluster("my cluster", (), ())
    assert [(issue.code, issue.path) for issue in refused.value.issues] == [("pattern", "cluster.name")]


def test_one_node_may_leave_a_level_open_above_its_rack() -> None:
    cluster = Cluster("made-up", ("block", "rack"), (placed("n0", rack="r"), placed("n1", block="r", rack="x")))
    assert cluster.nodes[0].domains == {"rack": "r"}
