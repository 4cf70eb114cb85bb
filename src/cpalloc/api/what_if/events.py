"""A what-if as server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import islice

from pydantic import BaseModel

from cpalloc.api.what_if.job import Job

KEEP_ALIVE_S = 15.0
"""After so long a silence a comment is sent, so that what is in between does not take the stream for dead."""


async def events_of(job: Job) -> AsyncIterator[str]:
    """Tell what there is, then what happens, until nothing more does.

    Yields
    ------
    str
        Events: one ``status``; ``run`` for each run that ends and ``progress`` in between; at last one named as the
        state the what-if ended in. Who reads slowly misses some of the progress, and nothing else.
    """
    told = len(job.ended)
    change = job.change
    yield _event("status", job.status())
    while not job.state.over or len(job.ended) > told:
        quiet = False
        if change is job.change:
            quiet = not await _set_in_time(change)
        change = job.change
        ended = [job.run(task) for task, _ in islice(job.ended.values(), told, None)]
        told += len(ended)
        for run in ended:
            yield _event("run", run)
        if quiet:
            yield ": keep-alive\n\n"
        elif not job.state.over:
            yield _event("progress", job.progress())
    yield _event(str(job.state), job.progress())


async def _set_in_time(change: asyncio.Event) -> bool:
    try:
        await asyncio.wait_for(change.wait(), KEEP_ALIVE_S)
    except TimeoutError:
        return False
    return True


def _event(name: str, data: BaseModel) -> str:
    return f"event: {name}\ndata: {data.model_dump_json()}\n\n"
