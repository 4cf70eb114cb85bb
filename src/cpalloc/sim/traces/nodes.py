"""What a cluster looks like: from a number of nodes, or from a file in one of a few formats, told by its header."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from cpalloc.errors import InputError, Issue
from cpalloc.schema import Node
from cpalloc.sim.traces.base import GPU_TYPE, ClusterFacts
from cpalloc.sim.traces.table import Table
from cpalloc.topology.naming import as_id

GPUS_PER_NODE = 8
"""GPUs of a node where nobody says."""

_OWN = ("name", "gpus", "gpu_type", "team")


def count_nodes(count: int, gpus_per_node: int, gpu_type: str = GPU_TYPE) -> ClusterFacts:
    """Equal nodes ``n0000`` … that belong to nobody in particular.

    Raises
    ------
    InputError
        When there is none.
    """
    if count < 1:
        raise InputError([Issue("nodes", "nodes", f"{count} nodes are no cluster; give at least 1")])
    width = max(4, len(str(count - 1)))
    nodes = tuple(Node(name=f"n{i:0{width}}", gpu_type=gpu_type, gpus=gpus_per_node) for i in range(count))
    return ClusterFacts(nodes=nodes)


def team_cluster(counts: Mapping[str, int], gpus_per_node: int, gpu_type: str = GPU_TYPE) -> ClusterFacts:
    """Equal nodes, so many for each team, named after it: ``vcA-00`` …"""
    team_nodes = {team: tuple(f"{as_id(team)}-{i:02}" for i in range(count)) for team, count in counts.items()}
    nodes = tuple(
        Node(name=name, gpu_type=gpu_type, gpus=gpus_per_node) for names in team_nodes.values() for name in names
    )
    return ClusterFacts(nodes=nodes, team_nodes=team_nodes)


def read_nodes(path: Path, gpus_per_node: int | None = None) -> ClusterFacts:
    """Read the nodes of a cluster from a file.

    Formats, told by the header:

    - nodes per team: two columns, the team and its number of nodes (Helios, Philly);
    - ``sn, …, gpu, model``: openb's node list;
    - ``host, DSW, PSW, ASW``: Lingjun's three tiers of switches, the levels ``pod``, ``spine`` and ``leaf``;
    - ``machineId, number of GPUs``: Philly's machine list;
    - ``name, gpus`` and, if wanted, ``gpu_type``, ``team``, then one column a level of the topology, coarse to fine.

    Parameters
    ----------
    gpus_per_node : int, optional
        GPUs of a node where the file does not say; default 8, as a note says.

    Raises
    ------
    InputError
        An unknown header, or bad cells with file and line.
    """
    table = Table.open(path)
    columns = table.columns
    if {"name", "gpus"} <= set(columns):
        return _own_list(table)
    if {"sn", "gpu", "model"} <= set(columns):
        return _listed(table, "sn", "gpu", "model")
    if {"machineId", "number of GPUs"} <= set(columns):
        return _listed(table, "machineId", "number of GPUs", None)
    if {"host", "DSW", "PSW", "ASW"} <= set(columns):
        return _lingjun(table, gpus_per_node)
    if len(columns) == 2:
        return _per_team(table, gpus_per_node)
    message = f"has columns {', '.join(columns)}: no known list of nodes; use name,gpus[,gpu_type][,team][,levels …]"
    raise InputError([Issue("columns", str(path), message)])


def _assumed(gpus_per_node: int | None) -> tuple[int, tuple[str, ...]]:
    if gpus_per_node is not None:
        return gpus_per_node, ()
    return GPUS_PER_NODE, (f"GPUs per node are not given: {GPUS_PER_NODE} assumed",)


def _per_team(table: Table, gpus_per_node: int | None) -> ClusterFacts:
    team, count = table.columns
    teams = [as_id(t) for t in table.texts(team)]
    table.unique(team, teams)
    counts = table.integers(count)
    table.finish()
    gpus, notes = _assumed(gpus_per_node)
    facts = team_cluster(dict(zip(teams, counts, strict=True)), gpus)
    return ClusterFacts(nodes=facts.nodes, team_nodes=facts.team_nodes, notes=notes)


def _listed(table: Table, name: str, gpus: str, gpu_type: str | None) -> ClusterFacts:
    """A plain list; nodes without GPUs are counted and left out."""
    names = [as_id(n) for n in table.texts(name)]
    table.unique(name, names)
    counts = table.integers(gpus)
    types = [as_id(t) for t in table.texts(gpu_type, empty=GPU_TYPE)] if gpu_type else [GPU_TYPE] * len(names)
    table.finish()
    nodes = tuple(Node(name=n, gpu_type=t, gpus=g) for n, g, t in zip(names, counts, types, strict=True) if g > 0)
    without = len(names) - len(nodes)
    return ClusterFacts(nodes=nodes, notes=(f"{without:,} nodes without GPUs left out",) if without else ())


def _lingjun(table: Table, gpus_per_node: int | None) -> ClusterFacts:
    """Tiers of switches as levels: a domain is a switch (group), named with those above it."""
    levels = {"pod": "DSW", "spine": "PSW", "leaf": "ASW"}
    gpus, notes = _assumed(gpus_per_node)
    return _with_levels(table, "host", levels, [gpus] * len(table), [GPU_TYPE] * len(table), notes=notes)


def _own_list(table: Table) -> ClusterFacts:
    levels = {c: c for c in table.columns if c not in _OWN}
    gpus = table.integers("gpus", minimum=1)
    types = table.texts("gpu_type") if table.has("gpu_type") else [GPU_TYPE] * len(table)
    teams = table.texts("team", empty="") if table.has("team") else None
    return _with_levels(table, "name", levels, gpus, types, teams=teams)


def _with_levels(
    table: Table,
    name: str,
    levels: Mapping[str, str],
    gpus: Sequence[int],
    types: Sequence[str],
    *,
    teams: Sequence[str] | None = None,
    notes: tuple[str, ...] = (),
) -> ClusterFacts:
    """Nodes whose domains are qualified by those above, so that equal names under two parents stay two domains."""
    names = [as_id(n) for n in table.texts(name)]
    table.unique(name, names)
    paths = list(zip(*(table.texts(column) for column in levels.values()), strict=True)) or [()] * len(names)
    table.finish()
    nodes = tuple(
        Node(
            name=n,
            gpu_type=as_id(t),
            gpus=g,
            domains={level: as_id("/".join(path[: i + 1])) for i, level in enumerate(levels)},
        )
        for n, g, t, path in zip(names, gpus, types, paths, strict=True)
    )
    owned: dict[str, list[str]] = {}
    for n, team in zip(names, teams or (), strict=False):
        if team:
            owned.setdefault(as_id(team), []).append(n)
    team_nodes = {team: tuple(members) for team, members in owned.items()}
    return ClusterFacts(nodes=nodes, levels=tuple(levels), team_nodes=team_nodes, notes=notes)
