"""The page with pictures: drawn in a process apart, as drawing takes seconds that rounds would miss."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
from collections.abc import Sequence
from http import HTTPStatus
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi.concurrency import run_in_threadpool

from cpalloc.api.errors import ProblemError
from cpalloc.api.what_if.documents import State
from cpalloc.api.what_if.job import Job

if TYPE_CHECKING:
    from cpalloc.sim.sweep import Limits, Task


class Painter:
    """Draws pages one at a time, each once for what was done when it was drawn."""

    def __init__(self, niceness: int, memory_bytes: int) -> None:
        self._niceness = niceness
        self._memory_bytes = memory_bytes
        self._one = asyncio.Lock()
        self._process: SpawnProcess | None = None
        self._stopped = False

    async def page(self, job: Job) -> bytes:
        """Draw a what-if as far as it is done.

        Raises
        ------
        ProblemError
            409 where nothing is done; 500 where it cannot be drawn, 503 when the service is ending.
        """
        done = job.count(State.DONE)
        if not done:
            detail = "no run is done, so there is nothing to draw; without format=html the result says what is missing"
            raise ProblemError(HTTPStatus.CONFLICT, detail)
        path = job.folder / f"page-{done}.html"
        async with self._one:
            if not path.exists():
                await self._draw(job, path)
            if not path.exists():
                self._refuse_if_stopped()
                detail = "the page could not be drawn, and the log says why; the result in JSON may do"
                raise ProblemError(HTTPStatus.INTERNAL_SERVER_ERROR, detail)
            return await run_in_threadpool(path.read_bytes)

    def stop(self) -> None:
        """End what is being drawn, and draw nothing more."""
        self._stopped = True
        if self._process is not None:
            self._process.terminate()

    async def _draw(self, job: Job, path: Path) -> None:
        from cpalloc.sim.sweep import Limits

        self._refuse_if_stopped()
        limits = Limits(niceness=self._niceness, memory_bytes=self._memory_bytes)
        process = self._process = multiprocessing.get_context("spawn").Process(
            target=_paint, args=(limits, path, job.title, job.tasks), name="page", daemon=True
        )
        process.start()
        try:
            await run_in_threadpool(process.join)
        finally:
            process.terminate()  # where nobody waits for it any more
            self._process = None

    def _refuse_if_stopped(self) -> None:
        if self._stopped:
            detail = "the service is shutting down; post the what-if again when it is back"
            raise ProblemError(HTTPStatus.SERVICE_UNAVAILABLE, detail, retry_after_s=5)


def _paint(limits: Limits, path: Path, title: str, tasks: Sequence[Task]) -> None:
    """Write the page whole or not at all; the process's own work."""
    limits.apply()
    from cpalloc.report import study_of, write_report
    from cpalloc.sim.sweep import comparison_of, done_of

    comparison = comparison_of(done_of(tasks))
    assert comparison is not None
    part = path.with_suffix(".part")
    write_report(part, [study_of(comparison, tasks)], title=title)
    os.replace(part, path)
