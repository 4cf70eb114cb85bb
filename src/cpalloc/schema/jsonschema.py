"""The wire format as JSON Schema 2020-12, for editors, other languages and contract tests."""

from __future__ import annotations

from typing import Any

from cpalloc.schema.answer import Allocation
from cpalloc.schema.request import Round

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def request_schema() -> dict[str, Any]:
    """JSON Schema of a round; what several objects must agree on is beyond it (see ``parse_round``)."""
    return {"$schema": DIALECT, **Round.model_json_schema(mode="validation")}


def answer_schema() -> dict[str, Any]:
    """JSON Schema of an allocation; fields it does not name are allowed and to be ignored."""
    return {"$schema": DIALECT, **Allocation.model_json_schema(mode="validation")}
