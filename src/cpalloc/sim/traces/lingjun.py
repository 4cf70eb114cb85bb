"""Alibaba Lingjun 2023 (Crux, SIGCOMM'24): jobs of LLM times; its ``topo.csv`` has three real layers of switches."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cpalloc.sim.traces.base import Trace
from cpalloc.sim.traces.build import Columns, build_trace
from cpalloc.sim.traces.shapes import gangs_of
from cpalloc.sim.traces.source import Format, Source
from cpalloc.topology.naming import as_id

_COLUMNS = ("job_id", "arrival_s", "gpu_num", "duration_s")

_ZERO = datetime(2023, 8, 1, tzinfo=UTC)
"""Where ``arrival_s`` is put: the trace is of August 2023, its day is not known."""


def read(source: Source) -> Trace:
    """Read Lingjun jobs; there are no teams. Give ``topo.csv`` as nodes.

    Jobs of duration 0 (the trace counts minutes) stay: they end at once.

    Raises
    ------
    InputError
        Bad cells, with file and line.
    """
    table = source.table
    table.need(_COLUMNS)
    ids = [as_id(i) for i in table.texts("job_id")]
    table.unique("job_id", ids)
    facts = source.cluster()
    gangs, notes = gangs_of(table.integers("gpu_num", minimum=1), source.gpus_of_a_node(facts))
    columns = Columns(
        ids=ids,
        submitted=[_ZERO + timedelta(seconds=s) for s in table.floats("arrival_s")],
        gangs=gangs,
        work_s=[round(d) for d in table.floats("duration_s")],
    )
    table.finish()
    at_once = columns.work_s.count(0)
    if at_once:
        notes += (f"{at_once:,} jobs have duration 0 and end at once",)
    notes += (f"the trace does not say when it begins: {_ZERO:%Y-%m-%d} assumed",)
    return build_trace(source, "Lingjun", columns, facts, notes)


LINGJUN = Format("lingjun", (frozenset(_COLUMNS),), read)
