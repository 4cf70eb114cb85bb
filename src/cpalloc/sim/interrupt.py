"""Ctrl-C while simulating: once to stop where nothing is half done, twice to stop at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def heard(stop: threading.Event, *, listen: bool) -> Iterator[threading.Event]:
    """Set ``stop`` at the first Ctrl-C, if asked to listen and where Python's own handler would be called."""
    own = signal.getsignal(signal.SIGINT)
    if not listen or own is not signal.default_int_handler or threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def hear(_number: int, _frame: FrameType | None) -> None:
        stop.set()
        signal.signal(signal.SIGINT, own)

    signal.signal(signal.SIGINT, hear)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, own)
