"""The engine of this machine: a few processes, each of which takes one task after the other."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess

from cpalloc.sim.sweep.base import Ending, Outcome, Tell
from cpalloc.sim.sweep.limits import Limits
from cpalloc.sim.sweep.plan import Task
from cpalloc.sim.sweep.work import run_task

_LOOK_EVERY_S = 0.2
"""Between two looks at whether to stop."""

_DIED = "its process ended with exit code {}; {}"
_KILLED = "killed, perhaps for want of memory: try fewer workers, or less of a workload"


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class LocalEngine:
    """Runs tasks in processes of their own, started afresh (``spawn``), so that one that dies takes no other along.

    Parameters
    ----------
    workers : int, optional
        How many at once; default: one per core.
    limits : Limits, optional
        What each process is held to.
    patience_s : float
        How long tasks may take to stop; then their processes are ended, and they go without a checkpoint. Default:
        as long as it takes.
    """

    def __init__(
        self, workers: int | None = None, *, limits: Limits | None = None, patience_s: float = math.inf
    ) -> None:
        self._workers = workers or cores()
        self._limits = limits or Limits()
        self._patience_s = patience_s

    def map(self, tasks: Sequence[Task], stop: threading.Event, tell: Tell) -> Iterator[tuple[Task, Outcome]]:
        """See :class:`cpalloc.sim.sweep.base.Engine`."""
        waiting = deque(tasks)
        idle: list[_Worker] = []
        busy: dict[Connection, _Worker] = {}
        give_up_s = math.inf
        try:
            while True:
                if stop.is_set():
                    waiting.clear()
                    give_up_s = min(give_up_s, time.monotonic() + self._patience_s)
                    for worker in busy.values():
                        worker.stop()
                if time.monotonic() >= give_up_s:
                    for worker in busy.values():
                        yield worker.task, Outcome(Ending.INTERRUPTED)
                    return
                while waiting and len(busy) < self._workers:
                    worker = idle.pop() if idle else _Worker(self._limits)
                    worker.take(waiting.popleft())
                    busy[worker.pipe] = worker
                if not busy:
                    return
                for pipe in wait(list(busy), _LOOK_EVERY_S):
                    worker = busy[pipe]  # type: ignore[index]
                    task, said = worker.task, worker.hear()
                    if isinstance(said, float):
                        tell(task, said)
                        continue
                    del busy[worker.pipe]
                    if worker.process.is_alive():
                        idle.append(worker)
                    yield task, said
        finally:
            for worker in (*busy.values(), *idle):
                worker.end()


@dataclass(frozen=True, slots=True)
class _Stop:
    """Told to a worker: stop what you do."""


class _Worker:
    """A process at the other end of a pipe: tasks go there, floats (how far) and outcomes come back."""

    def __init__(self, limits: Limits) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process: SpawnProcess = context.Process(
            target=_serve, args=(theirs, limits), name="simulation", daemon=True
        )
        self.process.start()
        theirs.close()  # so that the pipe ends when the process does
        self._stopping = False

    def take(self, task: Task) -> None:
        self.task = task
        self._send(task)

    def stop(self) -> None:
        if not self._stopping:
            self._stopping = True
            self._send(_Stop())

    def hear(self) -> float | Outcome:
        """What it says next; that it has died is an outcome, too."""
        try:
            said: float | Outcome = self.pipe.recv()
            return said
        except (EOFError, OSError):
            self.process.join()
            code = self.process.exitcode
            why = _KILLED if code == -signal.SIGKILL else "see what it wrote above, if anything"
            return Outcome(Ending.FAILED, message=_DIED.format(code, why))

    def end(self) -> None:
        self.pipe.close()
        self.process.terminate()
        self.process.join()

    def _send(self, message: Task | _Stop) -> None:
        try:
            self.pipe.send(message)
        except OSError:
            return  # it has died; hearing tells


def _serve(pipe: Connection, limits: Limits) -> None:
    """Take tasks until the pipe ends, or stopping is asked for."""
    limits.apply()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is heard by the parent, who says when to stop
    stopped = False

    def report(fraction: float) -> bool:
        nonlocal stopped
        pipe.send(fraction)
        if pipe.poll():
            stopped = isinstance(pipe.recv(), _Stop) or stopped
        return not stopped

    while True:
        try:
            task = pipe.recv()
        except EOFError:
            return
        if isinstance(task, _Stop):
            return
        pipe.send(run_task(task, report))
