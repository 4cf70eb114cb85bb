"""Pieces of the OpenAPI document that several routes share."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from cpalloc.api.errors import MEDIA_TYPE

_DESCRIPTIONS = {
    400: "The body is not JSON.",
    404: "There is no such thing, or has not been since the service started.",
    409: "There is nothing to draw yet.",
    410: "It was forgotten to make room for others.",
    413: "The body is larger than the service takes.",
    422: "The request cannot be used; `issues` lists everything wrong with it.",
    429: "The queue of what-ifs is full; `Retry-After` says when to try again.",
    500: "A bug of cpalloc's.",
    503: "The queue is full, or the service is shutting down; `Retry-After` says when to try again.",
}


def reference(schema: str) -> dict[str, str]:
    """Refer to a schema among the components of the document."""
    return {"$ref": f"#/components/schemas/{schema}"}


def json_body(schema: str) -> dict[str, Any]:
    """Describe a JSON request body."""
    return {"required": True, "content": {"application/json": {"schema": reference(schema)}}}


def json_response(schema: str, description: str) -> dict[str, Any]:
    """Describe a JSON response."""
    return {"description": description, "content": {"application/json": {"schema": reference(schema)}}}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Describe the problems an operation may answer with."""
    found: dict[int | str, dict[str, Any]] = {}
    for status in statuses:
        found[status] = {
            "description": _DESCRIPTIONS[status],
            "content": {MEDIA_TYPE: {"schema": reference("Problem")}},
        }
        if status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
            header = {"description": "Seconds.", "required": True, "schema": {"type": "integer", "minimum": 1}}
            found[status]["headers"] = {"Retry-After": header}
    return found
