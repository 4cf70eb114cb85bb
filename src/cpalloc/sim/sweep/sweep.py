"""Run all tasks that are not done yet, and gather the results."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from cpalloc.errors import InputError, Issue
from cpalloc.sim.interrupt import heard
from cpalloc.sim.measures.summary import Summary
from cpalloc.sim.sweep.base import Ending, Engine, Outcome, Watch
from cpalloc.sim.sweep.compared import by_scenario
from cpalloc.sim.sweep.plan import Task
from cpalloc.sim.sweep.results import result_of


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep leaves: the summaries of what is done, by scenario, and what failed.

    ``interrupted``: it was stopped before everything was tried.
    """

    summaries: dict[str, tuple[Summary, ...]]
    failed: tuple[tuple[Task, Outcome], ...]
    interrupted: bool


def sweep(
    tasks: Sequence[Task], engine: Engine, *, watch: Watch | None = None, cancel: threading.Event | None = None
) -> Swept:
    """Run tasks that are not done.

    Results are in the tasks' folder as soon as a task ends; the same call goes on where an earlier one was stopped.

    Parameters
    ----------
    tasks : sequence of Task
        From :func:`cpalloc.sim.sweep.plan.plan`.
    cancel : threading.Event, optional
        Stops what runs, with checkpoints, once it is set; so does Ctrl-C in the main thread (again: at once).

    Raises
    ------
    InputError
        When the folder cannot be written to.
    """
    for folder in {task.folder for task in tasks}:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError([Issue("file", str(folder), f"cannot be made: {error.strerror}")]) from None
    done = {task.stem: found for task in tasks if (found := result_of(task)) is not None}
    left = [task for task in tasks if task.stem not in done]
    if watch:
        watch.began(len(tasks), len(done))
    failed: list[tuple[Task, Outcome]] = []
    with heard(cancel or threading.Event(), listen=True) as stop:
        for task, outcome in engine.map(left, stop, watch.moved if watch else _nobody):
            if outcome.ending is Ending.FAILED:
                failed.append((task, outcome))
            elif outcome.ending is Ending.FINISHED and (found := result_of(task)) is not None:
                done[task.stem] = found
            if watch:
                watch.ended(task, outcome)
    return Swept(by_scenario(tasks, done), tuple(failed), interrupted=len(done) + len(failed) < len(tasks))


def _nobody(_task: Task, _fraction: float) -> None:
    """Nobody watches."""
