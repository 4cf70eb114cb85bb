"""``POST /v1/solve``: a round in, an allocation out."""

from __future__ import annotations

import threading
import time
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Header, Request, Response
from fastapi.concurrency import run_in_threadpool

from cpalloc.api.body import hung_up, read_body
from cpalloc.api.documents import json_body, json_response, problems
from cpalloc.api.settings import Settings
from cpalloc.api.state import AppState
from cpalloc.schema import Round
from cpalloc.schema.validate import load_document

if TYPE_CHECKING:
    from cpalloc.api.solvers import Solvers
    from cpalloc.engine import Solver

SHORTEST = Decimal("0.05")
"""Shortest time limit of the wire format, in seconds."""

ServerTimeout = Annotated[
    float | None,
    Header(
        alias="X-Server-Timeout",
        gt=0,
        allow_inf_nan=False,
        description="Seconds from the arrival of the request after which the best answer so far is to be sent.",
    ),
]

router = APIRouter(tags=["rounds"])


@router.post(
    "/v1/solve",
    operation_id="solve",
    summary="Solve a round",
    response_class=Response,
    responses={
        200: json_response("Allocation", "The allocation, whatever its status: running out of time is no error."),
        **problems(400, 413, 422, 500, 503),
    },
    openapi_extra={"requestBody": json_body("Round")},
)
async def solve(request: Request, state: AppState, x_server_timeout: ServerTimeout = None) -> Response:
    """Decide which jobs start, stay, stop or wait. The answer depends on the request alone: safe to repeat."""
    deadline_s = None if x_server_timeout is None else time.monotonic() + x_server_timeout
    state.pool.refuse_if_full()
    body = await read_body(request, state.settings.max_body_bytes)
    solver, round_ = await run_in_threadpool(_read, body, state.solvers)
    work = partial(_solve, solver, round_, state.settings, deadline_s)
    answer = await state.pool.run(work, hung_up=partial(hung_up, request))
    return Response(answer, media_type="application/json")


def _read(body: bytes, solvers: Solvers) -> tuple[Solver, Round]:
    document = load_document(body)
    cluster = document.get("cluster")
    solver = solvers.of(cluster.get("name") if isinstance(cluster, dict) else None)
    return solver, solver.read(document)


def _solve(
    solver: Solver, round_: Round, settings: Settings, deadline_s: float | None, cancel: threading.Event
) -> bytes:
    left_s = None if deadline_s is None else deadline_s - time.monotonic()
    granted = limited(round_, settings, left_s)
    allocation = solver.solve(granted, cancel=cancel, trusted=True, asked=round_)
    return allocation.model_dump_json().encode()


def limited(round_: Round, settings: Settings, left_s: float | None) -> Round:
    """Cut a round's options to what the service grants.

    Parameters
    ----------
    round_ : Round
        The round as asked.
    settings : Settings
        Gives the longest time limit, and the most workers of a round that is not deterministic.
    left_s : float, optional
        Seconds until the client's deadline; where none are left the shortest time limit applies.
    """
    options = round_.options
    time_limit = min(options.time_limit, settings.max_time_limit)
    if left_s is not None and left_s < time_limit:
        time_limit = max(SHORTEST, Decimal(f"{left_s:.3f}"))
    workers = options.workers if options.deterministic else min(options.workers, settings.max_workers)
    if (time_limit, workers) == (options.time_limit, options.workers):
        return round_
    granted = options.model_copy(update={"time_limit": time_limit, "workers": workers})
    return round_.model_copy(update={"options": granted})
