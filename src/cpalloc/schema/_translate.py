"""pydantic's errors as issues: stable codes, and paths as a user writes them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from cpalloc.errors import Issue

_OWN_CODES = frozenset(
    {"instant", "duration", "decimal", "range", "type", "too_many", "too_large", "graph", "cluster_form"}
)
_CODES = {
    "missing": "missing",
    "extra_forbidden": "unknown_field",
    "enum": "enum",
    "literal_error": "enum",
    "string_pattern_mismatch": "pattern",
    "string_too_long": "pattern",
    "string_too_short": "pattern",
    "greater_than": "range",
    "greater_than_equal": "range",
    "less_than": "range",
    "less_than_equal": "range",
    "finite_number": "range",
    "too_long": "too_many",
}
_MESSAGES = {
    "missing": "is required",
    "unknown_field": "is not a field of the format; remove it or correct its spelling",
    "pattern": "must be 1 to 253 characters out of A-Z a-z 0-9 . _ : / @ + -",
}
_UNION_TAGS = frozenset({"count", "devices"})
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


def join_path(base: str, *parts: str | int) -> str:
    """Append keys and indices to a path.

    Examples
    --------
    >>> join_path("jobs", 17, "labels", "a.b")
    'jobs[17].labels["a.b"]'
    """
    path = base
    for part in parts:
        if isinstance(part, int):
            path += f"[{part}]"
        elif _PLAIN_KEY.fullmatch(part):
            path += f".{part}" if path else part
        else:
            path += f"[{json.dumps(part)}]"
    return path


def document_path(location: Iterable[str | int], document: object, base: str = "") -> str:
    """Write an error's location as a path of the document, leaving out pydantic's own steps (union tags and such)."""
    path, here = base, document
    for part in location:
        if isinstance(part, int):
            path = join_path(path, part)
            here = here[part] if isinstance(here, list | tuple) and 0 <= part < len(here) else None
        elif isinstance(here, Mapping) and part != "[key]" and (part not in _UNION_TAGS or part in here):
            path = join_path(path, part)
            here = here.get(part)
    return path


def issues_of(error: ValidationError, document: object, base: str = "") -> list[Issue]:
    """Translate a validation error into issues, without duplicates.

    Parameters
    ----------
    error : ValidationError
        Raised when ``document`` was validated.
    document : object
        What was validated; tells the keys of the document from pydantic's own steps.
    base : str
        Path of ``document`` in the whole.

    Returns
    -------
    list of Issue
        In pydantic's order, one per code and path.
    """
    found: dict[tuple[str, str], Issue] = {}
    for line in error.errors(include_url=False, include_input=False):
        path = document_path(line["loc"], document, base)
        for code, suffix, message in _problems(line["type"], line["msg"], line.get("ctx", {})):
            found.setdefault((code, path + suffix), Issue(code, path + suffix, message))
    return list(found.values())


def _problems(kind: str, message: str, context: Mapping[str, Any]) -> Iterable[tuple[str, str, str]]:
    if kind == "several":
        problems: list[tuple[str, str, str]] = context["problems"]
        return problems
    code = kind if kind in _OWN_CODES else _CODES.get(kind, "type")
    plain = message[:1].lower() + message[1:]
    return [(code, "", plain if kind == "string_too_long" else _MESSAGES.get(code, plain))]
