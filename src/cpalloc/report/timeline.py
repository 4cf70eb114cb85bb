"""The GPU timeline: one row a GPU, one bar a run, one hue a budget, one panel a scenario on a shared clock."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import numpy as np

from cpalloc.report import palette, svg
from cpalloc.report.bars import Bar, Edge, Gap, Shown, Standing, bars, edges, gaps, shown_runs
from cpalloc.report.charts import WIDTH, Layered, rows_chart
from cpalloc.report.window import Window
from cpalloc.sim.measures import View
from cpalloc.sim.measures.steps import HOUR_S

_ROW = 3.2
_LETTER = 5.4
"""Pixels: height of a GPU's row, width of a small letter."""


@dataclass(frozen=True, slots=True)
class Panel:
    """What one scenario's panel shows."""

    scenario: str
    view: View
    shown: tuple[Shown, ...]
    bars: tuple[Bar, ...]
    edges: tuple[Edge, ...]
    gaps: tuple[Gap, ...]


def panel(scenario: str, view: View, window: Window) -> Panel:
    """Collect what is to be seen of one history in a window."""
    shown = shown_runs(view, window)
    return Panel(
        scenario,
        view,
        tuple(shown),
        tuple(bars(view, window, shown)),
        tuple(edges(view, window, shown)),
        tuple(gaps(view, window)),
    )


def budget_hues(panels: Sequence[Panel]) -> palette.Hues:
    """Hues for the budgets on show, those with the most GPU-hours in the panels first."""
    held: dict[str, int] = {}
    for p in panels:
        for bar in p.bars:
            name = _budget(p.view, bar.run)
            held[name] = held.get(name, 0) + (bar.bottom - bar.top) * (bar.end_s - bar.start_s)
    return palette.hues(sorted(held, key=lambda name: (-held[name], name)))


def timeline(panels: Sequence[Panel], window: Window, hues: palette.Hues) -> alt.VConcatChart:
    """Draw the key, and one panel per scenario below each other."""
    return alt.vconcat(_key(hues), *(_panel(p, window, hues) for p in panels), spacing=14)


def _panel(p: Panel, window: Window, hues: palette.Hues) -> Layered:
    nodes = [p.view.nodes[n] for n in window.nodes]
    rows = sum(node.gpus for node in nodes)
    x = alt.X("x:Q", scale=_hours(window), axis=_clock(window))
    y = alt.Y("y:Q", scale=alt.Scale(domain=[rows, 0], nice=False), axis=_node_axis(nodes_of(p.view, window)))
    base: dict[str, object] = {"x": x, "x2": "x2:Q", "y": y, "y2": "y2:Q"}
    fill = alt.Fill("c:N", scale=None)
    rectangles = [_rectangle(bar, hues[_budget(p.view, bar.run)]) for bar in p.bars]
    off = [{**_box(gap.top, gap.bottom, gap.start_s, gap.end_s), "c": palette.OFF} for gap in p.gaps]
    cuts = [
        {"x": e.at_s / HOUR_S, "y": e.top, "y2": e.bottom, "c": palette.OFF if e.forced else palette.ALARM}
        for e in p.edges
    ]
    labels = _labels(p, window)
    grid = [{"y": float(edge)} for edge in np.cumsum([node.gpus for node in nodes])[:-1]]
    layers: list[alt.Chart] = [
        rows_chart([{"y": 0, "y2": rows, **_hours_box(window)}]).mark_rect(fill=palette.FREE).encode(**base),
        rows_chart(off).mark_rect(opacity=0.55).encode(**base, fill=fill),
        rows_chart(rectangles).mark_rect(stroke="#FFFFFF", strokeWidth=0.6).encode(**base, fill=fill),
        rows_chart(grid).mark_rule(stroke="#FFFFFF", strokeWidth=1, opacity=0.7).encode(y=y),
        rows_chart(cuts).mark_rule(strokeWidth=5, stroke="#FFFFFF").encode(x=x, y=y, y2="y2:Q"),
        rows_chart(cuts).mark_rule(strokeWidth=2.6).encode(x=x, y=y, y2="y2:Q", stroke=alt.Stroke("c:N", scale=None)),
        _words(labels, stroke="#FFFFFF", strokeWidth=3, strokeJoin="round", opacity=0.85).encode(x=x, y=y, text="t:N"),
        _words(labels, color=palette.INK).encode(x=x, y=y, text="t:N"),
    ]
    title = f"{p.scenario} · {len(p.shown):,} runs, {_interruptions(p)}"
    return alt.layer(*layers).properties(width=WIDTH, height=round(_ROW * rows), title=title)


def nodes_of(view: View, window: Window) -> Mapping[float, str]:
    """Name of each node of the window by the middle of its rows."""
    gpus = [view.nodes[n].gpus for n in window.nodes]
    ends = np.cumsum(gpus)
    return {float(end - size / 2): view.nodes[n].name for end, size, n in zip(ends, gpus, window.nodes, strict=True)}


def _interruptions(p: Panel) -> str:
    """Count the runs that were cut off here."""
    cut = {(e.at_s, e.run): e.forced for e in p.edges}
    forced = sum(cut.values())
    return f"{len(cut) - forced:,} preempted" + (f", {forced:,} drained or failed" if forced else "")


def _labels(p: Panel, window: Window) -> list[dict[str, object]]:
    """Budgets' names (the last part of a path), in the largest bar of each run, where there is room for them."""
    scale = WIDTH / (window.end_s - window.start_s)
    best: dict[int, Bar] = {}
    for bar in p.bars:
        if bar.run not in best or _area(bar) > _area(best[bar.run]):
            best[bar.run] = bar
    found: list[dict[str, object]] = []
    for bar in best.values():
        name = _budget(p.view, bar.run).rpartition("/")[2]
        wide = (bar.end_s - bar.start_s) * scale
        if wide > _LETTER * len(name) + 10 and (bar.bottom - bar.top) * _ROW > 10:
            found.append({"x": (bar.start_s + 5 / scale) / HOUR_S, "y": (bar.top + bar.bottom) / 2, "t": name})
    return found


def _area(bar: Bar) -> int:
    return (bar.bottom - bar.top) * (bar.end_s - bar.start_s)


def _rectangle(bar: Bar, hue: str) -> dict[str, object]:
    fill = {Standing.SAFE: hue, Standing.PAST: svg.past_protection(hue), Standing.BORROWED: svg.lent(hue)}
    return {**_box(bar.top, bar.bottom, bar.start_s, bar.end_s), "c": fill[bar.standing]}


def _box(top: int, bottom: int, start_s: int, end_s: int) -> dict[str, object]:
    return {"x": start_s / HOUR_S, "x2": end_s / HOUR_S, "y": top, "y2": bottom}


def _hours_box(window: Window) -> dict[str, object]:
    return {"x": window.start_s / HOUR_S, "x2": window.end_s / HOUR_S}


def _hours(window: Window) -> alt.Scale:
    return alt.Scale(domain=[window.start_s / HOUR_S, window.end_s / HOUR_S], nice=False, zero=False)


def _clock(window: Window) -> alt.Axis:
    """Hours of the day; the days since the workload's start at midnight."""
    length = (window.end_s - window.start_s) / HOUR_S
    step = next((s for s in (1, 3, 6, 12) if length / s <= 12), 24)
    first = -(-window.start_s // HOUR_S // step) * step
    ticks = list(range(first, window.end_s // HOUR_S + 1, step))
    day = "'day ' + datum.value / 24"
    label = f"datum.value % 24 == 0 ? {day} : format(datum.value % 24, '02d') + ':00'"
    return alt.Axis(values=ticks, labelExpr=label, title=None, grid=False)


def _node_axis(names: Mapping[float, str]) -> alt.Axis:
    lookup = json.dumps({f"{middle:g}": name for middle, name in names.items()})
    return alt.Axis(
        values=list(names), labelExpr=f"({lookup})[datum.value]", title=None, grid=False, ticks=False, domain=False
    )


def _key(hues: palette.Hues) -> Layered:
    """What hues, hatching and edges mean, as a row of boxes with words."""
    grey = "#666666"
    meaning = [
        (grey, "protected, or never interrupted"),
        (svg.past_protection(grey), "past protection"),
        (svg.lent(grey), "borrowed"),
        (palette.ALARM, "preempted here"),
        (palette.OFF, "drained, failed; out of service"),
        (palette.FREE, "free"),
    ]
    budgets = [(colour, name) for name, colour in hues.of.items()]
    if hues.others:
        budgets.append((palette.OTHERS, f"{hues.others} other budgets"))
    boxes: list[dict[str, object]] = []
    at, line = 0.0, 0
    for fill, words in [*meaning, ("", ""), *budgets]:
        wide = 34 + 5.6 * len(words)
        if not words or at + wide > WIDTH:
            at, line = 0.0, line + 1
        if words:
            thin = fill in (palette.ALARM,)
            boxes.append({"x": at, "x2": at + (3 if thin else 16), "t": words, "tx": at + 20, "y": line, "c": fill})
            at += wide
    lines = line + 1
    x = alt.X("x:Q", scale=alt.Scale(domain=[0, WIDTH], nice=False), axis=None)
    y = alt.Y("y:Q", scale=alt.Scale(domain=[lines - 0.5, -0.5], nice=False), axis=None)
    rects = [{**b, "y": float(str(b["y"])) - 0.33, "y2": float(str(b["y"])) + 0.33} for b in boxes]
    words_x = alt.X("tx:Q", scale=alt.Scale(domain=[0, WIDTH], nice=False), axis=None)
    return alt.layer(
        rows_chart(rects)
        .mark_rect(stroke="#BBBBBB", strokeWidth=0.5)
        .encode(x=x, x2="x2:Q", y=y, y2="y2:Q", fill=alt.Fill("c:N", scale=None)),
        rows_chart(boxes)
        .mark_text(align="left", baseline="middle", fontSize=11, color=palette.INK)
        .encode(x=words_x, y=y, text="t:N"),
    ).properties(width=WIDTH, height=18 * lines)


def _budget(view: View, run: int) -> str:
    return view.history.workload.jobs[int(view.runs.job[run])].budget


def _words(rows: Sequence[Mapping[str, object]], **style: Any) -> alt.Chart:
    words: alt.Chart = rows_chart(rows).mark_text(fontSize=9.5, align="left", baseline="middle", **style)
    return words
