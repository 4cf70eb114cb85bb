"""The figures of a study: each chart with what one sees in it and with its numbers as tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from cpalloc.report import charts, palette, series, svg, text, timeline, waits_chart
from cpalloc.report.html import Figure, Grid
from cpalloc.report.timeline import Panel
from cpalloc.report.window import MOST_RUNS, Window, typical_window
from cpalloc.sim.history import FloatArray, RunEnd
from cpalloc.sim.measures import Comparison, View
from cpalloc.sim.measures.delivery import delivery
from cpalloc.sim.measures.units import NONE, Unit, write

Views = Mapping[str, View]
Columns = Callable[[View], tuple[FloatArray, dict[str, FloatArray]]]
"""Reads days and columns of a table over time from a history."""

_TABLE_BINS = 32
"""Rows of a table over time, at most; charts are finer."""

_ENDS = {
    RunEnd.OPEN: "still running",
    RunEnd.FINISHED: "finished",
    RunEnd.PREEMPTED: "preempted",
    RunEnd.DRAINED: "drained",
    RunEnd.LOST: "node failed",
    RunEnd.TIMED_OUT: "timed out",
    RunEnd.PROMOTED: "promoted",
}


def figures(name: str, comparison: Comparison, views: Views) -> tuple[Figure, ...]:
    """Make all figures of a study.

    Parameters
    ----------
    name : str
        Unique in the page; names of the figures begin with it.
    comparison
        What the waits are taken from: medians over seeds.
    views
        One history of each scenario, of the same seed; the other figures show these.
    """
    found = [_waits(f"{name}-waits", comparison)]
    if views:
        window = typical_window(list(views.values()))
        panels = [timeline.panel(scenario, v, window) for scenario, v in views.items()]
        hues = timeline.budget_hues(panels)
        found += [
            _owed(f"{name}-owed", views),
            _held(f"{name}-held", views),
            _timeline(f"{name}-timeline", panels, window, hues),
            _ratios(f"{name}-ratios", views, hues),
            _room(f"{name}-room", views),
        ]
    return tuple(found)


def _waits(name: str, comparison: Comparison) -> Figure:
    rows = []
    for field, words in waits_chart.GROUPS.items():
        quantiles = [comparison.row(f"{field}_wait_{q}") for q in ("p50", "p90", "p99")]
        for i, scenario in enumerate(comparison.scenarios):
            cells = [text.middle(row.cells[i], row.unit) for row in quantiles]
            if any(cell != NONE for cell in cells):
                rows.append((words, scenario, *cells))
    return Figure(
        name,
        "Waits by class",
        "How long jobs of each class waited from submission to their first start: half of them at most until the "
        "circle, nine of ten until the square, 99 of 100 until the triangle (medians over seeds; the clock is "
        "logarithmic). "
        "Hollow marks are lower bounds: so many jobs had not started when the simulation ended that the true wait is "
        "this long or longer. Largest gangs are those of at least half the largest one's GPUs.",
        svg.render(waits_chart.waits(comparison), name, "Waits by class and scenario"),
        (Grid("Waits as a table", ("class", "scenario", "median", "p90", "p99"), rows, frozenset({1})),),
    )


def _owed(name: str, views: Views) -> Figure:
    found = {scenario: delivery(v) for scenario, v in views.items()}
    first = next(iter(found.values()))
    by_owed = sorted(first.leaves, key=lambda leaf: (-leaf.owed_gpu_hours, leaf.leaf))
    shown = [leaf.leaf for leaf in by_owed[: charts.MOST_LEAVES]]
    more = len(by_owed) - len(shown)
    rows = [
        (
            leaf.leaf,
            scenario,
            *(f"{x:,.0f}" for x in (leaf.owed_gpu_hours, leaf.delivered_gpu_hours, leaf.borrowed_gpu_hours)),
            write(leaf.hour_capped, Unit.SHARE),
            write(leaf.total_capped, Unit.SHARE),
        )
        for number in range(len(first.leaves))
        for scenario, d in found.items()
        for leaf in (d.leaves[number],)
    ]
    headings = ("budget", "scenario", "owed GPU-h", "delivered GPU-h", "borrowed GPU-h", "hour-capped", "total-capped")
    return Figure(
        name,
        "Owed and delivered",
        "Blue is what a budget was owed and got, red what it was owed and did not get; the line is all it got as "
        "allocated work, also beyond what it was owed (cut off at half above). Owed is the smaller of its share of the "
        "GPUs in service and of what its jobs asked for; borrowed time does not count as delivered. The number in "
        "brackets is the most it was owed in GPUs, the percentage delivered of owed, hour by hour. Where there is red "
        "in one row, a team waited for GPUs that were its own."
        + (f" The {more} budgets that are owed least are in the table only." if more else ""),
        svg.render(charts.owed_and_delivered(views, shown), name, "Owed and delivered GPUs over time by budget"),
        (
            Grid("Budgets as a table", headings, rows, frozenset({1})),
            _over_time("All budgets over time as a table (mean GPUs)", views, _owed_columns),
        ),
    )


def _held(name: str, views: Views) -> Figure:
    return Figure(
        name,
        "Occupancy",
        "GPUs held by allocated work (dark), by borrowed work on top of it (light), and left free (yellow), below the "
        "line of GPUs in service. Yellow is capacity that nobody used although jobs were usually waiting for it.",
        svg.render(charts.occupancy(views), name, "GPUs in service, allocated and borrowed over time"),
        (_over_time("Occupancy as a table (mean GPUs)", views, _held_columns),),
    )


def _timeline(name: str, panels: Sequence[Panel], window: Window, hues: palette.Hues) -> Figure:
    nodes = [panels[0].view.nodes[n] for n in window.nodes]
    hours = (window.end_s - window.start_s) / 3600
    return Figure(
        name,
        "GPU timeline",
        f"{hours:g} hours from hour {window.start_s / 3600:g} of the simulation on {len(nodes)} neighbouring nodes "
        f"({sum(n.gpus for n in nodes)} GPUs), chosen because their numbers of runs and preemptions are the closest to "
        "the average under all scenarios together. One row is a GPU, one bar a run of a job, its hue the budget. Solid "
        "bars cannot be interrupted; white stripes: protection is over, another budget's claim may end the run; "
        "stripes on a tint: borrowed, may be taken back at any time. A red edge is a preemption. Bars that are cut off "
        "soon after the stripes begin are work that ran only as long as it was protected.",
        svg.render(timeline.timeline(panels, window, hues), name, "Runs on each GPU over time, by scenario"),
        tuple(_runs_grid(panel) for panel in panels),
    )


def _ratios(name: str, views: Views, hues: palette.Hues) -> Figure:
    leaves = next(iter(views.values())).history.leaf_names

    def columns(v: View) -> tuple[FloatArray, dict[str, FloatArray]]:
        s = series.sampled(v, _TABLE_BINS)
        return s.days, {leaf: s.ratio[:, i] for i, leaf in enumerate(leaves)}

    return Figure(
        name,
        "Charged over owed",
        "What each budget was charged over the sliding window, relative to its share of it. Lines that run together at "
        "1 mean that everyone who asks gets the same part of what is theirs; a budget stays below 1 where it asks for "
        "less than its share, or is kept from it. Budgets with a colour are those seen most in the timeline.",
        svg.render(charts.ratios(views, hues), name, "Charged over owed of each budget over time"),
        tuple(_over_time(f"{scenario} as a table", {"": v}, columns) for scenario, v in views.items()),
    )


def _room(name: str, views: Views) -> Figure:
    return Figure(
        name,
        "Room for gangs",
        "Stranded: free GPUs that the workload's mix of gang shapes cannot use where they are. Time to place: how long "
        "a shape of the mix would have to wait until protections have run out, if nothing new started. Largest gang: "
        "whole free nodes at this moment, without preemption. On a full cluster the second line matters most: it is "
        "what protection windows of small jobs cost the large ones.",
        svg.render(charts.room_for_gangs(views), name, "Stranded GPUs, time to place, largest gang over time"),
        (_over_time("Room for gangs as a table", views, _room_columns),),
    )


def _owed_columns(v: View) -> tuple[FloatArray, dict[str, FloatArray]]:
    s = series.owed(v, _TABLE_BINS)
    return s.days, {"owed": s.owed.sum(axis=0), "got of it": s.met.sum(axis=0), "delivered": s.delivered.sum(axis=0)}


def _held_columns(v: View) -> tuple[FloatArray, dict[str, FloatArray]]:
    s = series.held(v, _TABLE_BINS)
    return s.days, {"in service": s.in_service, "allocated": s.allocated, "borrowed": s.borrowed}


def _room_columns(v: View) -> tuple[FloatArray, dict[str, FloatArray]]:
    s = series.sampled(v, _TABLE_BINS)
    return s.days, {"stranded": s.stranded, "time to place (h)": s.time_to_place_h, "largest gang": s.largest_gang}


def _over_time(title: str, views: Views, columns: Columns) -> Grid:
    """A row per bin that any scenario has, the columns of each scenario side by side."""
    found = {scenario: columns(v) for scenario, v in views.items()}
    headings = tuple(f"{scenario} {name}".strip() for scenario, (_, cols) in found.items() for name in cols)
    rows = []
    for day in np.unique(np.concatenate([days for days, _ in found.values()])).tolist():
        row = [f"{day:.2f}"]
        for days, cols in found.values():
            at = np.flatnonzero(days == day)
            row += [_plain(float(values[at[0]])) if len(at) else NONE for values in cols.values()]
        rows.append(row)
    return Grid(title, ("day", *headings), rows)


def _plain(value: float) -> str:
    if not np.isfinite(value):
        return NONE
    return f"{value:,.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _runs_grid(panel: Panel) -> Grid:
    v, h = panel.view, panel.view.history
    rows = []
    for one in panel.shown[:MOST_RUNS]:
        r = one.run
        job = h.workload.jobs[int(v.runs.job[r])]
        allocated = bool(v.runs.allocated[r])
        until = int(h.runs.protected_until_s[r])
        rows.append(
            (
                job.id,
                job.budget,
                str(job.size),
                str(sum(bottom - top for top, bottom in one.rows)),
                _hour(int(v.runs.start_s[r])),
                _hour(int(v.runs.end_s[r])),
                "allocated" if allocated else "borrowed",
                _hour(until) if allocated and until > v.runs.start_s[r] else NONE,
                _ENDS[RunEnd(int(h.runs.end[r]))],
            )
        )
    headings = ("job", "budget", "GPUs", "of them here", "start (h)", "end (h)", "mode", "protected until (h)", "end")
    cut = f", the first {MOST_RUNS}" if len(panel.shown) > MOST_RUNS else ""
    title = f"{panel.scenario} as a table ({len(panel.shown)} runs{cut})"
    return Grid(title, headings, rows, frozenset({1, 6, 8}))


def _hour(at_s: int) -> str:
    return f"{at_s / 3600:.2f}"
