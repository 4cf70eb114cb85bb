"""The charts over time: occupancy, owed and delivered, ratios, and room for gangs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import altair as alt
import numpy as np

from cpalloc.report import palette, series
from cpalloc.report.series import DAY_S, OwedSeries
from cpalloc.sim.history import FloatArray
from cpalloc.sim.measures import View

WIDTH = 860
Layered = alt.LayerChart | alt.FacetChart
"""What altair calls layers with properties."""

ALL = "all"
"""Label of what all leaves have together."""

OTHERS = "others"
MOST_RATIO = 2.5
MOST_LEAVES = 16

_STEP: Final = "step-after"


def rows_chart(rows: Iterable[Mapping[str, object]]) -> alt.Chart:
    """Begin a chart of these rows."""
    return alt.Chart(inline(rows))


def inline(rows: Iterable[Mapping[str, object]]) -> alt.InlineData:
    """Give a chart its rows as text: altair copies and checks data row by row at every step otherwise."""
    return alt.InlineData(values=json.dumps(list(rows)), format=alt.JsonDataFormat(type="json"))


def occupancy(views: Mapping[str, View]) -> alt.VConcatChart:
    """Held GPUs over time, allocated and borrowed stacked, below the GPUs in service; a panel per scenario."""
    last = list(views)[-1]
    return alt.vconcat(*(_held_panel(name, v, labelled=name == last) for name, v in views.items()), spacing=10)


def _held_panel(name: str, v: View, *, labelled: bool) -> Layered:
    s = series.held(v)
    rows = _steps(v, s.days, a=s.allocated, b=s.allocated + s.borrowed, s=s.in_service)
    x, gpus = _days([v], labelled=labelled), alt.Scale(domain=[0, v.history.installed_gpus], nice=False)

    def y(field: str) -> alt.Y:
        return alt.Y(f"{field}:Q", title="GPUs", scale=gpus, axis=alt.Axis(tickCount=3, grid=False))

    base = rows_chart(rows)
    return alt.layer(
        base.mark_area(color=palette.IDLE, interpolate=_STEP).encode(x=x, y=y("s")),
        base.mark_area(color=palette.BORROWED, interpolate=_STEP).encode(x=x, y=y("b")),
        base.mark_area(color=palette.ALLOCATED, interpolate=_STEP).encode(x=x, y=y("a")),
        base.mark_line(color=palette.INK, strokeWidth=1, interpolate=_STEP).encode(x=x, y=y("s")),
    ).properties(width=WIDTH, height=70, title=name)


def owed_and_delivered(views: Mapping[str, View], leaves: Sequence[str]) -> alt.FacetChart:
    """A row per leaf (all together first), a column per scenario: owed and delivered, and owed and not delivered.

    The cells of a row have one scale, to half above the most that is owed (named with the leaf, in GPUs); what is
    delivered beyond is cut off.
    """
    columns = {name: series.owed(v, most=80 // len(views) + 20) for name, v in views.items()}
    rows: list[dict[str, object]] = []
    labels = []
    for leaf in (ALL, *leaves):
        picked = {name: _of_leaf(views[name], s, leaf) for name, s in columns.items()}
        most = max(float(s.owed.max(initial=0)) for s in picked.values())
        labels.append(f"{leaf} ({most:.3g})")
        for name, s in picked.items():
            rows += [{"c": name, "r": labels[-1], **row} for row in _owed_rows(s, views[name], 1.5 * most or 1.0)]
    y = {field: alt.Y(f"{field}:Q", scale=alt.Scale(domain=[0, 1], nice=False), axis=None) for field in ("o", "m", "d")}
    x = _days(list(views.values()))
    base = alt.Chart().transform_filter("!isValid(datum.t)")
    notes = alt.Chart().transform_filter("isValid(datum.t)")
    note: dict[str, Any] = {"align": "right", "baseline": "top", "fontSize": 10, "dx": -2, "dy": 1}
    layers = alt.layer(
        base.mark_area(color=palette.OWED, interpolate=_STEP).encode(x=x, y=y["o"]),
        base.mark_area(color=palette.DELIVERED, interpolate=_STEP).encode(x=x, y=y["m"]),
        base.mark_line(color=palette.EXTRA, strokeWidth=0.9, interpolate=_STEP, clip=True).encode(x=x, y=y["d"]),
        notes.mark_text(stroke="#FFFFFF", strokeWidth=3, opacity=0.8, **note).encode(x=x, y=alt.value(0), text="t:N"),
        notes.mark_text(color=palette.INK, **note).encode(x=x, y=alt.value(0), text="t:N"),
        data=inline(rows),
    ).properties(width=(WIDTH - 175) / len(views) - 10, height=38)
    head = alt.Header(title=None, labelAngle=0, labelAlign="left", labelFontSize=11, labelColor=palette.INK)
    top_head = alt.Header(title=None, labelFontSize=12, labelFontWeight="bold", labelAnchor="start")
    return layers.facet(
        row=alt.Row("r:N", sort=labels, header=head),
        column=alt.Column("c:N", sort=list(views), header=top_head),
        spacing={"row": 5, "column": 10},
    )


def _owed_rows(s: OwedSeries, v: View, top: float) -> list[dict[str, object]]:
    """Steps of one cell as parts of its height, and its delivered of owed as a note at the end."""
    steps = _steps(v, s.days, places=4, o=s.owed[0] / top, m=s.met[0] / top, d=s.delivered[0] / top)
    total = float(s.owed.sum())
    note = f"{100 * float(s.met.sum()) / total:.1f} %" if total else ""
    return [*steps, {"x": v.history.end_s / DAY_S, "t": note}]


def _of_leaf(v: View, s: OwedSeries, label: str) -> OwedSeries:
    """The rows of one leaf, or the sums of all, as series of one row."""
    names = v.history.leaf_names
    chosen = [i for i, name in enumerate(names) if label in (ALL, name)]
    return OwedSeries(s.days, *(x[chosen].sum(axis=0, keepdims=True) for x in (s.owed, s.delivered, s.met)))


def ratios(views: Mapping[str, View], hues: palette.Hues) -> alt.VConcatChart:
    """Charged / owed over the window of every leaf over time, a panel per scenario; cut off above 2.5."""
    names = list(views)
    panels = (_ratio_panel(name, v, hues, first=name == names[0], last=name == names[-1]) for name, v in views.items())
    return alt.vconcat(*panels, spacing=10)


def _ratio_panel(name: str, v: View, hues: palette.Hues, *, first: bool, last: bool) -> Layered:
    s = series.sampled(v)
    rows = [
        {"x": float(day), "y": float(value), "l": leaf, "c": leaf if leaf in hues.of else OTHERS}
        for i, leaf in enumerate(v.history.leaf_names)
        for day, value in zip(s.days, s.ratio[:, i] if len(s.days) else (), strict=True)
        if np.isfinite(value)
    ]
    x = _days([v], labelled=last)
    y = alt.Y(
        "y:Q",
        title="charged / owed",
        scale=alt.Scale(domain=[0, MOST_RATIO], nice=False),
        axis=alt.Axis(values=[0, 0.5, 1, 1.5, 2, 2.5], gridOpacity=0.6),
    )
    key = alt.Legend(title=None, orient="top", columns=4, symbolStrokeWidth=3) if first else None
    names = [*hues.of, OTHERS]
    colour = alt.Color("c:N", scale=alt.Scale(domain=names, range=[hues[n] for n in names]), legend=key)
    return alt.layer(
        rows_chart([{"y": 1.0}]).mark_rule(color=palette.INK, strokeDash=[4, 3]).encode(y=y),
        rows_chart(rows).mark_line(strokeWidth=1.4, clip=True).encode(x=x, y=y, color=colour, detail="l:N"),
    ).properties(width=WIDTH, height=110, title=name)


def room_for_gangs(views: Mapping[str, View]) -> alt.VConcatChart:
    """Stranded GPUs, expected time to place and the largest placeable gang over time, a line per scenario."""
    found = {name: series.sampled(v) for name, v in views.items()}
    panels = {
        "stranded GPUs": {name: s.stranded for name, s in found.items()},
        "expected time to place (h)": {name: s.time_to_place_h for name, s in found.items()},
        "largest gang placeable now (GPUs)": {name: s.largest_gang for name, s in found.items()},
    }
    x = _days(list(views.values()))
    charts = []
    for i, (title, lines) in enumerate(panels.items()):
        rows = [
            {"x": float(day), "y": float(value), "s": name}
            for name, values in lines.items()
            for day, value in zip(found[name].days, values, strict=True)
            if np.isfinite(value)
        ]
        y = alt.Y("y:Q", title=None, axis=alt.Axis(tickCount=4), scale=alt.Scale(zero=True))
        line = rows_chart(rows).mark_line(strokeWidth=1.5).encode(x=x, y=y, **line_encoding(list(views), legend=i == 0))
        charts.append(line.properties(width=WIDTH, height=110, title=title))
    return alt.vconcat(*charts, spacing=10)


def line_encoding(names: Sequence[str], *, legend: bool) -> dict[str, alt.Color | alt.StrokeDash]:
    """Colour and dash of each scenario (field ``s``), with or without the legend of both."""
    key = alt.Legend(title=None, orient="top", symbolStrokeWidth=2, symbolSize=400) if legend else None
    colours, dashes = palette.line_colours(names), palette.line_dashes(names)
    domain = list(names)
    return {
        "color": alt.Color("s:N", scale=alt.Scale(domain=domain, range=[colours[n] for n in domain]), legend=key),
        "strokeDash": alt.StrokeDash(
            "s:N", scale=alt.Scale(domain=domain, range=[dashes[n] for n in domain]), legend=key
        ),
    }


def _days(views: Sequence[View], *, labelled: bool = True) -> alt.X:
    """Days since the start of the workload, over all histories."""
    start = min(v.history.start_s for v in views) / DAY_S
    end = max(v.history.end_s for v in views) / DAY_S
    axis = alt.Axis(
        title="days since the start" if labelled else None, labels=labelled, ticks=labelled, grid=False, tickMinStep=1
    )
    return alt.X("x:Q", scale=alt.Scale(domain=[start, end], nice=False, zero=False), axis=axis)


def _steps(v: View, days: FloatArray, *, places: int = 1, **columns: FloatArray) -> list[dict[str, object]]:
    """One row per bin, and the last bin's values once more at its end, where the step closes."""
    if not len(days):
        return []
    x = [*days.tolist(), v.history.end_s / DAY_S]
    values = {name: [*column.tolist(), float(column[-1])] for name, column in columns.items()}
    return [
        {"x": round(day, 4), **{name: round(column[i], places) for name, column in values.items()}}
        for i, day in enumerate(x)
    ]
