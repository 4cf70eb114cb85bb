"""The bars of a timeline: what each run held, in as few rectangles as there can be."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from cpalloc.report.window import Window
from cpalloc.sim.history import RunEnd
from cpalloc.sim.measures import View
from cpalloc.sim.measures.stays import absences


class Standing(StrEnum):
    """What could happen to a run at a time."""

    SAFE = "safe"
    """Protected, or under a policy that never interrupts."""
    PAST = "past protection"
    BORROWED = "borrowed"


@dataclass(frozen=True, slots=True)
class Shown:
    """A run of which some is in the window; ``rows``: stretches [from, to) of the GPU rows it holds there."""

    run: int
    rows: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Bar:
    """A rectangle: rows ``[top, bottom)``, seconds ``[start_s, end_s)``, of one standing."""

    run: int
    top: int
    bottom: int
    start_s: int
    end_s: int
    standing: Standing


@dataclass(frozen=True, slots=True)
class Edge:
    """The end of a run before its time: by the policy, or (``forced``) because its node drained or failed."""

    run: int
    top: int
    bottom: int
    at_s: int
    forced: bool


@dataclass(frozen=True, slots=True)
class Gap:
    """Rows of a node out of service."""

    top: int
    bottom: int
    start_s: int
    end_s: int


def first_rows(v: View, window: Window) -> dict[int, int]:
    """Row of the first GPU of each node of the window; rows go through its nodes in their order."""
    gpus = [v.nodes[n].gpus for n in window.nodes]
    return dict(zip(window.nodes, np.cumsum([0, *gpus[:-1]]).tolist(), strict=True))


def shown_runs(v: View, window: Window) -> list[Shown]:
    """Runs that hold GPUs of the window's nodes within its hours, in order of their start."""
    h = v.history
    row_of = first_rows(v, window)
    run = np.repeat(np.arange(len(h.runs.job)), np.diff(h.runs.first_place))
    here = np.isin(h.places.node, window.nodes)
    here &= (v.runs.start_s[run] < window.end_s) & (v.runs.end_s[run] > window.start_s)
    rows: dict[int, list[int]] = {}
    for place in np.flatnonzero(here).tolist():
        first, mask = row_of[int(h.places.node[place])], int(h.places.devices[place])
        held = (first + device for device in range(64) if mask >> device & 1)
        rows.setdefault(int(run[place]), []).extend(held)
    return [Shown(r, tuple(_stretches(held))) for r, held in sorted(rows.items())]


def bars(v: View, window: Window, shown: Iterable[Shown]) -> list[Bar]:
    """Rectangles of the runs, cut at the window and where protection ends."""
    calm = never_interrupts(v)
    found = []
    for one in shown:
        for start, end, standing in _standings(v, one.run, calm=calm):
            a, b = max(start, window.start_s), min(end, window.end_s)
            if a < b:
                found += [Bar(one.run, top, bottom, a, b, standing) for top, bottom in one.rows]
    return found


def _standings(v: View, run: int, *, calm: bool) -> list[tuple[int, int, Standing]]:
    """Stretches (from, to, standing) of a run."""
    start, end = int(v.runs.start_s[run]), int(v.runs.end_s[run])
    if calm:
        return [(start, end, Standing.SAFE)]
    if not v.runs.allocated[run]:
        return [(start, end, Standing.BORROWED)]
    until = min(end, max(start, int(v.history.runs.protected_until_s[run])))
    return [(start, until, Standing.SAFE), (until, end, Standing.PAST)]


def never_interrupts(v: View) -> bool:
    """Whether the policy neither knows protection nor has preempted anything, as FIFO or partitions."""
    runs = v.history.runs
    return not (np.any(runs.protected_until_s > runs.start_s) or np.any(runs.end == RunEnd.PREEMPTED))


def edges(v: View, window: Window, shown: Iterable[Shown]) -> list[Edge]:
    """Where runs were cut off within the window."""
    forced = {RunEnd.PREEMPTED: False, RunEnd.DRAINED: True, RunEnd.LOST: True}
    found = []
    for one in shown:
        end, at = RunEnd(int(v.history.runs.end[one.run])), int(v.runs.end_s[one.run])
        if end in forced and at <= window.end_s:
            found += [Edge(one.run, top, bottom, at, forced[end]) for top, bottom in one.rows]
    return found


def gaps(v: View, window: Window) -> list[Gap]:
    """When nodes of the window were out of service."""
    row_of = first_rows(v, window)
    found = []
    for absence in absences(v.history, v.nodes):
        start, end = max(absence.start_s, window.start_s), min(absence.end_s, window.end_s)
        if absence.node in row_of and start < end:
            top = row_of[absence.node]
            found.append(Gap(top, top + v.nodes[absence.node].gpus, start, end))
    return found


def _stretches(rows: list[int]) -> Iterable[tuple[int, int]]:
    """Merge rows into stretches of neighbours."""
    ordered = np.array(sorted(rows))
    for part in np.split(ordered, np.flatnonzero(np.diff(ordered) > 1) + 1):
        yield int(part[0]), int(part[-1]) + 1
