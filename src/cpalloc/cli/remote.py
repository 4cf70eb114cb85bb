"""The ``--server`` option."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from cpalloc.client import Client

ServerOption = Annotated[
    str | None,
    typer.Option(
        "--server", metavar="URL", envvar="CPALLOC_SERVER", help="Have a service do it, e.g. http://host:8000."
    ),
]


def client_for(url: str) -> Client:
    """Make a client.

    Raises
    ------
    typer.BadParameter
        When the address is none; exits with 2.
    """
    from cpalloc.client import Client

    try:
        return Client(url=url)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--server") from None
