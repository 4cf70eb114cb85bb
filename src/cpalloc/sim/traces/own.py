"""cpalloc's own jobs: every field of :class:`WorkJob` as a column, in Parquet or CSV, read back exactly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import MISSING, fields
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

import polars as pl

from cpalloc.errors import InputError, Issue
from cpalloc.schema.types import Funding, JobKind, Priority
from cpalloc.sim.traces.base import ALWAYS_KNOWN, JOB_FIELDS, Trace
from cpalloc.sim.traces.source import Format, Source
from cpalloc.sim.traces.table import Table
from cpalloc.sim.workload import WorkJob
from cpalloc.topology.naming import is_id

_NEEDED = ("id", "budget", "submitted_s", "replicas", "gpus_per_replica", "work_s")
_COUNTS = ("submitted_s", "work_s", "order", "min_runtime_s", "restart_cost_s", "checkpoint_interval_s")
_FLAGS = ("resumable", "wants_opt_out", "inflates")
_EPOCH = datetime(2026, 1, 5, tzinfo=UTC)
"""Instant 0 of a file that has none: a Monday."""

_TYPES = ";"
"""Between GPU types in one cell; no id has it."""


def job_frame(jobs: Sequence[WorkJob]) -> pl.DataFrame:
    """Jobs as columns: integers, booleans and text; ``gpu_types`` joined by ``;``; null is None."""
    columns: dict[str, list[Any]] = {name: [getattr(job, name) for job in jobs] for name in JOB_FIELDS}
    columns["gpu_types"] = [None if t is None else _TYPES.join(t) or _TYPES for t in columns["gpu_types"]]
    schema = {f.name: _dtype(f.name) for f in fields(WorkJob)}
    return pl.DataFrame(
        {n: [str(v) if isinstance(v, StrEnum) else v for v in values] for n, values in columns.items()}, schema=schema
    )


def write_jobs(jobs: Sequence[WorkJob], path: Path) -> None:
    """Write jobs to ``.parquet`` or ``.csv``."""
    frame = job_frame(jobs)
    if path.suffix == ".parquet":
        frame.write_parquet(path)
    else:
        frame.write_csv(path)


def read(source: Source) -> Trace:
    """Read jobs written by :func:`write_jobs`, or by hand: columns that are absent have the defaults of WorkJob.

    Raises
    ------
    InputError
        Unknown columns, or bad cells with file and line.
    """
    jobs, known = read_jobs(source.table)
    return Trace(
        name=source.path.name.split(".")[0],
        epoch=_EPOCH,
        jobs=jobs,
        facts=source.cluster(),
        known=known,
        notes=(f"cpalloc: {len(jobs):,} jobs; second 0 is put at {_EPOCH:%Y-%m-%d}",),
    )


def read_jobs(table: Table) -> tuple[tuple[WorkJob, ...], frozenset[str]]:
    """Jobs of a table in the order of a workload, and the fields it has."""
    table.need(_NEEDED)
    unknown = [name for name in table.columns if name not in JOB_FIELDS]
    if unknown:
        message = f"has columns that no job has: {', '.join(unknown)}; remove them, or use {', '.join(JOB_FIELDS)}"
        raise InputError([Issue("unknown_field", str(table.path), message)])
    columns = {name: _read_column(table, name) for name in table.columns}
    table.unique("id", columns["id"])
    table.finish()
    if "order" not in columns:
        columns["order"] = list(range(len(table)))
    rows = zip(*columns.values(), strict=True)
    jobs = [WorkJob(**dict(zip(columns, row, strict=True))) for row in rows]
    jobs.sort(key=lambda job: (job.submitted_s, job.order, job.id))
    return tuple(jobs), ALWAYS_KNOWN | columns.keys()


def _read_column(table: Table, name: str) -> list[Any]:
    if name in ("replicas", "gpus_per_replica"):
        return table.integers(name, minimum=1)
    if name == "timeout_s":
        return table.integers(name, minimum=-1)
    if name in _COUNTS:
        return table.integers(name)
    if name in _FLAGS:
        return table.values(name, _flag, False)
    if name in ("id", "budget"):
        return table.values(name, _id, "-")
    if name == "user":
        return table.texts(name, empty="")
    return _nullable(table, name, _PARSERS[name])


def _nullable(table: Table, name: str, parse: Callable[[str], Any]) -> list[Any]:
    """A column in which an empty cell is None, or the default where None is not allowed."""
    default = next(f.default for f in fields(WorkJob) if f.name == name)
    marker = object()
    values = table.values(name, parse, marker, empty=marker)
    return [(None if default is MISSING else default) if v is marker else v for v in values]


def _flag(cell: str) -> bool:
    if cell.lower() not in ("true", "false"):
        raise ValueError(f"`{cell}` must be true or false")
    return cell.lower() == "true"


def _id(cell: str) -> str:
    if not is_id(cell):
        raise ValueError(f"`{cell}` must be 1 to 253 characters out of A-Z a-z 0-9 . _ : / @ + -")
    return cell


def _one_of(words: type[StrEnum]) -> Callable[[str], StrEnum]:
    def parse(cell: str) -> StrEnum:
        try:
            return words(cell)
        except ValueError:
            raise ValueError(f"`{cell}` must be one of {', '.join(words)}") from None

    return parse


def _gpu_types(cell: str) -> tuple[str, ...]:
    return tuple(_id(part) for part in cell.split(_TYPES) if part)


_PARSERS: dict[str, Callable[[str], Any]] = {
    "priority": _one_of(Priority),
    "kind": _one_of(JobKind),
    "funding": _one_of(Funding),
    "gpu_types": _gpu_types,
    "required_level": _id,
    "preferred_level": _id,
}


def _dtype(name: str) -> type[pl.DataType]:
    if name in (*_COUNTS, "replicas", "gpus_per_replica", "timeout_s"):
        return pl.Int64
    return pl.Boolean if name in _FLAGS else pl.String


OWN = Format("cpalloc", (frozenset(_NEEDED),), read)
