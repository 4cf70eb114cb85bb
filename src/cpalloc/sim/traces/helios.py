"""SenseTime Helios (SC'21): Slurm jobs of virtual clusters, ``cluster_log.csv`` or a per-cluster extract of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cpalloc.sim.traces.base import Trace
from cpalloc.sim.traces.build import Columns, build_trace, left_out
from cpalloc.sim.traces.shapes import gangs_of
from cpalloc.sim.traces.source import Format, Source
from cpalloc.sim.traces.table import parse_time
from cpalloc.topology.naming import as_id

_COLUMNS = ("job_id", "user", "vc", "gpu_num", "submit_time", "duration")

_ZERO = datetime(2020, 4, 1, tzinfo=UTC)
"""Seconds in ``submit_time`` count from here in extracts; the published log has dates."""


def read(source: Source) -> Trace:
    """Read Helios jobs; virtual clusters are teams, and ``vc_order`` breaks ties where there is one.

    A job brings the work it ran in the trace, whatever state it ended in. Jobs without GPUs are counted and left out.

    Raises
    ------
    InputError
        Bad cells, with file and line.
    """
    table = source.table
    table.need(_COLUMNS)
    ids = [as_id(i) for i in table.texts("job_id")]
    table.unique("job_id", ids)
    gpus = table.integers("gpu_num")
    facts = source.cluster()
    gangs, notes = gangs_of(gpus, source.gpus_of_a_node(facts))
    columns = Columns(
        ids=ids,
        submitted=table.values("submit_time", _submit_time, _ZERO),
        gangs=gangs,
        work_s=table.integers("duration"),
        teams=[as_id(t) for t in table.texts("vc")],
        order=table.integers("vc_order") if table.has("vc_order") else None,
        more={"user": table.texts("user", empty="")},
        keep=[g > 0 for g in gpus],
    )
    table.finish()
    notes += (*left_out(gpus.count(0), "jobs without GPUs"), "times taken as UTC")
    return build_trace(source, "Helios", columns, facts, notes)


def _submit_time(cell: str) -> datetime:
    """Seconds since April 2020, or a date and time."""
    return _ZERO + timedelta(seconds=int(cell)) if cell.isdigit() else parse_time(cell)


HELIOS = Format("helios", (frozenset(_COLUMNS),), read)
