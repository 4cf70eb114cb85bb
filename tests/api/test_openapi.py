"""The OpenAPI document: kept in the repository, and true to the wire format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from cpalloc.api.app import create_app
from cpalloc.api.openapi import document, example, text
from cpalloc.api.settings import Settings
from cpalloc.api.what_if.request import read_what_if
from cpalloc.schema import CheckReport, parse_allocation
from cpalloc.schema.examples import load
from cpalloc.sim.sweep import comparison_of, sweep
from sim.sweep.labs import Serial

from .what_if.requests import endless

KEPT = Path(__file__).parents[2] / "docs" / "openapi.json"


@pytest.fixture(scope="module")
def doc() -> dict[str, Any]:
    return document(create_app(Settings()))


def test_the_kept_document_is_current() -> None:
    assert KEPT.read_text(encoding="utf-8") == text(create_app(Settings())), "run `python -m cpalloc.api.openapi`"


def test_the_environment_does_not_change_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CPALLOC_PORT", "9000")
    monkeypatch.setenv("CPALLOC_MAX_TIME_LIMIT", "1")
    assert KEPT.read_text(encoding="utf-8") == text(create_app(Settings()))


def test_every_reference_has_a_target(doc: dict[str, Any]) -> None:
    def references(value: Any) -> set[str]:
        if isinstance(value, dict):
            own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
            return own.union(*map(references, value.values()))
        return set().union(*map(references, value)) if isinstance(value, list) else set()

    have = {f"#/components/schemas/{name}" for name in doc["components"]["schemas"]}
    assert references(doc) <= have
    assert "$defs" not in json.dumps(doc)


@pytest.mark.parametrize("path", ["/v1/solve", "/v1/check"])
def test_examples_are_what_the_schemas_describe(doc: dict[str, Any], path: str) -> None:
    operation = doc["paths"][path]["post"]
    for content in (operation["requestBody"]["content"], operation["responses"]["200"]["content"]):
        media = content["application/json"]
        schema = {**media["schema"], "components": doc["components"]}
        jsonschema.validate(media["examples"]["small"]["value"], schema, jsonschema.Draft202012Validator)


@pytest.mark.parametrize(
    ("method", "path", "part"),
    [
        ("post", "/v1/what-if", ("requestBody",)),
        ("post", "/v1/what-if", ("responses", "202")),
        ("get", "/v1/what-if/{id}/result", ("responses", "200")),
    ],
)
def test_examples_of_what_ifs_are_what_the_schemas_describe(
    doc: dict[str, Any], method: str, path: str, part: tuple[str, ...]
) -> None:
    found = doc["paths"][path][method]
    for key in part:
        found = found[key]
    media = found["content"]["application/json"]
    schema = {**media["schema"], "components": doc["components"]}
    jsonschema.validate(media["examples"]["small"]["value"], schema, jsonschema.Draft202012Validator)


def test_a_lab_is_what_the_schema_describes(doc: dict[str, Any]) -> None:
    schema = {"$ref": "#/components/schemas/WhatIf", "components": doc["components"]}
    jsonschema.validate(endless(), schema, jsonschema.Draft202012Validator)


def test_the_packaged_what_if_comes_to_the_packaged_result_but_for_figures(tmp_path: Path) -> None:
    title, tasks, _ = read_what_if(json.dumps(example("what_if")).encode(), tmp_path, Settings())
    status, result = example("what_if_status"), example("what_if_result")
    assert title == status["title"] == result["title"]
    assert [(t.scenario.name, t.seed) for t in tasks] == [(r["scenario"], r["seed"]) for r in status["runs"]]
    found = comparison_of(sweep(tasks, Serial()).summaries)
    assert found is not None
    whole, shown = json.loads(json.dumps(found.to_dict())), result["comparison"]
    rows = {row["name"]: row for row in (*whole["rows"], *whole["leaves"])}
    for row in (*shown.pop("rows"), *shown.pop("leaves")):
        assert {**row, "cells": len(row["cells"])} == {**rows[row["name"]], "cells": 3}
    assert shown == {key: value for key, value in whole.items() if key not in ("rows", "leaves")}


def test_the_packaged_answers_parse() -> None:
    allocation = parse_allocation(example("allocation"))
    assert {d.job for d in allocation.decisions} == {job["id"] for job in load("small")["jobs"]}
    assert CheckReport.model_validate(example("report")).violations == ()
