"""Solve a round on a cluster described as a graph: ``python examples/fabric.py``.

First a tree in the request itself (``graph.json``), then a rail-optimised fabric drawn with networkx, which is no tree
and is condensed to one.
"""

from __future__ import annotations

from pathlib import Path

import networkx as nx

from cpalloc import Allocation, Cluster, parse_round, solve

HERE = Path(__file__).parent


def main() -> None:
    """Solve both."""
    round_ = parse_round((HERE / "graph.json").read_bytes())
    print("graph.json")
    print_starts(solve(round_))

    # The same jobs and budgets on another cluster.
    cluster, notes = Cluster.from_fabric(rail_fabric(), ["block"], name="rails")
    print(f"fabric: levels {', '.join(cluster.levels)}, {len(cluster.nodes)} nodes")
    for note in notes:
        print(f"  {note}")
    answer = solve(round_.model_copy(update={"cluster": cluster.to_wire()}))
    print_starts(answer)
    # Jobs that require a rack have none here. That is their problem alone: they wait, and are told.
    for d in answer.decisions:
        if d.reason is not None:
            print(f"  {d.job} waits: {d.reason.message}")


def rail_fabric(*, pods: int = 2, hosts: int = 4, rails: int = 8, spines: int = 2) -> nx.Graph:
    """Draw pods whose hosts are wired to every leaf switch (rail) of the pod; the spines connect all leaves.

    Vertices with ``gpus`` are hosts and carry the fields of a request's nodes; everything else is a switch.
    """
    fabric = nx.Graph()
    for pod in range(pods):
        leaves = [f"pod{pod}-leaf{rail}" for rail in range(rails)]
        for leaf in leaves:
            fabric.add_edges_from((leaf, f"spine{spine}") for spine in range(spines))
        for number in range(hosts):
            host = f"pod{pod}-host{number}"
            fabric.add_node(host, gpus=8, gpu_type="h100")
            fabric.add_edges_from((host, leaf) for leaf in leaves)
    return fabric


def print_starts(answer: Allocation) -> None:
    """Where every start goes."""
    for d in answer.decisions:
        if d.action == "start":
            print(f"  {d.job} starts on {', '.join(sorted({place.node for place in d.placement or ()}))}")


if __name__ == "__main__":
    main()
