"""The engine of many machines: tasks on a Ray cluster, or on a local Ray where none is named."""

from __future__ import annotations

import importlib
import os
import threading
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from cpalloc.errors import InputError, Issue
from cpalloc.sim.sweep.base import Ending, Outcome, Tell
from cpalloc.sim.sweep.local import cores
from cpalloc.sim.sweep.plan import Task
from cpalloc.sim.sweep.work import run_task

_LOOK_EVERY_S = 0.5
"""Between two looks at the board, and at whether to stop."""


class RayEngine:
    """Runs each task as a Ray task of one CPU.

    The cluster's machines need cpalloc, and the same paths as this one (a shared file system): workloads are read, and
    results and checkpoints written there.

    Parameters
    ----------
    address : str, optional
        Of the cluster, as ``ray.init`` takes it; default: ``RAY_ADDRESS``, else a Ray on this machine that ends with
        the sweep.
    workers : int, optional
        CPUs of a Ray on this machine; default: one per core. A cluster has what it has.

    Raises
    ------
    InputError
        Code ``extra``, where Ray is not installed.
    """

    def __init__(self, address: str | None = None, workers: int | None = None) -> None:
        self._ray = _load_ray()
        self._address = address or os.environ.get("RAY_ADDRESS")
        self._workers = workers or cores()

    def map(self, tasks: Sequence[Task], stop: threading.Event, tell: Tell) -> Iterator[tuple[Task, Outcome]]:
        """See :class:`cpalloc.sim.sweep.base.Engine`."""
        ray = self._ray
        ours = not ray.is_initialized()
        if ours:
            self._connect()
        board = ray.remote(num_cpus=0)(_Board).remote()
        run = ray.remote(num_cpus=1, max_retries=1)(_run)
        refs = {run.remote(task, board): task for task in tasks}
        by_stem = {task.stem: task for task in tasks}
        try:
            while refs:
                if stop.is_set():
                    board.stop.remote()
                ended, _ = ray.wait(list(refs), timeout=_LOOK_EVERY_S)
                for stem, fraction in ray.get(board.take.remote()).items():
                    tell(by_stem[stem], fraction)
                for ref in ended:
                    yield refs.pop(ref), self._outcome(ref)
        finally:
            for ref in refs:
                ray.cancel(ref, force=True)
            if ours:
                ray.shutdown()

    def _connect(self) -> None:
        quiet = {"log_to_driver": False, "logging_level": "ERROR"}
        try:
            if self._address is None:
                self._ray.init(num_cpus=self._workers, include_dashboard=False, **quiet)
            else:
                self._ray.init(address=self._address, **quiet)
        except (ConnectionError, ValueError, RuntimeError) as error:
            message = (
                f"cannot be reached: {error}; check --address and RAY_ADDRESS, and that its Ray is of this version"
            )
            raise InputError([Issue("ray", self._address or "ray", message)]) from error

    def _outcome(self, ref: Any) -> Outcome:
        try:
            outcome: Outcome = self._ray.get(ref)
            return outcome
        except self._ray.exceptions.RayError as error:
            return Outcome(Ending.FAILED, message=f"{type(error).__name__}: {error}", details=traceback.format_exc())


class _Board:
    """An actor on which tasks write how far they are, and read whether to go on."""

    def __init__(self) -> None:
        self._fractions: dict[str, float] = {}
        self._stopped = False

    def report(self, stem: str, fraction: float) -> bool:
        """Write how far a task is."""
        self._fractions[stem] = fraction
        return not self._stopped

    def take(self) -> dict[str, float]:
        """What was written since the last time."""
        taken, self._fractions = self._fractions, {}
        return taken

    def stop(self) -> None:
        """Let all tasks stop."""
        self._stopped = True


def _run(task: Task, board: Any) -> Outcome:
    ray = _load_ray()
    Path(task.folder).mkdir(parents=True, exist_ok=True)

    def report(fraction: float) -> bool:
        answer: bool = ray.get(board.report.remote(task.stem, fraction))
        return answer

    return run_task(task, report)


def _load_ray() -> Any:
    try:
        return importlib.import_module("ray")
    except ImportError:
        message = "is not installed; pip install 'cpalloc[ray]', or use the local engine"
        raise InputError([Issue("extra", "ray", message)]) from None
