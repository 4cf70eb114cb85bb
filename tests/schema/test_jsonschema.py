"""The published JSON Schemas agree with the models."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from cpalloc.schema import Allocation, Round, answer_schema, request_schema
from cpalloc.schema.examples import load, names

from .malformed import FIELDS, Malformed
from .test_answer import answer

REQUEST = Draft202012Validator(request_schema())
ANSWER = Draft202012Validator(answer_schema())


@pytest.mark.parametrize("schema", [request_schema(), answer_schema()], ids=["request", "answer"])
def test_they_are_schemas_of_2020_12(schema: dict[str, Any]) -> None:
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize("name", names())
def test_examples_are_valid_as_written_and_as_dumped(name: str) -> None:
    REQUEST.validate(load(name))
    REQUEST.validate(Round.model_validate(load(name)).model_dump(mode="json"))


def test_answers_are_valid_as_written_and_as_dumped() -> None:
    ANSWER.validate(answer())
    ANSWER.validate(Allocation.model_validate(answer()).model_dump(mode="json"))


def test_answers_may_carry_more() -> None:
    ANSWER.validate(answer() | {"added": 1})


STRUCTURAL = {"missing", "unknown_field", "type", "enum"}


@pytest.mark.parametrize(
    "malformed",
    [c for c in FIELDS if {code for code, _ in c.issues} <= STRUCTURAL and "NaN" not in c.name],
    ids=lambda m: m.name.replace(" ", "-"),
)
def test_malformed_structure_is_invalid(malformed: Malformed) -> None:
    assert not REQUEST.is_valid(malformed.document())


def test_schemas_are_fresh_each_time() -> None:
    request_schema().clear()
    assert request_schema()
