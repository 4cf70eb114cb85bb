"""Workloads from files and to files: traces, labs, saved workloads, and what happens to nodes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
from polars.exceptions import PolarsError
from pydantic import TypeAdapter, ValidationError

from cpalloc.errors import InputError, Issue
from cpalloc.schema import Budget, Cluster
from cpalloc.schema.types import NodeState, format_instant, parse_instant
from cpalloc.sim.lab import SUFFIXES, load_lab, make_lab
from cpalloc.sim.recipe import Recipe, apply
from cpalloc.sim.traces import read_trace
from cpalloc.sim.traces.own import job_frame, read_jobs
from cpalloc.sim.traces.table import Table, parse_time
from cpalloc.sim.workload import BudgetChange, NodeEvent, Provenance, Workload

_KEY = "cpalloc.workload"
_VERSION = 1
_BUDGETS = TypeAdapter(tuple[Budget, ...])


def read_workload(
    path: Path,
    *,
    seed: int = 0,
    format: str | None = None,
    nodes: Path | int | None = None,
    gpus_per_node: int | None = None,
    recipe: Recipe | None = None,
    events: Path | None = None,
) -> Workload:
    """Read a workload from whatever it is kept in.

    Parameters
    ----------
    path : Path
        ``.toml`` or ``.json``: a lab, drawn with ``seed``. ``.parquet`` written by :func:`write_workload`: read back as
        it was.
        Anything else: a trace (see :func:`cpalloc.sim.traces.read_trace` for ``format``, ``nodes``, ``gpus_per_node``),
        filled in by ``recipe`` (the default one where none is given) with ``seed``.
    events : Path, optional
        Drains, failures and repairs, instead of those of the workload (see :func:`read_events`).

    Raises
    ------
    InputError
        Everything that is wrong with the file.
    """
    path = Path(path)
    if path.suffix in SUFFIXES:
        workload = make_lab(load_lab(path), seed)
    elif path.suffix == ".parquet" and _is_saved(path):
        workload = read_saved(path)
    else:
        trace = read_trace(path, format, nodes=nodes, gpus_per_node=gpus_per_node)
        workload = apply(recipe or Recipe(), trace, seed)
    if events is None:
        return workload
    note = f"drains and failures from {Path(events).name}"
    return replace(workload, node_events=read_events(events, workload), notes=(*workload.notes, note))


def write_workload(workload: Workload, path: Path) -> None:
    """Save a workload in one Parquet file: jobs as columns, everything else as JSON in the file's metadata."""
    rest = {
        "version": _VERSION,
        "name": workload.name,
        "provenance": str(workload.provenance),
        "epoch": format_instant(workload.epoch),
        "cluster": workload.cluster.model_dump(mode="json", exclude_unset=True),
        "budgets": _BUDGETS.dump_python(workload.budgets, mode="json"),
        "node_events": [[e.at_s, e.node, str(e.state)] for e in workload.node_events],
        "budget_changes": [[c.at_s, _BUDGETS.dump_python(c.budgets, mode="json")] for c in workload.budget_changes],
        "team_nodes": {team: list(nodes) for team, nodes in workload.team_nodes.items()},
        "notes": list(workload.notes),
    }
    job_frame(workload.jobs).write_parquet(path, metadata={_KEY: json.dumps(rest)})


def read_saved(path: Path) -> Workload:
    """Read what :func:`write_workload` wrote; the result is equal to what was written.

    Raises
    ------
    InputError
        When the file is no such workload, or of a later version.
    """
    rest = _metadata(path)
    if rest.get("version") != _VERSION:
        message = f"is a workload of version {rest.get('version')}; this cpalloc reads version {_VERSION}"
        raise InputError([Issue("version", str(path), message)])
    jobs, _ = read_jobs(Table.open(path))
    try:
        return Workload(
            name=rest["name"],
            provenance=Provenance(rest["provenance"]),
            epoch=parse_instant(rest["epoch"]),
            cluster=Cluster.model_validate(rest["cluster"]),
            budgets=_BUDGETS.validate_python(rest["budgets"]),
            jobs=jobs,
            node_events=tuple(NodeEvent(at, node, NodeState(state)) for at, node, state in rest["node_events"]),
            budget_changes=tuple(
                BudgetChange(at, _BUDGETS.validate_python(budgets)) for at, budgets in rest["budget_changes"]
            ),
            team_nodes={team: tuple(nodes) for team, nodes in rest["team_nodes"].items()},
            notes=tuple(rest["notes"]),
        )
    except (KeyError, TypeError, ValueError, ValidationError) as error:
        raise InputError([Issue("file", str(path), f"is no workload that cpalloc wrote: {error}")]) from None


def read_events(path: Path, workload: Workload) -> tuple[NodeEvent, ...]:
    """Read drains, failures and repairs from a CSV file with the columns ``at``, ``node`` and ``state``.

    ``at`` is in seconds since the workload's epoch, or a date and time; ``state`` is ready, draining or down.

    Raises
    ------
    InputError
        Bad cells with file and line: unknown nodes and states, instants before the epoch.
    """
    table = Table.open(Path(path))
    table.need(("at", "node", "state"))
    known = {node.name for node in workload.cluster.nodes}

    def at_s(cell: str) -> int:
        if cell.isdigit() and len(cell) <= 9:
            return int(cell)
        seconds = round((parse_time(cell) - workload.epoch).total_seconds())
        if seconds < 0:
            raise ValueError(f"`{cell}` is before the workload begins ({format_instant(workload.epoch)})")
        return seconds

    def node(cell: str) -> str:
        if cell not in known:
            raise ValueError(f"`{cell}` is not a node of the workload's cluster")
        return cell

    times = table.values("at", at_s, 0)
    nodes = table.values("node", node, "")
    states = table.values("state", _state, NodeState.READY)
    table.finish()
    events = [NodeEvent(*row) for row in zip(times, nodes, states, strict=True)]
    return tuple(sorted(events, key=lambda event: event.at_s))


def _state(cell: str) -> NodeState:
    try:
        return NodeState(cell)
    except ValueError:
        raise ValueError(f"`{cell}` must be one of {', '.join(NodeState)}") from None


def _is_saved(path: Path) -> bool:
    return bool(_metadata(path))


def _metadata(path: Path) -> dict[str, Any]:
    """What a saved workload says besides its jobs; empty where the file is something else."""
    try:
        text = pl.read_parquet_metadata(path).get(_KEY)
        found = json.loads(text) if text else {}
    except (OSError, ValueError, PolarsError) as error:
        raise InputError([Issue("file", str(path), f"cannot be read: {error}")]) from None
    return found if isinstance(found, dict) else {}
