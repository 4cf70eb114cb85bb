"""Ctrl-C while solving: once for the best answer so far, twice to give up."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from cpalloc.cli.failures import ExitCode

T = TypeVar("T")


class _Outcome(Generic[T]):
    """Runs a callable and keeps its result or its exception."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._done = threading.Event()
        self._value: T | None = None
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._value = self._work()
        except BaseException as error:
            self._error = error
        finally:
            self._done.set()

    def wait(self) -> T:
        self._done.wait()
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]


def interruptible(work: Callable[[threading.Event], T]) -> tuple[T, bool]:
    """Do a piece of work in a thread, so that the main one can hear Ctrl-C.

    Parameters
    ----------
    work : callable
        Called with an event; soon returns what it has once that is set.

    Returns
    -------
    tuple
        The result, and whether Ctrl-C was pressed. Pressed again, the process ends at once with 130.
    """
    cancel = threading.Event()
    outcome = _Outcome(lambda: work(cancel))
    thread = threading.Thread(target=outcome.run, name="solve", daemon=True)
    try:
        thread.start()
        return outcome.wait(), False
    except KeyboardInterrupt:
        cancel.set()
    try:
        print("interrupted: taking the best answer so far (again to give up)", file=sys.stderr)
        return outcome.wait(), True
    except KeyboardInterrupt:
        os._exit(ExitCode.INTERRUPTED)  # the solver's thread cannot be killed otherwise
