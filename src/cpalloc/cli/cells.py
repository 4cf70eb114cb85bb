"""How values are written in tables."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rich import box
from rich.table import Table
from rich.text import Text

NONE = "–"
"""Written where there is no value."""

STATUS_STYLES = {"optimal": "green", "feasible": "yellow"}


def table(title: str, columns: Sequence[str], *, wide: str | None = None, most: int = 28) -> Table:
    """Make an empty table.

    Parameters
    ----------
    title : str
        Written above it.
    columns : sequence of str
        Headings; those that begin with ``>`` are aligned to the right.
    wide : str, optional
        Heading of the column that takes the room that is left and wraps; the others do not wrap.
    most : int
        Most characters of a column that does not wrap; the rest is cut off with an ellipsis.
    """
    made = Table(
        title=Text(title, style="bold"),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        show_edge=False,
        header_style="dim",
    )
    for column in columns:
        heading = column.removeprefix(">")
        if heading == wide:
            made.add_column(heading, ratio=1, overflow="fold", min_width=20)
        else:
            right = column.startswith(">")
            made.add_column(
                heading,
                justify="right" if right else "left",
                no_wrap=True,
                overflow="ellipsis",
                max_width=None if right else most,
            )
    return made


def add(to: Table, *cells: str | Text, style: str = "") -> None:
    """Add a row; strings are taken literally, whatever brackets or colons they hold."""
    to.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in cells), style=style)


def number(value: float | None) -> str:
    """Write an amount: whole ones in full, others to one decimal place or three significant digits."""
    if value is None:
        return NONE
    if isinstance(value, int) or value == int(value):
        return f"{int(value):,}"
    return f"{value:,.1f}" if abs(value) >= 10 else f"{value:.3g}"


def count(value: int) -> str:
    """Write a number of GPUs; nothing stands out less than a dash for 0."""
    return f"{value:,}" if value else NONE


def percent(value: float | None, places: int = 1) -> str:
    """Write a share."""
    return NONE if value is None else f"{value:.{places}%}"


def hours(seconds: int | None) -> str:
    """Write GPU-seconds as GPU-hours."""
    return NONE if not seconds else f"{seconds / 3600:,.1f}"


def span(seconds: float) -> str:
    """Write a length of time in its two largest units."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes = round(whole / 60)
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 24 * 60:
        return f"{minutes // 60} h {minutes % 60:02} min"
    return f"{minutes // 1440} d {minutes % 1440 // 60} h"


def instant(value: datetime | None, now: datetime) -> str:
    """Write an instant in UTC: the time of day, with the date where it is another than that of the round."""
    if value is None:
        return NONE
    return f"{value:%H:%M}" if value.date() == now.date() else f"{value:%b %d %H:%M}"


def status(value: str) -> Text:
    """Write a status in its colour."""
    return Text(value, style=STATUS_STYLES.get(value, ""))


def more(hidden: int) -> Text:
    """Say how many rows are left out."""
    return Text(f"… and {hidden} more (use --all)", style="dim")
