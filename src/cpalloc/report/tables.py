"""Summaries and comparisons as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich import box
from rich.console import JustifyMethod
from rich.table import Table
from rich.text import Text

from cpalloc.report import text
from cpalloc.sim.measures import MEASURES, Comparison, Summary
from cpalloc.sim.measures.compare import Cell, Row, Verdict
from cpalloc.sim.measures.registry import HEADLINE
from cpalloc.sim.measures.units import NONE, Unit, write

_STYLES = {Verdict.BETTER: "green", Verdict.WORSE: "red", Verdict.MIXED: "yellow"}


def summary_table(summary: Summary) -> Table:
    """Every measure of one simulation that has a value, by group."""
    made = _table(
        f"{summary.policy} on {summary.workload} ({summary.provenance}), seed {summary.seed}", ["measure", ">value"]
    )
    group = ""
    for measure in MEASURES:
        value = measure.read(summary)
        if value is not None:
            group = _begin_group(made, measure.group, group)
            made.add_row(Text(f"  {measure.title}"), Text(text.quantile(value, measure.unit)))
    return made


def leaves_table(summary: Summary) -> Table:
    """Owed and delivered of each leaf budget of one simulation."""
    headings = ["budget", ">owed", ">delivered", ">borrowed", ">hour-capped", ">total-capped", ">charged / owed"]
    made = _table(f"Delivered of owed ({summary.provenance}), GPU-hours", headings)
    for leaf in summary.delivery.leaves:
        hours = (leaf.owed_gpu_hours, leaf.delivered_gpu_hours, leaf.borrowed_gpu_hours)
        shares = (write(leaf.hour_capped, Unit.SHARE), write(leaf.total_capped, Unit.SHARE))
        ratio = NONE if leaf.last_ratio is None else f"{leaf.last_ratio:.3f}"
        made.add_row(*map(Text, (leaf.leaf, *(f"{h:,.0f}" for h in hours), *shares, ratio)))
    return made


def comparison_table(comparison: Comparison, *, headline: bool = False) -> Table:
    """Every measure in every scenario: median over seeds and spread, and the paired difference to the base.

    ``headline``: only the few measures that say most.
    """
    rows = [row for row in comparison.rows if not headline or row.name in HEADLINE]
    return _rows_table(comparison, rows, "measure")


def comparison_leaves_table(comparison: Comparison) -> Table:
    """Delivered of owed of every leaf budget in every scenario, likewise."""
    return _rows_table(comparison, comparison.leaves, "budget")


def _rows_table(comparison: Comparison, rows: Iterable[Row], what: str) -> Table:
    seeds = max(len(s) for s in comparison.seeds)
    over = f", median of {seeds} seeds (lowest … highest)" if seeds > 1 else ""
    title = f"{comparison.workload} ({comparison.provenance}){over}; differences to {comparison.base}"
    made = _table(title, [what, *comparison.scenarios])
    made.caption = f"{text.ARROWS_MEAN}\n{text.MARKS_MEAN}"
    group = ""
    for row in rows:
        if any(row.cells):
            group = _begin_group(made, row.group, group)
            made.add_row(Text(f"  {text.title(row)}"), *(_cell(cell, row.unit) for cell in row.cells))
    return made


def _cell(cell: Cell | None, unit: Unit) -> Text:
    found = Text(text.middle(cell, unit))
    spread = text.spread(cell, unit)
    if spread:
        found.append(f" ({spread})", style="dim")
    if cell is not None and cell.difference is not None:
        d = cell.difference
        words = (text.difference(d, unit), text.share_of_base(d, unit), text.MARKS[d.verdict])
        found.append("\n" + " ".join(word for word in words if word), style=_STYLES.get(d.verdict, "dim"))
    return found


def _begin_group(table: Table, group: str, last: str) -> str:
    if group != last:
        if last:
            table.add_section()
        table.add_row(Text(group, style="bold"))
    return group


def _table(title: str, columns: list[str]) -> Table:
    made = Table(
        title=Text(title, style="bold"),
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
        header_style="dim",
    )
    for i, column in enumerate(columns):
        justify: JustifyMethod = "right" if column.startswith(">") else "left"
        made.add_column(Text(column.removeprefix(">")), justify=justify, no_wrap=i == 0)
    return made
