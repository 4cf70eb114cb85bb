"""From the columns a reader took out of a file to a trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from cpalloc.sim.traces.base import ALWAYS_KNOWN, NO_TEAM, ClusterFacts, Trace
from cpalloc.sim.traces.source import Source
from cpalloc.sim.traces.table import midnight
from cpalloc.sim.workload import WorkJob

_NOWHEN = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Columns of equal length, one entry a row of the file.

    Parameters
    ----------
    gangs : sequence of (int, int)
        Replicas and GPUs per replica.
    teams : sequence of str, optional
        Absent: the trace has no teams, and all jobs are in one.
    order : sequence of int, optional
        Breaks ties of submission; absent: the position in the file.
    more : mapping of str to sequence
        Other fields of :class:`WorkJob` that the trace knows.
    keep : sequence of bool, optional
        Rows that are GPU jobs; a reader says in a note why it leaves out others.
    """

    ids: Sequence[str]
    submitted: Sequence[datetime]
    gangs: Sequence[tuple[int, int]]
    work_s: Sequence[int]
    teams: Sequence[str] | None = None
    order: Sequence[int] | None = None
    more: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    keep: Sequence[bool] | None = None


def build_trace(source: Source, title: str, columns: Columns, facts: ClusterFacts, notes: tuple[str, ...]) -> Trace:
    """Make jobs of the kept rows, timed from the midnight before the first of them."""
    rows = [i for i in range(len(columns.ids)) if columns.keep is None or columns.keep[i]]
    epoch = midnight(min((columns.submitted[i] for i in rows), default=_NOWHEN))
    jobs = [
        WorkJob(
            id=columns.ids[i],
            budget=columns.teams[i] if columns.teams is not None else NO_TEAM,
            submitted_s=int((columns.submitted[i] - epoch).total_seconds()),
            replicas=columns.gangs[i][0],
            gpus_per_replica=columns.gangs[i][1],
            work_s=columns.work_s[i],
            order=columns.order[i] if columns.order is not None else i,
            **{name: values[i] for name, values in columns.more.items()},
        )
        for i in rows
    ]
    known = ALWAYS_KNOWN | columns.more.keys()
    if columns.teams is None:
        known -= {"budget"}
        notes += (f"the trace has no teams: all jobs are in `{NO_TEAM}` unless a recipe makes some up",)
    return Trace(
        name=source.path.name.split(".")[0],
        epoch=epoch,
        jobs=tuple(sorted(jobs, key=lambda job: (job.submitted_s, job.order, job.id))),
        facts=facts,
        known=known,
        notes=(f"{title}: {len(jobs):,} GPU jobs", *notes),
    )


def left_out(count: int, what: str) -> tuple[str, ...]:
    """Note on rows that are no GPU jobs; none where there are none."""
    return (f"{count:,} {what} left out",) if count else ()
