"""The chart of waits: median, p90 and p99 of each class on one logarithmic clock."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from cpalloc.report import palette
from cpalloc.report.charts import WIDTH, Layered, rows_chart
from cpalloc.sim.measures import Comparison
from cpalloc.sim.measures.steps import HOUR_S

GROUPS = {
    "debug": "debug",
    "interactive": "interactive",
    "single_node": "single-node",
    "multi_node": "multi-node",
    "large": "large",
    "largest": "largest gangs",
}
"""Fields of the waits, and what the classes are called."""

_DAY_S = 24 * HOUR_S
_TICKS = {
    1: "≤ 1 s",
    10: "10 s",
    60: "1 min",
    600: "10 min",
    HOUR_S: "1 h",
    8 * HOUR_S: "8 h",
    _DAY_S: "1 d",
    4 * _DAY_S: "4 d",
    30 * _DAY_S: "30 d",
}
_QUANTILES = {"p50": "median", "p90": "p90", "p99": "p99"}
_SHAPES = {"median": "circle", "p90": "square", "p99": "triangle-up"}
_LINE = 15
"""Pixels per scenario and class."""


def waits(comparison: Comparison) -> alt.VConcatChart:
    """A block per class, a line per scenario: medians over seeds of the three quantiles; hollow: at least so long."""
    blocks = []
    for field, title in GROUPS.items():
        points = _points(comparison, field)
        if points:
            blocks.append((title, points))
    top = max((float(str(p["x"])) for _, points in blocks for p in points), default=10.0)
    last = len(blocks) - 1
    charts = [
        _block(title, points, comparison.scenarios, top, first=i == 0, last=i == last)
        for i, (title, points) in enumerate(blocks)
    ]
    return alt.vconcat(*charts, spacing=8)


def _points(comparison: Comparison, field: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for q, words in _QUANTILES.items():
        row = comparison.row(f"{field}_wait_{q}")
        for name, cell in zip(comparison.scenarios, row.cells, strict=True):
            if cell is not None:
                kind = "at least" if cell.lower_bound else "known"
                found.append({"s": name, "x": max(1.0, cell.median), "q": words, "k": kind})
    return found


def _block(
    title: str, points: Sequence[dict[str, object]], scenarios: Sequence[str], top: float, *, first: bool, last: bool
) -> Layered:
    names, colours = list(scenarios), palette.line_colours(scenarios)
    x = alt.X("x:Q", scale=alt.Scale(type="log", domain=[0.8, top * 1.25], nice=False), axis=_clock(top, labelled=last))
    axis = alt.Axis(
        titleAngle=0, titleAlign="left", titleX=-190, titleColor=palette.INK, domain=False, ticks=False, grid=True
    )
    y = alt.Y("s:N", sort=names, title=title, scale=alt.Scale(domain=names), axis=axis)
    colour = alt.Color("s:N", scale=alt.Scale(domain=names, range=[colours[n] for n in names]), legend=None)
    key = alt.Legend(title=None, orient="top", symbolFillColor=palette.MUTED, symbolStrokeColor=palette.MUTED)
    shape = alt.Shape(
        "q:N", scale=alt.Scale(domain=list(_SHAPES), range=list(_SHAPES.values())), legend=key if first else None
    )
    base = rows_chart(points)
    known = alt.datum.k == "known"
    return alt.layer(
        base.mark_line(strokeWidth=2, opacity=0.55).encode(x=x, y=y, color=colour, detail="s:N"),
        base.transform_filter(known)
        .mark_point(filled=True, size=64, opacity=1)
        .encode(x=x, y=y, color=colour, shape=shape),
        base.transform_filter(~known)
        .mark_point(fill="#FFFFFF", size=56, strokeWidth=1.8, opacity=1)
        .encode(x=x, y=y, color=colour, shape=shape),
    ).properties(width=WIDTH - 200, height=_LINE * len(names))


def _clock(top: float, *, labelled: bool) -> alt.Axis:
    """Ticks at lengths of time that people name."""
    ticks = [t for t in _TICKS if t <= top * 1.25]
    words = " : ".join(f"datum.value == {t} ? '{_TICKS[t]}'" for t in ticks) + " : ''"
    title = "wait until the first start" if labelled else None
    return alt.Axis(values=ticks, labelExpr=words, labels=labelled, ticks=labelled, title=title)
