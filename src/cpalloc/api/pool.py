"""The threads that solve: a bounded number of them, and a bounded queue before them."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from cpalloc.api.errors import BusyError, GoneError

T = TypeVar("T")


class Pool:
    """Runs work in threads; solving releases the GIL.

    All methods but the work itself belong to one event loop.

    Parameters
    ----------
    threads : int
        Pieces of work done at once.
    queue : int
        Pieces of work that may wait besides.
    """

    def __init__(self, *, threads: int, queue: int) -> None:
        self._threads = threads
        self._most = threads + queue
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="solve")
        self._in_hand: dict[asyncio.Future[Any], threading.Event] = {}
        self._closed = False
        self._last_seconds = 1.0

    def reopen(self) -> None:
        """Take work again after :meth:`close`; does nothing on an open pool."""
        if self._closed:
            self._executor = ThreadPoolExecutor(self._threads, thread_name_prefix="solve")
            self._closed = False

    @property
    def in_hand(self) -> int:
        """Pieces of work running or waiting."""
        return len(self._in_hand)

    @property
    def full(self) -> bool:
        """Whether more work would be refused."""
        return self._closed or self.in_hand >= self._most

    def refuse_if_full(self) -> None:
        """Raise :class:`BusyError` when there is no room for more."""
        if self.full:
            rounds_ahead = math.ceil(max(1, self.in_hand - self._threads + 1) / self._threads)
            raise BusyError(max(1, math.ceil(self._last_seconds * rounds_ahead)))

    async def run(self, work: Callable[[threading.Event], T], *, hung_up: Callable[[], Awaitable[object]]) -> T:
        """Do a piece of work, unless the client hangs up first.

        Parameters
        ----------
        work : callable
            Called in a thread with an event; returns soon once it is set.
        hung_up : callable
            Returns when the client is gone.

        Raises
        ------
        BusyError
            When the queue is full.
        GoneError
            When the client hung up; the work is cancelled.
        """
        self.refuse_if_full()
        cancel = threading.Event()
        job = self._executor.submit(self._timed, work, cancel)
        future = asyncio.wrap_future(job)
        self._in_hand[future] = cancel
        # the place is free when the thread is, not when the client stops waiting for it
        future.add_done_callback(self._finished)
        watch: asyncio.Future[Any] = asyncio.ensure_future(hung_up())
        try:
            await asyncio.wait({future, watch}, return_when=asyncio.FIRST_COMPLETED)
            if not future.done():
                raise GoneError
            return future.result()
        finally:
            watch.cancel()
            cancel.set()
            job.cancel()  # takes it out of the queue; has no effect once it runs

    def _finished(self, future: asyncio.Future[Any]) -> None:
        del self._in_hand[future]
        if not future.cancelled():
            future.exception()  # nobody may be left to look at it, and asyncio would complain

    def _timed(self, work: Callable[[threading.Event], T], cancel: threading.Event) -> T:
        if cancel.is_set():  # hung up while waiting
            raise GoneError
        began = time.monotonic()
        try:
            return work(cancel)
        finally:
            self._last_seconds = time.monotonic() - began

    async def close(self, *, patience_s: float = 10.0) -> None:
        """Cancel everything, take nothing more, and give the threads some time to notice."""
        self._closed = True
        for cancel in self._in_hand.values():
            cancel.set()
        self._executor.shutdown(wait=False, cancel_futures=True)
        if self._in_hand:
            await asyncio.wait(set(self._in_hand), timeout=patience_s)
