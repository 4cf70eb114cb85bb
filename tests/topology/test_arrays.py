"""The tree as arrays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from cpalloc.topology import Cluster, Topology, to_arrays

from .graphs import clusters, placed


def test_small_cluster() -> None:
    nodes = (
        placed("n3", block="b0", rack="r9"),
        placed("n1", block="b1", rack="r1"),
        placed("n2", block="b0"),
        placed("n0"),
    )
    order, topology = to_arrays(Cluster("made-up", ("block", "rack"), nodes))
    assert order == ("n0", "n1", "n2", "n3")
    assert topology.levels == ("cluster", "block", "rack", "node")
    assert topology.names == (
        ("cluster",),
        ("b0", "b1", "node:n0"),
        ("node:n0", "node:n2", "r1", "r9"),
        ("n0", "n1", "n2", "n3"),
    )
    assert topology.domain_of.tolist() == [[0, 0, 0, 0], [2, 1, 0, 0], [0, 2, 1, 3], [0, 1, 2, 3]]
    assert topology.domain_of.dtype == np.int64
    assert not topology.domain_of.flags.writeable


def test_own_domain_never_meets_a_real_one() -> None:
    nodes = (placed("a"), placed("b", rack="node:a"), placed("node:a"))
    _, topology = to_arrays(Cluster("made-up", ("rack",), nodes))
    assert topology.names[1] == ("node:a", "node:node:a", "node:node:node:a")
    assert topology.domain_of[1].tolist() == [1, 0, 2]


def test_level_index() -> None:
    _, topology = to_arrays(Cluster("made-up", ("rack",), ()))
    assert [topology.level_index(level) for level in ("cluster", "rack", "node")] == [0, 1, 2]
    assert topology.domain_of.shape == (3, 0)
    with pytest.raises(ValueError, match="not in tuple"):
        topology.level_index("block")


@given(clusters())
def test_arrays_say_what_the_nodes_say(cluster: Cluster) -> None:
    order, topology = to_arrays(cluster)
    assert order == tuple(n.name for n in cluster.nodes) == topology.names[-1]
    for row, level in enumerate(topology.levels):
        names = topology.names[row]
        assert list(names) == sorted(set(names))
        assert set(topology.domain_of[row].tolist()) == (set(range(len(names))) if order else set())
        for i, node in enumerate(cluster.nodes):
            given_name = {**node.domains, "cluster": "cluster", "node": node.name}.get(level)
            at = topology.domain_of[row] == topology.domain_of[row, i]
            assert names[topology.domain_of[row, i]] == given_name or (given_name is None and at.sum() == 1)
    _assert_nested(topology)


def _assert_nested(topology: Topology) -> None:
    for coarse, fine in zip(topology.domain_of, topology.domain_of[1:], strict=False):
        pairs = set(zip(fine.tolist(), coarse.tolist(), strict=True))
        assert len(pairs) == len({domain for domain, _ in pairs})


def test_ten_thousand_nodes() -> None:
    nodes = tuple(placed(f"n{i:05}", block=f"b{i // 800}", rack=f"r{i // 16}") for i in range(10_000))
    cluster = Cluster("made-up", ("block", "rack"), nodes)
    names, topology = to_arrays(cluster)
    assert len(names) == 10_000
    assert [len(level) for level in topology.names] == [1, 13, 625, 10_000]
