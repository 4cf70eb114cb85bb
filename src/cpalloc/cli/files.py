"""Where documents come from and go to: a path, or ``-``."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer


def read(path: Path, argument: str) -> bytes:
    """Read a file, or standard input where the path is ``-``.

    Raises
    ------
    typer.BadParameter
        When the file cannot be read; exits with 2.
    """
    try:
        return sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    except OSError as error:
        raise typer.BadParameter(f"cannot read {path}: {error.strerror}", param_hint=argument) from None


def read_object(path: Path, argument: str) -> dict[str, Any]:
    """Read a JSON object.

    Raises
    ------
    InputError
        When the file holds something else.
    """
    return parse_object(read(path, argument), "" if argument == "ROUND" else argument.lower())


def parse_object(text: bytes, name: str = "") -> dict[str, Any]:
    """Parse a JSON object; ``name`` is the path its issues carry."""
    from cpalloc.errors import InputError, Issue

    try:
        document = json.loads(text)
    except RecursionError:
        raise InputError([Issue("json", name, "is nested too deeply")]) from None
    except ValueError as error:
        raise InputError([Issue("json", name, f"is not JSON: {error}")]) from None
    if not isinstance(document, dict):
        raise InputError([Issue("type", name, "must be a JSON object")])
    return document


def with_options(document: dict[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Override options of a round; those that are ``None`` stay as they are."""
    given = {name: value for name, value in overrides.items() if value is not None}
    options = document.get("options", {})
    if not given or not isinstance(options, dict):  # what is malformed is left for the parser to tell
        return document
    return {**document, "options": {**options, **given}}


def write(text: str, path: Path | None) -> None:
    """Write a text to a file, or to standard output where there is no path or it is ``-``.

    Raises
    ------
    typer.BadParameter
        When the file cannot be written; exits with 2.
    """
    if path is None or str(path) == "-":
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise typer.BadParameter(f"cannot write {path}: {error.strerror}", param_hint="--output") from None


def check_target(path: Path | None, option: str) -> None:
    """Refuse early what could not be written once there is something to write.

    Raises
    ------
    typer.BadParameter
        When the path lies in no directory, or is one; exits with 2.
    """
    if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
        why = "is a directory" if path.is_dir() else f"there is no directory {path.parent}"
        raise typer.BadParameter(f"cannot write {path}: {why}", param_hint=option)
