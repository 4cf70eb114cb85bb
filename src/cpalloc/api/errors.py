"""RFC 9457 bodies for everything that goes wrong."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from cpalloc.errors import InputError, Issue

MEDIA_TYPE = "application/problem+json"

_DETAILS = {
    HTTPStatus.NOT_FOUND: "there is nothing at this path; GET /openapi.json lists what there is",
    HTTPStatus.METHOD_NOT_ALLOWED: "this path does not take this method; the header Allow names those it takes",
}


class TooLargeError(Exception):
    """The body is larger than the service takes."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        super().__init__(f"the body is larger than {limit} bytes")


class GoneError(Exception):
    """The client hung up; nobody sees the answer."""


class BusyError(Exception):
    """The queue is full; ``retry_after_s`` is a guess at when it is not."""

    def __init__(self, retry_after_s: int) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(f"the queue is full; try again in {retry_after_s} s")


class ProblemError(Exception):
    """There is a plain answer to the request, and it is a problem: its status, and what to do in ``detail``."""

    def __init__(self, status: HTTPStatus, detail: str, *, retry_after_s: int | None = None) -> None:
        self.status = status
        self.headers = None if retry_after_s is None else {"Retry-After": str(retry_after_s)}
        super().__init__(detail)


def problem(
    status: HTTPStatus,
    detail: str,
    *,
    issues: Sequence[Issue] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Answer with a problem; its text is ASCII, so that whatever a request contains can be told back."""
    body: dict[str, Any] = {"type": "about:blank", "title": status.phrase, "status": int(status), "detail": detail}
    if issues is not None:
        body["issues"] = [asdict(issue) for issue in issues]
    return Response(json.dumps(body), status, headers, MEDIA_TYPE)


def input_problem(error: InputError) -> Response:
    """Answer a bad request: 400 when it is not JSON at all, otherwise 422; with every issue either way."""
    unreadable = all(issue.code == "json" for issue in error.issues)
    status = HTTPStatus.BAD_REQUEST if unreadable else HTTPStatus(422)
    count = len(error.issues)
    detail = error.issues[0].message if count == 1 else f"{count} things are wrong with the request; see `issues`"
    return problem(status, detail, issues=error.issues)


def install(app: FastAPI) -> None:
    """Make an application answer every error with a problem."""

    async def http(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        status = HTTPStatus(error.status_code)
        detail = _DETAILS.get(status, str(error.detail))
        return problem(status, detail, headers=error.headers)

    async def bad_input(_: Request, error: Exception) -> Response:
        assert isinstance(error, InputError)
        return input_problem(error)

    async def bad_parameter(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return input_problem(InputError([_parameter_issue(line) for line in error.errors()]))

    async def too_large(_: Request, error: Exception) -> Response:
        return problem(HTTPStatus(413), str(error), headers={"Connection": "close"})

    async def busy(_: Request, error: Exception) -> Response:
        assert isinstance(error, BusyError)
        return problem(HTTPStatus.SERVICE_UNAVAILABLE, str(error), headers={"Retry-After": str(error.retry_after_s)})

    async def told(_: Request, error: Exception) -> Response:
        assert isinstance(error, ProblemError)
        return problem(error.status, str(error), headers=error.headers)

    async def gone(_: Request, __: Exception) -> Response:
        return Response(status_code=499)

    async def bug(_: Request, __: Exception) -> Response:
        detail = "this is a bug of cpalloc's; please report it with the round. The log has the details"
        return problem(HTTPStatus.INTERNAL_SERVER_ERROR, detail)

    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(InputError, bad_input)
    app.add_exception_handler(RequestValidationError, bad_parameter)
    app.add_exception_handler(TooLargeError, too_large)
    app.add_exception_handler(BusyError, busy)
    app.add_exception_handler(ProblemError, told)
    app.add_exception_handler(GoneError, gone)
    app.add_exception_handler(Exception, bug)


def _parameter_issue(line: Mapping[str, Any]) -> Issue:
    message = str(line["msg"])
    return Issue(str(line["loc"][0]), str(line["loc"][-1]), message[:1].lower() + message[1:])
