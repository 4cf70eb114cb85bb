"""Microsoft Philly (ATC'19), in the two tables that are passed around: with virtual clusters, or with all jobs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cpalloc.sim.traces.base import Trace
from cpalloc.sim.traces.build import Columns, build_trace
from cpalloc.sim.traces.shapes import gangs_of
from cpalloc.sim.traces.source import Format, Source
from cpalloc.topology.naming import as_id

_WITH_VC = ("timestamp", "duration", "num_gpus", "cluster")
_ALL = ("job_id", "arrival_s", "gpu_num", "span_s", "run_s", "vc")

_ZERO = datetime(2017, 8, 14, 23, 27, tzinfo=UTC)
"""``arrival_s`` counts from here."""

_NO_VC = "no-vc"


def read(source: Source) -> Trace:
    """Read Philly jobs; virtual clusters are teams.

    Either ``timestamp, duration, num_gpus, gpu_time, cluster`` (no ids: the line number is the id), or
    ``job_id, arrival_s, gpu_num, span_s, run_s, vc``, where jobs without ``run_s`` bring ``span_s`` (which counts waits
    between attempts) and jobs without ``vc`` are in the team ``no-vc``.

    Raises
    ------
    InputError
        Bad cells, with file and line.
    """
    return _with_vc(source) if source.table.has("timestamp") else _all(source)


def _with_vc(source: Source) -> Trace:
    table = source.table
    table.need(_WITH_VC)
    facts = source.cluster()
    gangs, notes = gangs_of(table.integers("num_gpus", minimum=1), source.gpus_of_a_node(facts))
    columns = Columns(
        ids=[f"line{table.line(row)}" for row in range(len(table))],
        submitted=table.instants("timestamp"),
        gangs=gangs,
        work_s=[round(d) for d in table.floats("duration")],
        teams=[as_id(t) for t in table.texts("cluster")],
    )
    table.finish()
    return build_trace(source, "Philly", columns, facts, (*notes, "times taken as UTC"))


def _all(source: Source) -> Trace:
    table = source.table
    table.need(_ALL)
    facts = source.cluster()
    gangs, notes = gangs_of(table.integers("gpu_num", minimum=1), source.gpus_of_a_node(facts))
    ids = [as_id(i) for i in table.texts("job_id")]
    table.unique("job_id", ids)
    run_s, span_s = table.integers("run_s", empty=-1), table.integers("span_s")
    teams = table.texts("vc", empty=_NO_VC)
    columns = Columns(
        ids=ids,
        submitted=[_ZERO + timedelta(seconds=s) for s in table.integers("arrival_s")],
        gangs=gangs,
        work_s=[span if run < 0 else run for run, span in zip(run_s, span_s, strict=True)],
        teams=[as_id(t) for t in teams],
    )
    table.finish()
    notes += (
        f"{run_s.count(-1):,} jobs without run_s: span_s instead, which counts waits between attempts",
        f"{teams.count(_NO_VC):,} jobs without a virtual cluster are in the team `{_NO_VC}`",
        "times taken as UTC",
    )
    return build_trace(source, "Philly", columns, facts, notes)


PHILLY = Format("philly", (frozenset(_WITH_VC), frozenset(_ALL)), read)
