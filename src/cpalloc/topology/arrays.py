"""The tree as arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cpalloc.schema.request import Node
from cpalloc.topology.cluster import Cluster
from cpalloc.topology.naming import CLUSTER, NODE, own_name

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Topology:
    """The tree as arrays. ``levels[0] == "cluster"``, ``levels[-1] == "node"``.

    ``domain_of[level, node]`` is the index of the node's domain at that level, ``names[level][domain]`` its name.
    Domains are numbered by name inside each level; every domain lies in one domain of the level above.
    """

    levels: tuple[str, ...]
    domain_of: IntArray
    names: tuple[tuple[str, ...], ...]

    def level_index(self, level: str) -> int:
        """Index of a level by name; ValueError when the cluster has no such level."""
        return self.levels.index(level)


def to_arrays(cluster: Cluster) -> tuple[tuple[str, ...], Topology]:
    """Number the domains of a cluster.

    Parameters
    ----------
    cluster : Cluster
        With N nodes and L user levels.

    Returns
    -------
    nodes : tuple of str
        Names of the nodes in the order of the arrays, which is by name.
    topology : Topology
        ``domain_of`` has shape (L + 2, N) and is read-only. The domain of level ``cluster`` is called ``cluster``; a
        node without a domain at a level is one of its own there, called ``node:<name>``.

    Examples
    --------
    >>> nodes = [Node(name=n, gpu_type="h100", gpus=8, domains=d) for n, d in (("n1", {"rack": "r0"}), ("n2", {}))]
    >>> names, topology = to_arrays(Cluster("jupiter", ("rack",), tuple(nodes)))
    >>> topology.names
    (('cluster',), ('node:n2', 'r0'), ('n1', 'n2'))
    >>> topology.domain_of.tolist()
    [[0, 0], [1, 0], [0, 1]]
    """
    nodes = cluster.nodes
    names = tuple(node.name for node in nodes)
    domain_of = np.zeros((len(cluster.levels) + 2, len(nodes)), dtype=np.int64)
    domain_of[-1] = np.arange(len(nodes))
    domains: list[tuple[str, ...]] = [(CLUSTER,)]
    for row, level in enumerate(cluster.levels, start=1):
        at = _domains_at(nodes, level)
        numbered = {domain: i for i, domain in enumerate(sorted(set(at)))}
        domain_of[row] = [numbered[domain] for domain in at]
        domains.append(tuple(numbered))
    domain_of.flags.writeable = False
    return names, Topology((CLUSTER, *cluster.levels, NODE), domain_of, (*domains, names))


def _domains_at(nodes: tuple[Node, ...], level: str) -> list[str]:
    """Name each node's domain at a level; missing ones in the order of the nodes, so that the choice is settled."""
    given = [node.domains.get(level) for node in nodes]
    taken = {domain for domain in given if domain is not None}
    at: list[str] = []
    for node, domain in zip(nodes, given, strict=True):
        if domain is None:
            domain = own_name(node.name, NODE, taken)
            taken.add(domain)
        at.append(domain)
    return at
