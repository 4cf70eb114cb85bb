from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.sim.traces.files import issues_of, write

from cpalloc.sim.traces.table import MOST_ISSUES, Table, parse_time


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
def test_cells_are_read_by_column(tmp_path: Path, name: str) -> None:
    table = Table.open(write(tmp_path / name, " a ,b,c", "1,x,2.5", "2.0,,1e3"))
    assert table.columns == ("a", "b", "c")
    assert table.integers("a") == [1, 2]
    assert table.texts("b", empty="-") == ["x", "-"]
    assert table.floats("c") == [2.5, 1_000.0]
    table.finish()


def test_every_bad_cell_is_reported_with_its_line(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "a,b", "1,x", "-1,", "1.5,z", "many,z", ",z")
    table = Table.open(path)
    assert table.integers("a", minimum=0) == [1, 0, 0, 0, 0]
    table.texts("b")
    found = issues_of(table.finish)
    assert [i.path for i in found] == [f"{path}:{line}" for line in (3, 4, 5, 6, 3)]
    assert "`-1` must be a whole number of at least 0" in found[0].message
    assert "a is empty" in found[3].message
    assert "b is empty" in found[4].message


def test_blank_lines_are_no_rows_and_do_not_shift_line_numbers(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "a,b", "", "1,x", "", "no,y", "")
    table = Table.open(path)
    assert len(table) == 2
    table.integers("a")
    assert [i.path for i in issues_of(table.finish)] == [f"{path}:5"]


def test_many_bad_cells_are_counted(tmp_path: Path) -> None:
    table = Table.open(write(tmp_path / "t.csv", "a,b", *["x,1"] * (MOST_ISSUES + 7)))
    table.integers("a")
    found = issues_of(table.finish)
    assert len(found) == MOST_ISSUES + 1
    assert "7 more cells are wrong" in found[-1].message


def test_an_empty_cell_may_have_a_value(tmp_path: Path) -> None:
    table = Table.open(write(tmp_path / "t.csv", "a,b", ",1", "3,1", "x,1"))
    assert table.integers("a", empty=-1) == [-1, 3, 0]
    assert len(issues_of(table.finish)) == 1


def test_rows_of_other_lengths_are_refused_with_their_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "a,b", "1,2", "1,2,3", "4,5", "6,7,8,9")
    found = issues_of(Table.open, path)
    assert [(i.path, i.message) for i in found] == [
        (f"{path}:3", "has 3 cells, the header has 2"),
        (f"{path}:5", "has 4 cells, the header has 2"),
    ]


def test_bars_separate_and_quotes_are_text(tmp_path: Path) -> None:
    table = Table.open(write(tmp_path / "t.txt", "a|b|", '1|say "hi|', "2|x,y|"))
    assert table.texts("b") == ['say "hi', "x,y"]


def test_files_that_cannot_be_read_say_so(tmp_path: Path) -> None:
    empty = write(tmp_path / "empty.csv")
    empty.write_text("")
    for path in (tmp_path / "nowhere.csv", tmp_path, empty):
        assert issues_of(Table.open, path)[0].code == "file"
    (tmp_path / "t.parquet").write_bytes(b"no parquet")
    assert issues_of(Table.open, tmp_path / "t.parquet")[0].code == "file"
    (tmp_path / "latin.csv").write_bytes(b"a,b\n\xff,2\n")
    assert issues_of(Table.open, tmp_path / "latin.csv")[0].code == "file"
    (tmp_path / "t.csv.gz").write_bytes(b"no gzip")
    assert issues_of(Table.open, tmp_path / "t.csv.gz")[0].code == "file"


def test_repeated_values_name_both_lines(tmp_path: Path) -> None:
    table = Table.open(write(tmp_path / "t.csv", "a,b", "x,1", "y,1", "x,1"))
    table.unique("a", table.texts("a"))
    (issue,) = issues_of(table.finish)
    assert issue.code == "duplicate_id"
    assert issue.path.endswith(":4")
    assert "line 2" in issue.message


def test_times() -> None:
    noon = datetime(2026, 11, 29, 12, tzinfo=UTC)
    assert parse_time("2026-11-29 12:00:00") == noon
    assert parse_time("2026-11-29T13:00:00+01:00") == noon
    assert parse_time(str(int(noon.timestamp()))) == noon
    with pytest.raises(ValueError, match="must be a date and time"):
        parse_time("noon")
