"""How figures of a comparison are worded, in the terminal and in the page alike."""

from __future__ import annotations

from cpalloc.sim.measures.compare import Cell, Difference, Row, Verdict
from cpalloc.sim.measures.quantiles import Quantile
from cpalloc.sim.measures.units import NONE, Direction, Unit, write, write_difference, write_range

ARROWS = {Direction.HIGHER: "↑", Direction.LOWER: "↓", Direction.NEITHER: ""}
"""Which way is better."""

ARROWS_MEAN = "↑ more is better, ↓ less is better; ≥: at least, some jobs were still waiting at the end."


def quantile(value: Quantile | None, unit: Unit) -> str:
    """Write a value, with ``≥`` where it is only a lower bound."""
    if value is None:
        return NONE
    return f"{'≥ ' if value.lower_bound else ''}{write(value.value, unit)}"


def middle(cell: Cell | None, unit: Unit) -> str:
    """Write the median over seeds."""
    return NONE if cell is None else quantile(Quantile(cell.median, cell.lower_bound), unit)


def spread(cell: Cell | None, unit: Unit) -> str:
    """Write the lowest and highest value over seeds; empty where they are one."""
    if cell is None or cell.low == cell.high:
        return ""
    return write_range(cell.low, cell.high, unit)


def difference(found: Difference, unit: Unit) -> str:
    """Write the difference to the base, and its spread over paired seeds."""
    middle = write_difference(found.median, unit)
    if found.low == found.high:
        return middle
    return f"{middle} ({write_range(found.low, found.high, unit, signed=True)})"


def share_of_base(found: Difference, unit: Unit) -> str:
    """Write the difference relative to the base, where that says more."""
    return "" if unit is Unit.SHARE or found.relative is None else relative(found.relative)


def relative(part: float) -> str:
    """Write a relative difference: in percent, from twice as much on as a factor; empty where it rounds to nothing.

    Examples
    --------
    >>> relative(-0.89), relative(0.25), relative(1.5), relative(0.001)
    ('−89 %', '+25 %', '×2.5', '')
    """
    if part >= 1:
        return f"×{1 + part:,.3g}" if part < 999 else f"×{1 + part:,.0f}"
    whole = round(100 * part)
    return f"{'+' if whole > 0 else '−'}{abs(whole)} %" if whole else ""


MARKS = {Verdict.BETTER: "✓", Verdict.WORSE: "✗", Verdict.MIXED: "~", Verdict.SAME: "", Verdict.NEITHER: ""}
"""Marks of verdicts in a terminal."""

MARKS_MEAN = "✓ better with every seed, ✗ worse with every seed, ~ it depends on the seed."


def verdict(found: Difference) -> str:
    """Name the verdict where there is one."""
    return "" if found.verdict in (Verdict.NEITHER, Verdict.SAME) else str(found.verdict)


def title(row: Row) -> str:
    """Name a figure, with the way that is better."""
    return f"{row.title}\N{NO-BREAK SPACE}{ARROWS[row.direction]}".rstrip()
