"""Results on disk: a summary (JSON) and a history for each task, each written whole or not at all."""

from __future__ import annotations

import json
import os

from cpalloc.errors import InputError
from cpalloc.sim.history import History
from cpalloc.sim.keep import read_history, write_history
from cpalloc.sim.measures.summary import Summary, summary
from cpalloc.sim.sweep.plan import Task


def write_result(task: Task, history: History, seconds: float) -> None:
    """Write the history, then the summary: once that is there, the task is done.

    Parameters
    ----------
    seconds : float
        Wall clock the simulation took (since it was last resumed).
    """
    write_history(history, task.history_path)
    document = {
        "fingerprint": task.fingerprint,
        "seed": task.seed,
        "scenario": task.scenario.model_dump(mode="json", exclude={"seeds"}),
        "seconds": seconds,
        "summary": summary(history).to_dict(),
    }
    part = task.result_path.with_name(f"{task.result_path.name}.part")
    part.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    os.replace(part, task.result_path)


def result_of(task: Task) -> Summary | None:
    """Read the summary of a task; None where it is not done, or was done by a version that measured other things."""
    try:
        document = json.loads(task.result_path.read_text(encoding="utf-8"))
        if document["fingerprint"] != task.fingerprint or not task.history_path.exists():
            return None
        return Summary.from_dict(document["summary"])
    except (OSError, ValueError, KeyError, TypeError, InputError):
        return None


def history_of(task: Task) -> History:
    """Read the history of a task that is done.

    Raises
    ------
    InputError
        When the file is not there or cannot be read.
    """
    return read_history(task.history_path)
