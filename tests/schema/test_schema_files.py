"""The JSON Schemas kept in the repository are those of the models."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cpalloc.schema.jsonschema import answer_schema, main, request_schema, schema_files

KEPT = Path(__file__).parents[2] / "docs" / "schema"


@pytest.mark.parametrize("name", sorted(schema_files()))
def test_the_kept_schema_is_current(name: str) -> None:
    assert (KEPT / name).read_text(encoding="utf-8") == schema_files()[name], "run `make docs`"


def test_nothing_else_is_kept() -> None:
    assert {path.name for path in KEPT.iterdir()} == set(schema_files())


def test_write_writes_the_files(tmp_path: Path) -> None:
    main(["--write", str(tmp_path / "new")])
    assert {p.name: p.read_text(encoding="utf-8") for p in (tmp_path / "new").iterdir()} == schema_files()


def test_without_write_both_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    main([])
    assert json.loads(capsys.readouterr().out) == {"request": request_schema(), "answer": answer_schema()}
