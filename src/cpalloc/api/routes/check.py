"""``POST /v1/check``: a round and an allocation in, the broken rules out."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool

from cpalloc.api.body import hung_up, parse_object, read_body
from cpalloc.api.documents import json_body, json_response, problems
from cpalloc.api.state import AppState
from cpalloc.errors import InputError, Issue
from cpalloc.schema import Allocation, Round, parse_allocation, parse_round

M = TypeVar("M")

PARTS = ("round", "allocation")

router = APIRouter(tags=["rounds"])


@router.post(
    "/v1/check",
    operation_id="check",
    summary="Check an allocation",
    response_class=Response,
    responses={
        200: json_response("CheckReport", "The rules the allocation breaks, and its value on every tier."),
        **problems(400, 413, 422, 500, 503),
    },
    openapi_extra={"requestBody": json_body("CheckRequest")},
)
async def check(request: Request, state: AppState) -> Response:
    """Say which rules an allocation breaks, by code written apart from the solver's."""
    state.pool.refuse_if_full()
    body = await read_body(request, state.settings.max_body_bytes)
    round_, allocation = await run_in_threadpool(parse_check, body)
    report = await state.pool.run(partial(_check, round_, allocation), hung_up=partial(hung_up, request))
    return Response(report, media_type="application/json")


def parse_check(body: bytes) -> tuple[Round, Allocation]:
    """Read the request of a check.

    Raises
    ------
    InputError
        With every issue of both parts; their paths begin with ``round`` and ``allocation``.
    """
    document = parse_object(body)
    issues = [
        Issue("unknown_field", key, "is neither `round` nor `allocation`") for key in document if key not in PARTS
    ]
    round_ = _part(document, "round", parse_round, issues)
    allocation = _part(document, "allocation", parse_allocation, issues)
    if issues or round_ is None or allocation is None:
        raise InputError(issues)
    return round_, allocation


def _part(document: dict[str, Any], name: str, parse: Callable[[Any], M], issues: list[Issue]) -> M | None:
    if name not in document:
        issues.append(Issue("missing", name, "is required"))
        return None
    if not isinstance(document[name], dict):
        issues.append(Issue("type", name, "must be a JSON object"))
        return None
    try:
        return parse(document[name])
    except InputError as error:
        issues += [Issue(i.code, f"{name}.{i.path}" if i.path else name, i.message) for i in error.issues]
        return None


def _check(round_: Round, allocation: Allocation, _: threading.Event) -> bytes:
    from cpalloc.engine import check

    return check(round_, allocation).model_dump_json().encode()
