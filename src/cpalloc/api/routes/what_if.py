"""``/v1/what-if``: scenarios side by side, simulated while rounds go on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from http import HTTPStatus
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from cpalloc.api.body import read_body
from cpalloc.api.documents import json_body, problems, reference
from cpalloc.api.state import AppState
from cpalloc.api.what_if.documents import MissingRun, State, WhatIfList, WhatIfStatus
from cpalloc.api.what_if.events import events_of
from cpalloc.api.what_if.job import PATH, Job

router = APIRouter(tags=["what-if"])


async def job_of(state: AppState, id: Annotated[str, Path(description="As in the `Location` of the post.")]) -> Job:
    """Look up the what-if a path names."""
    return state.what_ifs.job(id)


PathJob = Annotated[Job, Depends(job_of)]
Format = Annotated[
    Literal["json", "html"], Query(description="`html`: a page with pictures, in one file that works offline.")
]

_LOCATION = {"Location": {"description": "Of the status.", "required": True, "schema": {"type": "string"}}}
_RESULT: dict[str, Any] = {
    "description": "The comparison of the runs that are done; `missing` names those that are not in it.",
    "content": {
        "application/json": {"schema": reference("WhatIfResult")},
        "text/html": {"schema": {"type": "string"}},
    },
}
_EVENTS: dict[str, Any] = {
    "description": (
        "`status` first; `run` for each run that ends, `progress` in between; at last one of `done`, `failed` and "
        "`cancelled`, after which the stream ends."
    ),
    "content": {"text/event-stream": {"schema": {"type": "string"}}},
}


@router.post(
    PATH,
    operation_id="post_what_if",
    summary="Compare scenarios",
    status_code=HTTPStatus.ACCEPTED,
    responses={
        202: {"description": "It waits for its turn.", "headers": _LOCATION},
        **problems(400, 413, 422, 429, 500, 503),
    },
    openapi_extra={"requestBody": json_body("WhatIf")},
)
async def post_what_if(request: Request, response: Response, state: AppState) -> WhatIfStatus:
    """Have a base and changes of it simulated side by side, over seeds. Rounds are never delayed by it."""
    with state.what_ifs.place():
        body = await read_body(request, state.settings.what_if_max_body_bytes)
        job = await state.what_ifs.add(body)
    response.headers["Location"] = f"{PATH}/{job.id}"
    return job.status()


@router.get(PATH, operation_id="list_what_ifs", summary="List what-ifs")
async def list_what_ifs(state: AppState) -> WhatIfList:
    """List those that wait, run or are kept, the latest first."""
    return WhatIfList(what_ifs=tuple(job.progress() for job in state.what_ifs.jobs()))


@router.get(
    f"{PATH}/{{id}}", operation_id="get_what_if", summary="How far a what-if is", responses=problems(404, 410, 422)
)
async def get_what_if(job: PathJob) -> WhatIfStatus:
    """Say how far a what-if is, run by run."""
    return job.status()


@router.delete(
    f"{PATH}/{{id}}", operation_id="cancel_what_if", summary="Cancel a what-if", responses=problems(404, 410, 422)
)
async def cancel_what_if(job: PathJob, state: AppState) -> WhatIfStatus:
    """Stop it, and answer once it has stopped; what is done is kept. Does nothing to one that is over."""
    await state.what_ifs.cancel(job)
    return job.status()


@router.get(
    f"{PATH}/{{id}}/result",
    operation_id="get_what_if_result",
    summary="The best so far",
    response_class=Response,
    responses={200: _RESULT, **problems(404, 409, 410, 422, 500, 503)},
)
async def get_what_if_result(job: PathJob, state: AppState, format: Format = "json") -> Response:
    """Compare the runs that are done, at any time. With `format=html` 409 as long as there is none."""
    if format == "html":
        return Response(await state.what_ifs.page(job), media_type="text/html")
    body = await run_in_threadpool(_result, job, job.state, job.missing())
    state.what_ifs.job(job.id)  # 410 where it was forgotten meanwhile, and its files with it
    return Response(body, media_type="application/json")


def _result(job: Job, state: State, missing: Sequence[MissingRun]) -> bytes:
    """Compare; ``missing`` were missing a moment ago, and those with a result by now are not."""
    from cpalloc.sim.sweep import comparison_of, done_of

    summaries = done_of(job.tasks)
    comparison = comparison_of(summaries)
    found = {(name, run.seed) for name, runs in summaries.items() for run in runs}
    still = [m.model_dump(mode="json") for m in missing if (m.scenario, m.seed) not in found]
    document = {
        "id": job.id,
        "title": job.title,
        "state": state,
        "complete": not still,
        "missing": still,
        "comparison": None if comparison is None else comparison.to_dict(),
    }
    return json.dumps(document).encode()


@router.get(
    f"{PATH}/{{id}}/events",
    operation_id="get_what_if_events",
    summary="Watch a what-if",
    response_class=Response,
    responses={200: _EVENTS, **problems(404, 410, 422)},
)
async def get_what_if_events(job: PathJob) -> StreamingResponse:
    """Tell what there is and what happens, as server-sent events, until it is over."""
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(events_of(job), media_type="text/event-stream", headers=headers)
