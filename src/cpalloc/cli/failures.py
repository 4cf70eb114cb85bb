"""Exit codes, and how failures are told."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from cpalloc.errors import Issue


class ExitCode(IntEnum):
    """What the command line exits with; usage errors are 2, and anything unexpected is 1."""

    SOLVED = 0
    GUARD_FAILED = 3
    BAD_INPUT = 5
    SERVER = 6
    THRESHOLD_MISSED = 7
    INTERRUPTED = 130


@contextmanager
def told(*, as_json: bool) -> Iterator[None]:
    """Tell bad input and server failures on standard error, and exit with their code.

    Parameters
    ----------
    as_json : bool
        Tell them as one JSON object: ``issues`` for bad input, ``error`` for the server.
    """
    from cpalloc.errors import InputError

    try:
        yield
    except InputError as error:
        _tell_issues(error.issues, as_json=as_json)
        raise typer.Exit(ExitCode.BAD_INPUT) from None
    except Exception as error:
        # the client is only loaded where it was used
        client = sys.modules.get("cpalloc.client")
        if client is None or not isinstance(error, client.ServerError):
            raise
        _tell(_dumps({"error": str(error)}) if as_json else f"error: {error}")
        raise typer.Exit(ExitCode.SERVER) from None


def _tell_issues(issues: Sequence[Issue], *, as_json: bool) -> None:
    if as_json:
        _tell(_dumps({"issues": [{"code": i.code, "path": i.path, "message": i.message} for i in issues]}))
        return
    things = "1 thing is" if len(issues) == 1 else f"{len(issues)} things are"
    _tell(f"error: {things} wrong with the input")
    for issue in issues:
        _tell(f"  {issue.path or 'document'}: {issue.message} [{issue.code}]")


def _dumps(value: object) -> str:
    import json

    return json.dumps(value)


def _tell(line: str) -> None:
    print(line, file=sys.stderr)
