"""One task from beginning to end, wherever it runs."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable

from cpalloc.errors import InputError
from cpalloc.sim.config import Progress
from cpalloc.sim.run import run_scenario
from cpalloc.sim.sweep.base import Ending, Outcome
from cpalloc.sim.sweep.plan import Task
from cpalloc.sim.sweep.results import write_result

Report = Callable[[float], bool]
"""Told how far the task is, 0 … 1; answers whether to go on."""


def run_task(task: Task, report: Report) -> Outcome:
    """Run a task, from its checkpoint if there is one, and write its result; failures are told, not raised."""
    began = time.monotonic()
    if not report(0.0):
        return Outcome(Ending.INTERRUPTED)
    cancel = threading.Event()

    def progress(now: Progress) -> None:
        if not report(now.fraction):
            cancel.set()

    try:
        history = run_scenario(
            task.scenario, task.seed, progress=progress, cancel=cancel, checkpoint=task.checkpoint_path, resume=True
        )
        seconds = time.monotonic() - began
        if history.interrupted:
            return Outcome(Ending.INTERRUPTED, seconds)
        write_result(task, history, seconds)
    except InputError as error:
        return Outcome(Ending.FAILED, time.monotonic() - began, str(error), issues=error.issues)
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
        return Outcome(Ending.FAILED, time.monotonic() - began, message, details=traceback.format_exc())
    return Outcome(Ending.FINISHED, seconds)
