"""A text table whose cells are read strictly: every bad one is an issue with file and line, none is passed over."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable, Sequence
from copy import copy
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO, TypeVar

import polars as pl
from polars.exceptions import ComputeError, PolarsError

from cpalloc.errors import InputError, Issue

T = TypeVar("T")

MOST_ISSUES = 50
"""Bad cells reported one by one; the rest is counted."""

_LINE = "__line"


class Table:
    """Rows of a CSV or Parquet file, all cells text, with the lines they stand on.

    Readers take columns one after the other; bad cells are collected and come all at once from :meth:`finish`. Until
    then they read as a harmless default.

    Attributes
    ----------
    path : Path
    columns : tuple of str
        The header, without blanks around names.
    """

    def __init__(self, path: Path, frame: pl.DataFrame) -> None:
        self.path = path
        self.columns = tuple(frame.columns)
        numbered = frame.with_row_index(_LINE, offset=2)
        # A blank line is a row without a single value.
        self._frame = numbered.filter(pl.any_horizontal(pl.col(c).is_not_null() for c in frame.columns))
        self._issues: list[Issue] = []

    @classmethod
    def open(cls, path: Path) -> Table:
        """Read ``.csv``, ``.csv.gz`` and text with ``|`` between columns, or ``.parquet``.

        Raises
        ------
        InputError
            ``file`` when it cannot be read, ``columns`` when rows have other numbers of cells than the header.
        """
        try:
            if path.suffix == ".parquet":
                return cls(path, pl.read_parquet(path).cast(pl.String))
            header = _header(path)
            bar = "|" in header
            frame = pl.read_csv(
                path, infer_schema=False, separator="|" if bar else ",", quote_char=None if bar else '"'
            )
        except ComputeError as error:
            raise InputError(
                _ragged(path) or [Issue("file", str(path), f"cannot be read: {_first_line(error)}")]
            ) from None
        except (OSError, EOFError, UnicodeDecodeError, PolarsError) as error:
            raise InputError([Issue("file", str(path), f"cannot be read: {_first_line(error)}")]) from None
        return cls(path, frame.rename({name: name.strip() for name in frame.columns}))

    def __len__(self) -> int:
        return self._frame.height

    def where(self, keep: Sequence[bool]) -> Table:
        """Some of the rows, as a table of its own; lines stay what they are."""
        part = copy(self)
        part._frame, part._issues = self._frame.filter(pl.Series(keep, dtype=pl.Boolean)), []
        return part

    def has(self, column: str) -> bool:
        """Whether there is such a column."""
        return column in self.columns

    def need(self, columns: Sequence[str]) -> None:
        """Refuse a file that lacks one of the columns.

        Raises
        ------
        InputError
            ``columns``.
        """
        missing = [c for c in columns if c not in self.columns]
        if missing:
            message = f"lacks the column(s) {', '.join(missing)}; it has {', '.join(self.columns)}"
            raise InputError([Issue("columns", str(self.path), message)])

    def texts(self, column: str, *, empty: str | None = None) -> list[str]:
        """Take a column of text; an empty cell is ``empty``, or an issue where that is ``None``."""
        return self.values(column, str, "", empty=empty)

    def integers(self, column: str, *, minimum: int | None = 0, empty: int | None = None) -> list[int]:
        """Take a column of whole numbers (``12`` or ``12.0``); an empty cell is ``empty``, or an issue."""
        return [round(x) if x == x else 0 for x in self._numbers(column, minimum, empty, whole=True)]

    def floats(self, column: str, *, minimum: float | None = 0, empty: float | None = None) -> list[float]:
        """Take a column of numbers; an empty cell is ``empty``, or an issue."""
        return self._numbers(column, minimum, empty, whole=False)

    def instants(self, column: str, *, empty: datetime | None = None) -> list[datetime]:
        """Take a column of instants: seconds since 1970, or a date and time, UTC where no offset is given."""
        return self.values(column, parse_time, datetime(1970, 1, 1, tzinfo=UTC), empty=empty)

    def values(self, column: str, parse: Callable[[str], T], default: T, *, empty: T | None = None) -> list[T]:
        """Take a column cell by cell; ``parse`` raises ``ValueError`` with what to do about a bad one."""
        out: list[T] = []
        for row, cell in enumerate(self._frame[column].to_list()):
            if cell is None or not cell.strip():
                if empty is None:
                    self.complain(row, column, "is empty")
                out.append(default if empty is None else empty)
                continue
            try:
                out.append(parse(cell.strip()))
            except ValueError as error:
                self.complain(row, column, str(error))
                out.append(default)
        return out

    def complain(self, row: int, column: str, message: str, code: str = "value") -> None:
        """Report the cell of ``column`` in row ``row`` (of those kept, from 0)."""
        self._issues.append(Issue(code, f"{self.path}:{self.line(row)}", f"{column} {message}"))

    def line(self, row: int) -> int:
        """Line of the file a row stands on, the header being line 1."""
        return int(self._frame[_LINE][row])

    def unique(self, column: str, values: Sequence[str]) -> None:
        """Report values that were there before."""
        first: dict[str, int] = {}
        for row, value in enumerate(values):
            before = first.setdefault(value, row)
            if before != row:
                self.complain(row, column, f"`{value}` is also on line {self.line(before)}", "duplicate_id")

    def finish(self) -> None:
        """Raise what was found.

        Raises
        ------
        InputError
            Up to ``MOST_ISSUES`` issues, and how many more there are.
        """
        if not self._issues:
            return
        shown = self._issues[:MOST_ISSUES]
        more = len(self._issues) - len(shown)
        if more:
            shown.append(Issue("value", str(self.path), f"{more:,} more cells are wrong"))
        raise InputError(shown)

    def _numbers(self, column: str, minimum: float | None, empty: float | None, *, whole: bool) -> list[float]:
        """Whole columns at once; only bad cells are looked at one by one."""
        cells = self._frame[column].str.strip_chars()
        missing = cells.is_null() | (cells == "")
        numbers = cells.cast(pl.Float64, strict=False)
        good = numbers.is_finite()
        if whole:
            # beyond 2^53 a float is no longer every whole number
            good &= (numbers == numbers.round()) & (numbers.abs() <= 2**53)
        if minimum is not None:
            good &= numbers >= minimum
        bad = (~good.fill_null(False)) & (~missing if empty is not None else True)
        what = "a whole number" if whole else "a number"
        least = f" of at least {minimum:g}" if minimum is not None else ""
        for row in bad.arg_true().to_list():
            is_empty = missing[row]
            self.complain(row, column, "is empty" if is_empty else f"`{cells[row]}` must be {what}{least}")
        default = minimum or 0
        filled = pl.DataFrame({"n": numbers, "bad": bad, "missing": missing}).select(
            pl.when("bad").then(pl.lit(float(default))).when("missing").then(pl.lit(empty)).otherwise("n").alias("n")
        )
        return [float(x) for x in filled["n"].to_list()]


def parse_time(text: str) -> datetime:
    """Read seconds since 1970, or a date and time; UTC where it has no offset.

    Raises
    ------
    ValueError
        When it is neither.
    """
    if text.isdigit() and len(text) > 8:
        return datetime.fromtimestamp(int(text), tz=UTC)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        message = f"`{text}` must be a date and time, as in 2026-11-29T12:00:00, or seconds since 1970"
        raise ValueError(message) from None
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)


def midnight(at: datetime) -> datetime:
    """The midnight (UTC) on or before an instant."""
    return at.replace(hour=0, minute=0, second=0, microsecond=0)


def _text_file(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8", newline="")
    return path.open(encoding="utf-8", newline="")


def _header(path: Path) -> str:
    with _text_file(path) as file:
        return file.readline()


def _ragged(path: Path) -> list[Issue]:
    """Lines whose number of cells is not the header's."""
    with _text_file(path) as file:
        bar = "|" in _header(path)
        rows = csv.reader(file, delimiter="|" if bar else ",", quoting=csv.QUOTE_NONE if bar else csv.QUOTE_MINIMAL)
        width = len(next(rows, []))
        bad = [(rows.line_num, len(row)) for row in rows if row and len(row) != width]
    return [
        Issue("columns", f"{path}:{line}", f"has {cells} cells, the header has {width}")
        for line, cells in bad[:MOST_ISSUES]
    ]


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0] or type(error).__name__
