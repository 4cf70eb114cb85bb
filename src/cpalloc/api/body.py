"""Reading requests: bounded bodies, deadlines, and clients that hang up."""

from __future__ import annotations

import json
from typing import Any

from fastapi import Request
from starlette.requests import ClientDisconnect

from cpalloc.api.errors import GoneError, TooLargeError
from cpalloc.errors import InputError, Issue


async def read_body(request: Request, limit: int) -> bytes:
    """Read a request's body.

    Parameters
    ----------
    request : Request
        The request, its body not read yet.
    limit : int
        Most bytes to take.

    Raises
    ------
    TooLargeError
        As soon as the body is known to be larger.
    GoneError
        When the client hangs up before it has sent everything.
    """
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > limit:
        raise TooLargeError(limit)
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > limit:
                raise TooLargeError(limit)
    except ClientDisconnect:
        raise GoneError from None
    return bytes(body)


def parse_object(body: bytes) -> dict[str, Any]:
    """Parse a body that is to be a JSON object.

    Raises
    ------
    InputError
        When it is something else.
    """
    try:
        document = json.loads(body)
    except RecursionError:
        raise InputError([Issue("json", "", "is nested too deeply")]) from None
    except ValueError as error:
        raise InputError([Issue("json", "", f"is not JSON: {error}")]) from None
    if not isinstance(document, dict):
        raise InputError([Issue("type", "", "must be a JSON object")])
    return document


async def hung_up(request: Request) -> None:
    """Wait until the client of a request, read to its end, is gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
