"""A small lab to sweep over, and what to compare of its results."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cpalloc.sim.history import History
from cpalloc.sim.measures.rounds import RoundCosts
from cpalloc.sim.measures.summary import Summary
from cpalloc.sim.scenario import Scenario
from cpalloc.sim.sweep import Outcome, Swept, Task, history_of, plan
from cpalloc.sim.sweep.base import Tell
from cpalloc.sim.sweep.work import run_task
from cpalloc.sim.what_if import parse_what_if
from sim.worlds import same

LAB = Path(__file__).parents[3] / "examples" / "small-lab.toml"


class Serial:
    """An engine that does one task after the other, here and now."""

    def map(self, tasks: Sequence[Task], stop: threading.Event, tell: Tell) -> Iterator[tuple[Task, Outcome]]:
        for task in tasks:
            if not stop.is_set():
                yield task, run_task(task, lambda _: not stop.is_set())


class Seen:
    """A watch that keeps what it sees, and does something when a task moves."""

    def __init__(self, moved: Any = None) -> None:
        self.counts = (0, 0)
        self.fractions: dict[str, list[float]] = {}
        self.endings: dict[str, str] = {}
        self._moved = moved

    def began(self, tasks: int, done: int) -> None:
        self.counts = (tasks, done)

    def moved(self, task: Task, fraction: float) -> None:
        self.fractions.setdefault(task.label, []).append(fraction)
        if self._moved is not None:
            self._moved(task, fraction)

    def ended(self, task: Task, outcome: Outcome) -> None:
        self.endings[task.label] = str(outcome.ending)


def scenarios(*changes: Mapping[str, Any], lab: Path = LAB, **base: Any) -> tuple[Scenario, ...]:
    """A base under ``priority`` for twelve hours, and changes."""
    given = {"workload": str(lab), "policy": "priority", "until": "12h", "round_interval": "1m", "seeds": "1-2"}
    return parse_what_if({"base": {**given, **base}, "scenario": list(changes)}).scenarios


def longer(folder: Path, days: int, name: str = "lab.toml") -> Path:
    """Write the lab with so many days."""
    path = folder / name
    path.write_text(LAB.read_text(encoding="utf-8").replace("days = 2", f"days = {days}"), encoding="utf-8")
    return path


def tasks_in(folder: Path, *changes: Mapping[str, Any], **base: Any) -> tuple[Task, ...]:
    return plan(scenarios(*changes, **base), folder)


def timeless(swept: Swept) -> dict[str, list[Summary]]:
    """Summaries without the seconds rounds took."""
    return {name: [_timeless(s) for s in runs] for name, runs in swept.summaries.items()}


def _timeless(summary: Summary) -> Summary:
    rounds: RoundCosts = replace(summary.rounds, seconds=None, total_s=0.0)  # type: ignore[arg-type]
    return replace(summary, rounds=rounds)


def same_histories(one: Sequence[Task], other: Sequence[Task]) -> bool:
    """Whether tasks in two folders came to the same."""
    pairs: list[tuple[History, History]] = [(history_of(a), history_of(b)) for a, b in zip(one, other, strict=True)]
    return all(same(a, b) and a.workload == b.workload for a, b in pairs)
