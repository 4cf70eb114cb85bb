"""What every reader is given: the open table, and what the caller knows of the cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cpalloc.errors import InputError, Issue
from cpalloc.sim.traces.base import ClusterFacts, Trace
from cpalloc.sim.traces.nodes import GPUS_PER_NODE, count_nodes, read_nodes
from cpalloc.sim.traces.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A trace file and the cluster it ran on.

    Parameters
    ----------
    nodes : Path or int, optional
        A file that lists nodes (see :func:`read_nodes`), or their number.
    gpus_per_node : int, optional
        GPUs of a node where no file says; default 8.
    """

    table: Table
    nodes: Path | int | None = None
    gpus_per_node: int | None = None

    @property
    def path(self) -> Path:
        """The trace file."""
        return self.table.path

    def cluster(self, default: int | None = None, per_node: int = GPUS_PER_NODE, why: str = "") -> ClusterFacts:
        """The nodes: from the caller, else ``default`` of them, with ``why`` as a note.

        Raises
        ------
        InputError
            ``nodes`` when nobody knows how many there are.
        """
        if isinstance(self.nodes, Path):
            return read_nodes(self.nodes, self.gpus_per_node)
        gpus = self.gpus_per_node or per_node
        if self.nodes is not None:
            return count_nodes(self.nodes, gpus)
        if default is None:
            message = "does not say how many nodes the cluster has; give their number, or a file that lists them"
            raise InputError([Issue("nodes", str(self.path), message)])
        return ClusterFacts(nodes=count_nodes(default, gpus).nodes, notes=(f"{default:,} nodes of {gpus} GPUs: {why}",))

    def gpus_of_a_node(self, facts: ClusterFacts) -> int:
        """GPUs of the largest node: what a job is cut into."""
        return max((node.gpus for node in facts.nodes), default=GPUS_PER_NODE)


@dataclass(frozen=True, slots=True)
class Format:
    """A trace format: its name, the sets of columns that give it away, and its reader."""

    name: str
    headers: tuple[frozenset[str], ...]
    read: Callable[[Source], Trace]
