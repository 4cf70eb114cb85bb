"""All trace formats, and the one way to read a trace."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from cpalloc.errors import InputError, Issue
from cpalloc.sim.traces.acme import ACME
from cpalloc.sim.traces.base import Trace
from cpalloc.sim.traces.helios import HELIOS
from cpalloc.sim.traces.lingjun import LINGJUN
from cpalloc.sim.traces.openb import OPENB
from cpalloc.sim.traces.own import OWN
from cpalloc.sim.traces.philly import PHILLY
from cpalloc.sim.traces.slurm import SLURM
from cpalloc.sim.traces.source import Format, Source
from cpalloc.sim.traces.table import Table

FORMATS: tuple[Format, ...] = (OWN, SLURM, OPENB, HELIOS, PHILLY, ACME, LINGJUN)
"""Formats in the order in which a header is compared with them; those with telling columns first."""


def read_trace(
    path: Path,
    format: str | None = None,
    *,
    nodes: Path | int | None = None,
    gpus_per_node: int | None = None,
) -> Trace:
    """Read a trace.

    Parameters
    ----------
    path : Path
        CSV (``.gz`` too), text with ``|`` between columns, or Parquet.
    format : str, optional
        Name of a format; by default the header tells, and the trace's notes say which it was taken for.
    nodes : Path or int, optional
        A file that lists the cluster's nodes, or their number; needed where neither the trace nor its paper says.
    gpus_per_node : int, optional
        GPUs of a node where no file says; default 8.

    Raises
    ------
    InputError
        An unknown format or header, a missing cluster, or bad cells with file and line.
    """
    table = Table.open(Path(path))
    chosen = _named(format) if format is not None else _guessed(table)
    source = Source(table=table, nodes=nodes, gpus_per_node=gpus_per_node)
    trace = chosen.read(source)
    if not trace.jobs:
        message = f"holds no job that ran on GPUs ({'; '.join(trace.notes)})"
        raise InputError([Issue("empty", str(path), message)])
    if format is not None:
        return trace
    return replace(trace, notes=(f"format {chosen.name}, guessed from the header", *trace.notes))


def _named(name: str) -> Format:
    for known in FORMATS:
        if known.name == name:
            return known
    message = f"`{name}` is no trace format; use one of {', '.join(f.name for f in FORMATS)}"
    raise InputError([Issue("format", "format", message)])


def _guessed(table: Table) -> Format:
    for known in FORMATS:
        if any(header <= set(table.columns) for header in known.headers):
            return known
    message = f"columns {', '.join(table.columns)} are those of no known trace; name the format if it is one of "
    raise InputError([Issue("format", str(table.path), message + ", ".join(f.name for f in FORMATS))])
