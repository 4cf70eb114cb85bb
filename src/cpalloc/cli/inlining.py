"""A file of scenarios as a service takes it: with what it names by paths sent along."""

from __future__ import annotations

import gzip
import tomllib
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cpalloc.errors import InputError, Issue

if TYPE_CHECKING:
    from cpalloc.sim.what_if import WhatIf

_PLAIN = 64
"""Longest name of a trace that a service takes."""


def inlined(path: Path, what_if: WhatIf, *, overridden: bool) -> dict[str, Any]:
    """Write a file of scenarios as the body of a request.

    Parameters
    ----------
    path : Path
        The file.
    what_if : WhatIf
        What was read from it.
    overridden : bool
        Whether the seeds are those of ``what_if`` instead of those of the file.

    Raises
    ------
    InputError
        When a file it names cannot be read, or cannot be sent.
    """
    from cpalloc.sim.what_if import load_toml

    document = load_toml(path)
    parts: list[dict[str, Any]] = [document["base"], *document.get("scenario", [])]
    for i, (part, scenario) in enumerate(zip(parts, what_if.scenarios, strict=True)):
        if overridden:
            part["seeds"] = list(scenario.seeds)
        given = part.get("workload", {})
        given = {"path": given} if isinstance(given, str) else dict(given)
        for key in ("nodes", "events"):
            file = getattr(scenario.workload, key)
            if key in given and isinstance(file, Path):
                given[key] = _text(file)
        if given.pop("path", None) is not None and i == 0:
            given = {**_workload(scenario.workload.path), **given}
        if given:
            part["workload"] = given
        else:
            part.pop("workload", None)
    return {"title": what_if.title, **document}


def _workload(path: Path) -> dict[str, Any]:
    from cpalloc.sim.lab import SUFFIXES

    if path.suffix in SUFFIXES:
        return {"lab": _plain(_lab(path))}
    name = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in path.name.split(".")[0])
    return {"trace": _text(path), "name": name.strip("-_")[:_PLAIN] or "trace"}


def _lab(path: Path) -> Any:
    import json

    text = _text(path)
    try:
        return json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except ValueError as error:
        raise InputError([Issue("file", str(path), f"cannot be read: {error}")]) from None


def _plain(value: Any) -> Any:
    """TOML's values as JSON's."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value.isoformat() if isinstance(value, datetime) else value


def _text(path: Path) -> str:
    if path.suffix == ".parquet":
        raise InputError([Issue("file", str(path), "is Parquet, and a service takes text; write it as CSV")])
    try:
        content = path.read_bytes()
        return (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise InputError([Issue("file", str(path), f"cannot be read: {error}")]) from None
