"""Shanghai AI Lab Acme (NSDI'24): the published ``trace_kalos.csv`` and ``trace_seren.csv``, or an extract of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cpalloc.sim.traces.base import Trace
from cpalloc.sim.traces.build import Columns, build_trace, left_out
from cpalloc.sim.traces.source import Format, Source
from cpalloc.topology.naming import as_id

_PUBLISHED = ("job_id", "user", "node_num", "gpu_num", "type", "submit_time", "duration")
_EXTRACT = ("job_id", "arrival_s", "gpu_num", "node_num", "duration_s", "is_pretrain")

_KALOS_NODES = 302
"""Nodes of Kalos in the paper: 2,416 A100."""

_ZERO = datetime(2023, 5, 1, tzinfo=UTC)
"""Where ``arrival_s`` of an extract is put; its real start is not known."""


def read(source: Source) -> Trace:
    """Read Acme jobs; there are no teams.

    A gang is ``gpu_num`` GPUs on ``node_num`` nodes, rounded up to equal replicas.

    Raises
    ------
    InputError
        Bad cells, with file and line.
    """
    table = source.table
    published = table.has("submit_time")
    table.need(_PUBLISHED if published else _EXTRACT)
    ids = [as_id(i) for i in table.texts("job_id")]
    table.unique("job_id", ids)
    gpus = [round(g) for g in table.floats("gpu_num")]
    nodes = [max(1, round(n)) for n in table.floats("node_num")]
    work_s = [round(d) for d in table.floats("duration" if published else "duration_s")]
    if published:
        submitted = table.instants("submit_time")
    else:
        submitted = [_ZERO + timedelta(seconds=s) for s in table.floats("arrival_s")]
    columns = Columns(
        ids=ids,
        submitted=submitted,
        gangs=[(n, -(-g // n)) for g, n in zip(gpus, nodes, strict=True)],
        work_s=work_s,
        more={"user": table.texts("user", empty="")} if published else {},
        keep=[g > 0 for g in gpus],
    )
    table.finish()
    notes = left_out(gpus.count(0), "jobs without GPUs")
    uneven = sum(g % n > 0 for g, n in zip(gpus, nodes, strict=True))
    if uneven:
        notes += (f"{uneven:,} jobs do not divide evenly over their nodes: rounded up to equal replicas",)
    if not published:
        notes += (f"the extract does not say when it begins: {_ZERO:%Y-%m-%d} assumed",)
    facts = source.cluster(_KALOS_NODES, why="those of Kalos in the paper; give others for Seren")
    return build_trace(source, "Acme", columns, facts, notes)


ACME = Format("acme", (frozenset(_PUBLISHED), frozenset(_EXTRACT)), read)
