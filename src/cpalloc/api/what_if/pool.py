"""The what-ifs of a service: one after the other in processes of low priority, a queue before them, and what is kept.

Nothing of a round waits for any of it: sweeps have a thread and processes of their own, which run when nobody else
wants to, and take no more memory than is granted.
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from pathlib import Path

from fastapi.concurrency import run_in_threadpool

from cpalloc.api.errors import ProblemError
from cpalloc.api.settings import Settings
from cpalloc.api.what_if.documents import State
from cpalloc.api.what_if.job import Job, Watching
from cpalloc.api.what_if.page import Painter
from cpalloc.api.what_if.request import read_what_if

PATIENCE_S = 2.0
"""How long a simulation that is cancelled may take to stop before its process is ended."""

FORGOTTEN = 10_000
"""How many of those that were forgotten are still known to have been there."""

_LONGEST_RETRY_S = 3_600
_UNKNOWN_RETRY_S = 60

log = logging.getLogger(__name__)


class WhatIfs:
    """All what-ifs of an application. Its methods belong to one event loop."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._jobs: dict[str, Job] = {}
        self._forgotten: dict[str, None] = {}
        self._arriving = 0
        self._draining = False
        self._reopen()

    def _reopen(self) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="what-if")
        self._reading = asyncio.Lock()
        self._painter = Painter(self._settings.what_if_niceness, self._settings.what_if_memory_bytes)
        self._draining = False

    def reopen(self) -> None:
        """Take what-ifs again after :meth:`close`; does nothing before it."""
        if self._draining:
            self._reopen()

    @contextmanager
    def place(self) -> Iterator[None]:
        """Keep a place in the queue for a request that is being read.

        Raises
        ------
        ProblemError
            429 when the queue is full, 503 when the service is ending.
        """
        self._refuse_if_draining()
        waiting = sum(not job.state.over for job in self._jobs.values()) + self._arriving
        if waiting > self._settings.what_if_queue:
            again_s = self._retry_s()
            detail = f"{waiting} what-ifs run or wait already; cancel one with DELETE, or try again in {again_s} s"
            raise ProblemError(HTTPStatus.TOO_MANY_REQUESTS, detail, retry_after_s=again_s)
        self._arriving += 1
        try:
            yield
        finally:
            self._arriving -= 1

    def _refuse_if_draining(self) -> None:
        if self._draining:
            detail = "the service is shutting down; try again when it is back"
            raise ProblemError(HTTPStatus.SERVICE_UNAVAILABLE, detail, retry_after_s=5)

    def _retry_s(self) -> int:
        """When the one that runs will be over, going by how far it is."""
        for job in self._jobs.values():
            if job.state is State.RUNNING and job.fraction > 0:
                left_s = job.seconds * (1 - job.fraction) / job.fraction
                return min(_LONGEST_RETRY_S, max(1, math.ceil(left_s)))
        return _UNKNOWN_RETRY_S

    async def add(self, body: bytes) -> Job:
        """Read a what-if and let it wait for its turn; to be called in its :meth:`place`.

        Raises
        ------
        InputError
            With everything that is wrong with it.
        ProblemError
            503 when the service began to end meanwhile.
        """
        folder = Path(await run_in_threadpool(tempfile.mkdtemp, prefix="cpalloc-what-if-"))
        try:
            async with self._reading:  # one at a time: it takes memory, and time that rounds share
                title, tasks, origins = await run_in_threadpool(read_what_if, body, folder, self._settings)
            self._refuse_if_draining()
        except BaseException:
            await run_in_threadpool(shutil.rmtree, folder, ignore_errors=True)
            raise
        job = Job(id=secrets.token_hex(8), title=title, tasks=tasks, origins=origins, folder=folder)
        self._jobs[job.id] = job
        watching = Watching(job, asyncio.get_running_loop())
        job.sweeping = self._executor.submit(self._sweep, job, watching)
        self._forget()
        return job

    def job(self, id: str) -> Job:
        """Look up a what-if.

        Raises
        ------
        ProblemError
            404 where there was none, 410 where it was forgotten.
        """
        if id in self._jobs:
            return self._jobs[id]
        if id in self._forgotten:
            kept = self._settings.what_if_keep
            raise ProblemError(
                HTTPStatus.GONE, f"what-if {id} was forgotten: the last {kept} are kept; post it again if you need it"
            )
        detail = f"there is no what-if {id}, or there was before the service started; GET /v1/what-if lists them"
        raise ProblemError(HTTPStatus.NOT_FOUND, detail)

    def jobs(self) -> list[Job]:
        """All there are, the latest first."""
        return list(reversed(self._jobs.values()))

    async def cancel(self, job: Job) -> None:
        """Stop a what-if and wait until it has stopped; does nothing to one that is over."""
        self._stop(job)
        await job.over.wait()

    async def page(self, job: Job) -> bytes:
        """Draw the page of what is done; see :class:`cpalloc.api.what_if.page.Painter`."""
        return await self._painter.page(job)

    def _stop(self, job: Job) -> None:
        job.stop.set()
        if job.sweeping is not None and job.sweeping.cancel():  # it waited
            job.end()

    def drain(self) -> None:
        """Take nothing more and cancel everything, without waiting for it."""
        self._draining = True
        self._painter.stop()
        for job in self._jobs.values():
            self._stop(job)

    async def close(self) -> None:
        """Cancel everything, wait until no process is left, and forget it all."""
        self.drain()
        sweeping = [asyncio.wrap_future(job.sweeping) for job in self._jobs.values() if job.sweeping is not None]
        if sweeping:
            await asyncio.wait(sweeping)
        self._executor.shutdown(wait=False)
        for job in self._jobs.values():
            job.end()
            await run_in_threadpool(shutil.rmtree, job.folder, ignore_errors=True)
        self._jobs.clear()

    def _sweep(self, job: Job, watching: Watching) -> None:
        """Run all of a what-if, in the thread."""
        from cpalloc.sim.sweep import Limits, LocalEngine, sweep

        settings = self._settings
        limits = Limits(niceness=settings.what_if_niceness, memory_bytes=settings.what_if_memory_bytes)
        engine = LocalEngine(self._settings.what_if_processes, limits=limits, patience_s=PATIENCE_S)
        broken = False
        try:
            swept = sweep(job.tasks, engine, watch=watching, cancel=job.stop)
            for task, outcome in swept.failed:
                if outcome.details:
                    log.error("what-if %s: %s failed\n%s", job.id, task.label, outcome.details)
        except Exception:
            log.exception("what-if %s broke", job.id)
            broken = True
        watching.tell(partial(self._ended, job, broken=broken))

    def _ended(self, job: Job, *, broken: bool) -> None:
        job.end(broken=broken)
        self._forget()

    def _forget(self) -> None:
        """Keep so many that are over, the latest."""
        over = sorted((job for job in self._jobs.values() if job.state.over), key=lambda job: job.ended_s)
        for job in over[: max(0, len(over) - self._settings.what_if_keep)]:
            del self._jobs[job.id]
            self._forgotten[job.id] = None
            shutil.rmtree(job.folder, ignore_errors=True)
        while len(self._forgotten) > FORGOTTEN:
            del self._forgotten[next(iter(self._forgotten))]
