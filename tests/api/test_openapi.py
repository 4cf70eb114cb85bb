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
from cpalloc.schema import CheckReport, parse_allocation
from cpalloc.schema.examples import load

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


def test_the_packaged_answers_parse() -> None:
    allocation = parse_allocation(example("allocation"))
    assert {d.job for d in allocation.decisions} == {job["id"] for job in load("small")["jobs"]}
    assert CheckReport.model_validate(example("report")).violations == ()
