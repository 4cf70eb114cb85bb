"""The cluster as a tree of domains: read from lists, graphs and fabrics, verified, and turned into arrays."""

from cpalloc.topology.arrays import Topology, to_arrays
from cpalloc.topology.cluster import Cluster

__all__ = ["Cluster", "Topology", "to_arrays"]
