"""How seconds and memory grow with the cluster: ``python -m bench.growth --svg docs/growth.svg``.

``--sizes 64,128,256,512,1000,2000,4000 --seeds 1 --families mixed,gang-heavy --time-limit 20`` are the defaults; every
case runs in a process of its own. ``--json FILE`` keeps the results, and ``--from FILE`` draws such a file again.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

import altair as alt
from rich.console import Console
from rich.table import Table

from bench.render import Result, grouped, seconds
from bench.runner import plan_of, plan_options, progress, run
from bench.table import PIPED_WIDTH
from cpalloc.report import palette
from cpalloc.report.charts import Layered
from cpalloc.report.svg import render

SIZES = (64, 128, 256, 512, 1000, 2000, 4000)
TIERS = ("starvation", "shortfall", "preemption")
"""Tiers whose seconds are drawn; the sum of all is near the total."""

LINES = ("total", "compile", "greedy", *TIERS)
MEMORY = "peak MB"

WIDTH, HEIGHT = 255, 270
LEAST_S = 0.001
"""Seconds below which nothing is drawn: a tier that is known without a search takes none, which has no logarithm."""

Curve = dict[int, float]
Curves = dict[str, dict[str, Curve]]
"""By family, then by line: the median over the seeds at each number of nodes."""


def curves(results: Sequence[Result]) -> Curves:
    """What is drawn of some results: seconds of the total, of phases and of tiers, and peak memory in MB."""
    out: Curves = {}
    for group, some in grouped(results).items():
        family, nodes = group.rpartition("-")[0], some[0]["nodes"]
        for name in (*LINES, MEMORY):
            curve = out.setdefault(family, {}).setdefault(name, {})
            curve[nodes] = median(_value(result, name) for result in some)
    return out


def _value(result: Result, name: str) -> float:
    if name == MEMORY:
        return float(result["peak_mb"])
    if name in TIERS:
        return float(next(tier["seconds"] for tier in result["tiers"] if tier["name"] == name))
    return float(result[f"{name}_s"])


def table(found: Curves) -> Table:
    """A row per family and size."""
    out = Table("family", "nodes", *(f"{name} s" for name in LINES), MEMORY, title="medians over the seeds")
    for family, lines in found.items():
        for nodes in lines["total"]:
            cells = [seconds(lines[name][nodes]) for name in LINES]
            out.add_row(family, f"{nodes:,}", *cells, f"{lines[MEMORY][nodes]:.0f}")
        out.add_section()
    return out


def draw(found: Curves, limit_s: float) -> str:
    """Draw the curves as an SVG that brings its own ground, so that it reads on light pages and on dark ones."""
    sizes = sorted({nodes for lines in found.values() for nodes in lines["total"]})
    panels = [_seconds_panel(family, lines, sizes, limit_s) for family, lines in found.items()]
    memory = _memory_panel(found, sizes)
    chart = alt.hconcat(alt.hconcat(*panels, spacing=20), memory, spacing=24).resolve_scale(
        color="independent", strokeDash="independent"
    )
    last = "; ".join(
        f"{family} at {max(lines['total']):,} nodes: {lines['total'][max(lines['total'])]:.1f} s, "
        f"{lines[MEMORY][max(lines[MEMORY])]:.0f} MB"
        for family, lines in found.items()
    )
    return render(chart, "growth", f"Seconds and memory over the number of nodes, both axes logarithmic. {last}.")


def _seconds_panel(family: str, lines: Mapping[str, Curve], sizes: Sequence[int], limit_s: float) -> Layered:
    rows = [
        {"nodes": nodes, "seconds": value if value >= LEAST_S else None, "line": name}
        for name in LINES
        for nodes, value in lines[name].items()
    ]
    marks = [0.001, 0.01, 0.1, 1, 10, 100]
    y = alt.Y(
        "seconds:Q",
        title="seconds",
        scale=alt.Scale(type="log", domain=[LEAST_S, max(100, 2 * limit_s)], nice=False),
        axis=alt.Axis(values=marks, format="~g", tickCount=len(marks)),
    )
    drawn = _lines(rows, LINES, _nodes(sizes), y)
    limit = alt.Chart(alt.InlineData(values=[{"seconds": limit_s, "text": f"limit {limit_s:g} s"}]))
    return alt.layer(
        limit.mark_rule(color=palette.MUTED, strokeDash=[2, 3]).encode(y=y),
        limit.mark_text(align="left", dx=4, dy=-6, color=palette.MUTED, fontSize=10).encode(
            x=alt.value(0), y=y, text="text:N"
        ),
        drawn,
    ).properties(width=WIDTH, height=HEIGHT, title=f"{family}: seconds")


def _memory_panel(found: Curves, sizes: Sequence[int]) -> Layered:
    rows = [
        {"nodes": nodes, "mb": value, "line": family}
        for family, lines in found.items()
        for nodes, value in lines[MEMORY].items()
    ]
    marks = [100, 200, 500, 1000, 2000, 5000]
    most = max(float(str(row["mb"])) for row in rows)
    top = next((mark for mark in marks if mark > most), 2 * most)
    y = alt.Y(
        "mb:Q",
        title="MB",
        scale=alt.Scale(type="log", domain=[100, top], nice=False, clamp=True),
        axis=alt.Axis(values=marks, format="~g"),
    )
    drawn = _lines(rows, tuple(found), _nodes(sizes), y)
    return drawn.properties(width=WIDTH, height=HEIGHT, title="peak memory of the process")


def _nodes(sizes: Sequence[int]) -> alt.X:
    scale = alt.Scale(type="log", domain=[sizes[0], max(sizes[-1], sizes[0] + 1)], nice=False)
    return alt.X("nodes:Q", title="nodes", scale=scale, axis=alt.Axis(values=list(sizes), format="~s", grid=False))


def _lines(rows: Sequence[Mapping[str, object]], names: Sequence[str], x: alt.X, y: alt.Y) -> Layered:
    """Lines with a dot at every measurement; colours and dashes tell them apart."""
    domain = list(names)
    colours, dashes = palette.line_colours(domain), palette.line_dashes(domain)
    key = alt.Legend(title=None, orient="bottom", columns=3, symbolStrokeWidth=2, symbolSize=400, symbolType="stroke")
    colour = alt.Color("line:N", scale=alt.Scale(domain=domain, range=[colours[n] for n in domain]), legend=key)
    dash = alt.StrokeDash("line:N", scale=alt.Scale(domain=domain, range=[dashes[n] for n in domain]), legend=key)
    base = alt.Chart(alt.InlineData(values=[dict(row) for row in rows]))
    return alt.layer(
        base.mark_line(strokeWidth=1.8, invalid="break-paths-filter-domains").encode(
            x=x, y=y, color=colour, strokeDash=dash
        ),
        base.mark_circle(size=28, opacity=1, invalid="filter").encode(x=x, y=y, color=colour),
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Measure or read, print, and write what was asked for."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.growth", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    plan_options(parser, choose=False)
    parser.set_defaults(sizes=SIZES, seeds=(1,))
    parser.add_argument("--svg", type=Path, metavar="FILE", help="write the curves")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every result")
    parser.add_argument("--from", type=Path, metavar="FILE", dest="kept", help="draw results kept with --json")
    options = parser.parse_args(argv)
    if options.kept:
        results: list[Result] = json.loads(options.kept.read_text(encoding="utf-8"))
    else:
        plan = plan_of(options, measure="tiers")
        with progress([plan]) as tick:
            results = run(plan, tick)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    found = curves(results)
    console = Console()
    Console(width=None if console.is_terminal else PIPED_WIDTH).print(table(found))
    if options.svg:
        options.svg.write_text(draw(found, results[0]["limit_s"]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
