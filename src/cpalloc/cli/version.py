"""``cpalloc version``."""

from __future__ import annotations

from typing import Annotated

import typer


def version(
    as_json: Annotated[bool, typer.Option("--json", help="In JSON.")] = False,
) -> None:
    """Print the versions of everything that matters to an answer."""
    import json
    import platform
    from importlib.metadata import version as installed

    from cpalloc.version import __version__

    versions = {"cpalloc": __version__, "ortools": installed("ortools"), "python": platform.python_version()}
    if as_json:
        typer.echo(json.dumps({**versions, "schema_versions": [1]}))
        return
    for name, value in versions.items():
        typer.echo(f"{name} {value}")
