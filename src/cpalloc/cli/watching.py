"""What a person sees of simulations that run: bars on a terminal, lines elsewhere; all on standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from cpalloc.sim.config import Progress as SimProgress
    from cpalloc.sim.sweep import Outcome, Task, Watch


@contextmanager
def watching_one(what: str) -> Iterator[Callable[[SimProgress], None] | None]:
    """Show how far one simulation is; nothing where standard error is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    with _progress() as bars:
        bar = bars.add_task(what, total=1.0, note="")

        def tell(now: SimProgress) -> None:
            note = f"day {now.now_s / 86_400:.1f}, {now.rounds:,} rounds, {now.pending:,} waiting"
            bars.update(bar, completed=now.fraction, note=note)

        yield tell


@contextmanager
def watching_many() -> Iterator[Watch]:
    """Show a sweep: a bar per simulation that runs and one for all of them, or a line for each that has ended."""
    if not sys.stderr.isatty():
        yield _Lines()
        return
    with _progress() as bars:
        yield _Bars(bars)


@contextmanager
def watching_there() -> Iterator[Callable[[str, Mapping[str, Any]], None]]:
    """Show the events of a what-if at a service: one bar for all of it, or a line for each run that has ended."""
    if not sys.stderr.isatty():
        ended = 0

        def tell(name: str, data: Mapping[str, Any]) -> None:
            nonlocal ended
            if name == "status":
                ended = sum(run["state"] not in ("queued", "running") for run in data["runs"])
            elif name == "run":
                ended += 1
                _say(f"{ended} {data['scenario']}, seed {data['seed']}: {data['state']} after {data['seconds']:.1f} s")

        yield tell
        return
    with _progress() as bars:
        bar = bars.add_task("all", total=1.0, note="")

        def show(name: str, data: Mapping[str, Any]) -> None:
            if name != "run":
                note = f"{data['done'] + data['failed']} of {data['total']}, {data['state']}"
                bars.update(bar, completed=data["fraction"], note=note)

        yield show


class _Bars:
    """See :class:`cpalloc.sim.sweep.Watch`."""

    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._all = bars.add_task("all", total=None, note="")
        self._running: dict[str, TaskID] = {}
        self._tasks = 0
        self._ended = 0

    def began(self, tasks: int, done: int) -> None:
        self._tasks, self._ended = tasks, done
        self._show()

    def moved(self, task: Task, fraction: float) -> None:
        if task.stem not in self._running:
            self._running[task.stem] = self._bars.add_task(task.label, total=1.0, note="")
        self._bars.update(self._running[task.stem], completed=fraction)
        self._show()

    def ended(self, task: Task, outcome: Outcome) -> None:
        self._ended += 1
        if task.stem in self._running:
            self._bars.remove_task(self._running.pop(task.stem))
        self._show()

    def _show(self) -> None:
        running = (bar for bar in self._bars.tasks if bar.id in self._running.values())
        part = sum(bar.completed for bar in running)
        self._bars.update(
            self._all, total=self._tasks, completed=self._ended + part, note=f"{self._ended} of {self._tasks}"
        )


class _Lines:
    """See :class:`cpalloc.sim.sweep.Watch`."""

    def __init__(self) -> None:
        self._tasks = 0
        self._ended = 0

    def began(self, tasks: int, done: int) -> None:
        self._tasks, self._ended = tasks, done
        if done:
            _say(f"{done} of {tasks} were done already")

    def moved(self, task: Task, fraction: float) -> None:
        """Only bars move."""

    def ended(self, task: Task, outcome: Outcome) -> None:
        self._ended += 1
        _say(f"{self._ended}/{self._tasks} {task.label}: {outcome.ending} after {outcome.seconds:.1f} s")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _progress() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}", style="dim", markup=False),
        console=Console(stderr=True),
        transient=True,
    )
