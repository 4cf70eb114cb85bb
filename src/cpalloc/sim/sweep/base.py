"""What every engine is: it takes tasks and yields how they ended, in whatever order they do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from cpalloc.errors import Issue
from cpalloc.sim.sweep.plan import Task

Tell = Callable[[Task, float], None]
"""Told how far a task is, 0 … 1."""


class Ending(StrEnum):
    """How a task ended."""

    FINISHED = "finished"
    """Its result is in the folder."""
    INTERRUPTED = "interrupted"
    """Stopped before its end; what there is of it is in its checkpoint."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a task ended: after ``seconds`` of wall clock, and why where it failed.

    ``issues``: of bad input; ``details``: the traceback of anything else.
    """

    ending: Ending
    seconds: float = 0.0
    message: str = ""
    issues: tuple[Issue, ...] = ()
    details: str = ""


class Engine(Protocol):
    """Runs tasks somewhere. All of them can read the workloads' files and write to the tasks' folder."""

    def map(self, tasks: Sequence[Task], stop: threading.Event, tell: Tell) -> Iterator[tuple[Task, Outcome]]:
        """Run tasks.

        Parameters
        ----------
        stop : threading.Event
            Once it is set, tasks that run stop at their next instant and write their checkpoints, others don't begin.
        tell : callable
            Called from time to time, in this thread.

        Yields
        ------
        tuple of Task and Outcome
            As they end. Where ``stop`` was set, those that had not begun may be left out.
        """
        ...


class Watch(Protocol):
    """Sees a sweep: how many tasks there are, how far each is, how they end."""

    def began(self, tasks: int, done: int) -> None:
        """So many tasks in all, of which ``done`` were done already."""
        ...

    def moved(self, task: Task, fraction: float) -> None:
        """A task that runs is so far."""
        ...

    def ended(self, task: Task, outcome: Outcome) -> None:
        """A task has ended."""
        ...
