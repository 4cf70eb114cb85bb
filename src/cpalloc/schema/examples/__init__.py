"""Example rounds that ship with the package."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any


def names() -> tuple[str, ...]:
    """Names of the examples, sorted."""
    entries = (entry.name for entry in files(__package__).iterdir())
    return tuple(sorted(name.removesuffix(".json") for name in entries if name.endswith(".json")))


def load(name: str) -> dict[str, Any]:
    """Load an example round as a document of the wire format.

    Parameters
    ----------
    name : str
        One of :func:`names`, e.g. ``small``.

    Returns
    -------
    dict
        A fresh document; parse it with :func:`cpalloc.schema.parse_round`.

    Raises
    ------
    KeyError
        When there is no such example.
    """
    if name not in names():
        raise KeyError(f"no example {name!r}; there are {', '.join(names())}")
    document: dict[str, Any] = json.loads(files(__package__).joinpath(f"{name}.json").read_text(encoding="utf-8"))
    return document
