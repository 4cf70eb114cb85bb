"""The OpenAPI document: FastAPI's paths, the wire format's schemas, and examples.

``python -m cpalloc.api.openapi [PATH]`` writes it to ``docs/openapi.json``, where a test holds it against drift.
"""

from __future__ import annotations

import copy
import json
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from cpalloc.api.documents import reference
from cpalloc.api.what_if.schema import what_if_schemas
from cpalloc.schema import CheckReport, answer_schema, request_schema
from cpalloc.schema.examples import load

DEFAULT_PATH = Path("docs/openapi.json")

_DEFS = "#/$defs/"

_PROBLEM: dict[str, Any] = {
    "title": "Problem",
    "description": "What went wrong (RFC 9457).",
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string", "format": "uri-reference"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "issues": {"type": "array", "items": reference("Issue")},
    },
}
_ISSUE: dict[str, Any] = {
    "title": "Issue",
    "description": "One thing wrong with a request: a stable code, where, and what to do.",
    "type": "object",
    "required": ["code", "path", "message"],
    "properties": {
        "code": {"type": "string"},
        "path": {"type": "string", "description": "As in `jobs[17].min_runtime`; empty for the whole document."},
        "message": {"type": "string"},
    },
}
_CHECK_REQUEST: dict[str, Any] = {
    "title": "CheckRequest",
    "description": "A round, and an allocation that claims to answer it.",
    "type": "object",
    "additionalProperties": False,
    "required": ["round", "allocation"],
    "properties": {"round": reference("Round"), "allocation": reference("Allocation")},
}


def document(app: FastAPI) -> dict[str, Any]:
    """Build the OpenAPI document of an application."""
    doc: dict[str, Any] = get_openapi(
        title=app.title,
        version=app.version,
        summary=app.summary,
        openapi_version=app.openapi_version,
        routes=app.routes,
    )
    schemas: dict[str, Any] = doc.setdefault("components", {}).setdefault("schemas", {})
    for name, schema in _wire_schemas().items():
        if schemas.setdefault(name, schema) != schema:
            raise AssertionError(f"two different schemas are called {name}")
    schemas |= {"Problem": _PROBLEM, "Issue": _ISSUE, "CheckRequest": _CHECK_REQUEST}
    doc["components"]["schemas"] = dict(sorted(schemas.items()))
    _add_examples(doc["paths"])
    return doc


def example(name: str) -> dict[str, Any]:
    """Load what ships as an example: ``allocation`` and ``report`` are of the example round ``small``.

    ``what_if`` is a request, ``what_if_status`` and ``what_if_result`` what comes of it.
    """
    text = files("cpalloc.api").joinpath("examples", f"{name}.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def _wire_schemas() -> dict[str, Any]:
    """Collect the wire format's schemas by name; their references point to the document's components."""
    found: dict[str, Any] = {}
    report = CheckReport.model_json_schema(mode="validation")
    named = {"Round": request_schema(), "Allocation": answer_schema(), "CheckReport": report, **what_if_schemas()}
    for name, schema in named.items():
        whole = _moved(copy.deepcopy(schema))
        whole.pop("$schema", None)
        for key, value in {**whole.pop("$defs", {}), name: whole}.items():
            if found.setdefault(key, value) != value:
                raise AssertionError(f"two different schemas are called {key}")
    return found


def _moved(schema: Any) -> Any:
    """Point references into ``$defs`` to the components."""
    if isinstance(schema, list):
        return [_moved(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    moved = {key: _moved(value) for key, value in schema.items()}
    target = moved.get("$ref")
    if isinstance(target, str) and target.startswith(_DEFS):
        moved |= reference(target.removeprefix(_DEFS))
    mapping = moved.get("discriminator", {})
    if isinstance(mapping, dict) and isinstance(mapping.get("mapping"), dict):
        raise AssertionError("discriminators with a mapping are not moved yet")
    return moved


def _add_examples(paths: dict[str, Any]) -> None:
    round_, allocation, report = load("small"), example("allocation"), example("report")
    jobs, teams = "Four nodes, six jobs", "Two teams on two nodes"
    for path, method, status, summary, asked, answered in (
        ("/v1/solve", "post", 200, jobs, round_, allocation),
        ("/v1/check", "post", 200, jobs, {"round": round_, "allocation": allocation}, report),
        ("/v1/what-if", "post", 202, teams, example("what_if"), example("what_if_status")),
        ("/v1/what-if/{id}/result", "get", 200, teams, None, example("what_if_result")),
    ):
        operation = paths[path][method]
        contents = [(operation["responses"][str(status)]["content"], answered)]
        if asked is not None:
            contents.append((operation["requestBody"]["content"], asked))
        for content, value in contents:
            content["application/json"]["examples"] = {"small": {"summary": summary, "value": value}}


def text(app: FastAPI) -> str:
    """Write the document of an application as it is kept in the repository."""
    return json.dumps(document(app), indent=2, sort_keys=False) + "\n"


def main() -> None:
    """Write the document to the path given as the first argument."""
    from cpalloc.api.app import create_app

    path = Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_PATH
    path.write_text(text(create_app()), encoding="utf-8")


if __name__ == "__main__":
    main()
