"""One what-if from the queue to its end. All of it belongs to the event loop; the thread that sweeps only calls in."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from cpalloc.api.what_if.documents import Links, MissingRun, State, WhatIfProgress, WhatIfRun, WhatIfStatus
from cpalloc.api.what_if.inline import Origins
from cpalloc.schema.types import format_instant

if TYPE_CHECKING:
    from cpalloc.sim.sweep import Outcome, Task

PATH = "/v1/what-if"

_STATES = {"finished": State.DONE, "interrupted": State.CANCELLED, "failed": State.FAILED}
_STEPS = 1_000
"""A change of the whole's progress by one part in so many is worth telling."""


@dataclass(slots=True, kw_only=True, eq=False)
class Job:
    """A what-if.

    Attributes
    ----------
    folder
        Has its inputs and results; gone once it is forgotten.
    stop
        Set to cancel it.
    sweeping
        The work of its thread.
    change
        Set at the next change, and then another one takes its place.
    over
        Set at the end.
    ended
        Runs that have ended by their labels, in that order, and how.
    ended_s
        When all of it ended, of the monotonic clock.
    """

    id: str
    title: str
    tasks: tuple[Task, ...]
    origins: Origins
    folder: Path
    state: State = State.QUEUED
    stop: threading.Event = field(default_factory=threading.Event)
    sweeping: Future[None] | None = None
    change: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)
    ended: dict[str, tuple[Task, Outcome]] = field(default_factory=dict)
    ended_s: float = 0.0
    _created: datetime = field(default_factory=lambda: datetime.now(UTC).replace(microsecond=0))
    _fractions: dict[str, float] = field(default_factory=dict)
    _told: int = 0
    _began_s: float | None = None

    def begin(self) -> None:
        """It has a thread now."""
        self.state = State.RUNNING
        self._began_s = time.monotonic()
        self._tell()

    def moved(self, task: Task, fraction: float) -> None:
        """A run is so far."""
        first = task.label not in self._fractions
        self._fractions[task.label] = fraction
        steps = int(self.fraction * _STEPS)
        if first or steps != self._told:
            self._told = steps
            self._tell()

    def run_ended(self, task: Task, outcome: Outcome) -> None:
        """A run has ended."""
        self.ended[task.label] = (task, outcome)
        self._tell()

    def end(self, *, broken: bool = False) -> None:
        """Nothing more happens: it was cancelled, all runs were tried, or it broke."""
        if self.state.over:
            return
        self.ended_s = time.monotonic()
        tried = self.count(State.DONE) + self.count(State.FAILED) == len(self.tasks)
        if not tried and not broken:
            self.state = State.CANCELLED
        else:
            self.state = State.DONE if self.count(State.DONE) and not broken else State.FAILED
        self.over.set()
        self._tell()

    def _tell(self) -> None:
        self.change.set()
        self.change = asyncio.Event()

    def count(self, state: State) -> int:
        """How many runs have ended so."""
        return sum(_STATES[outcome.ending] is state for _, outcome in self.ended.values())

    @property
    def fraction(self) -> float:
        """How far all of it is, 0 … 1."""
        return sum(map(self._fraction_of, self.tasks)) / len(self.tasks)

    @property
    def seconds(self) -> float:
        """How long it has run."""
        if self._began_s is None:
            return 0.0
        return (self.ended_s or time.monotonic()) - self._began_s

    def progress(self) -> WhatIfProgress:
        """Say how far it is."""
        return WhatIfProgress(**self._numbers())

    def status(self) -> WhatIfStatus:
        """Say how far it is, run by run."""
        return WhatIfStatus(**self._numbers(), runs=tuple(map(self.run, self.tasks)))

    def run(self, task: Task) -> WhatIfRun:
        """Say how far a run is, or how it ended."""
        state = self._state_of(task)
        reached = 1.0 if state is State.DONE else self._fractions.get(task.label, 0.0)
        run = WhatIfRun(
            scenario=task.scenario.name,
            seed=task.seed,
            state=state,
            simulated_s=round(reached * (task.scenario.until or 0)),
        )
        if task.label not in self.ended:
            return run
        _, outcome = self.ended[task.label]
        told = {
            "seconds": round(outcome.seconds, 3),
            "message": self.origins.text(outcome.message) or None,
            "issues": tuple(map(self.origins.issue, outcome.issues)),
        }
        return run.model_copy(update=told)

    def missing(self) -> list[MissingRun]:
        """Name the runs without a result."""
        states = [(task, self._state_of(task)) for task in self.tasks]
        return [
            MissingRun(scenario=task.scenario.name, seed=task.seed, state=state)
            for task, state in states
            if state is not State.DONE
        ]

    def _fraction_of(self, task: Task) -> float:
        if self._state_of(task) in (State.DONE, State.FAILED):
            return 1.0
        return self._fractions.get(task.label, 0.0)

    def _state_of(self, task: Task) -> State:
        if task.label in self.ended:
            return _STATES[self.ended[task.label][1].ending]
        if self.state.over:
            return State.CANCELLED
        return State.RUNNING if task.label in self._fractions else State.QUEUED

    def _numbers(self) -> dict[str, object]:
        here = f"{PATH}/{self.id}"
        return {
            "id": self.id,
            "title": self.title,
            "state": self.state,
            "total": len(self.tasks),
            "done": self.count(State.DONE),
            "failed": self.count(State.FAILED),
            "fraction": round(self.fraction, 4),
            "seconds": round(self.seconds, 3),
            "created_at": format_instant(self._created),
            "links": Links(
                self=here, result=f"{here}/result", page=f"{here}/result?format=html", events=f"{here}/events"
            ),
        }


class Watching:
    """Tells a job, from the thread that sweeps, what happens to its runs; see :class:`cpalloc.sim.sweep.Watch`."""

    def __init__(self, job: Job, loop: asyncio.AbstractEventLoop) -> None:
        self._job = job
        self._loop = loop

    def tell(self, what: Callable[[], None]) -> None:
        """Have something done on the event loop."""
        try:
            self._loop.call_soon_threadsafe(what)
        except RuntimeError:  # the loop is closed: nobody is left to know
            self._job.stop.set()

    def began(self, tasks: int, done: int) -> None:
        """It has a thread, and begins."""
        self.tell(self._job.begin)

    def moved(self, task: Task, fraction: float) -> None:
        """A run is so far."""
        self.tell(lambda: self._job.moved(task, fraction))

    def ended(self, task: Task, outcome: Outcome) -> None:
        """A run has ended."""
        self.tell(lambda: self._job.run_ended(task, outcome))
