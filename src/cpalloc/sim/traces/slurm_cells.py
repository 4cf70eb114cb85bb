"""How Slurm writes cells: resources, clocks, time limits and instants."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from cpalloc.sim.traces.table import parse_time

NEVER = datetime(1970, 1, 1, tzinfo=UTC)
"""Stands for ``Unknown`` and ``None``."""

NO_LIMIT = -1

_CLOCK = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)(?:\.\d+)?")
_NO_INSTANT = frozenset({"unknown", "none", "n/a"})
_NO_LIMIT = frozenset({"unlimited", "partition_limit", "infinite", "none", "n/a"})


def parse_gpus(tres: str) -> tuple[int, str | None]:
    """Number of GPUs in a list of resources, and their type where all of them have the same one.

    Slurm lists typed GPUs beside their total, or alone.

    Examples
    --------
    >>> parse_gpus("billing=64,cpu=64,gres/gpu:h100=16,gres/gpu=16,mem=1T,node=2")
    (16, 'h100')
    >>> parse_gpus("cpu=4,gres/gpu=2,gres/gpumem=0,node=1"), parse_gpus("cpu=4,mem=8G")
    ((2, None), (0, None))
    """
    total: int | None = None
    typed: dict[str, int] = {}
    for entry in tres.split(","):
        name, _, amount = entry.partition("=")
        if name != "gres/gpu" and not name.startswith("gres/gpu:"):
            continue
        if not amount.isdigit():
            raise ValueError(f"`{entry}` must be a number of GPUs, as in gres/gpu:h100=16")
        if name == "gres/gpu":
            total = int(amount)
        else:
            typed[name.removeprefix("gres/gpu:")] = int(amount)
    whole = sum(typed.values()) if total is None else total
    return whole, next(iter(typed)) if len(typed) == 1 and sum(typed.values()) == whole else None


def parse_seconds(cell: str) -> int:
    """Read ``ElapsedRaw`` or ``Elapsed``: seconds, or [days-][hours:]minutes:seconds.

    Examples
    --------
    >>> parse_seconds("90"), parse_seconds("1-02:00:00"), parse_seconds("05:30")
    (90, 93600, 330)
    """
    if cell.isdigit():
        return int(cell)
    match = _CLOCK.fullmatch(cell)
    if match is None:
        raise ValueError(f"`{cell}` must be seconds or [days-]hours:minutes:seconds")
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def parse_limit(cell: str) -> int:
    """Read ``Timelimit`` (a clock) or ``TimelimitRaw`` (minutes) to seconds; -1: no limit."""
    if cell.lower() in _NO_LIMIT:
        return NO_LIMIT
    return int(cell) * 60 if cell.isdigit() else parse_seconds(cell)


def parse_instant(cell: str) -> datetime:
    """Read an instant; ``Unknown`` and ``None`` are :data:`NEVER`."""
    return NEVER if cell.lower() in _NO_INSTANT else parse_time(cell)
