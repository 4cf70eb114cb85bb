"""What a sweep has come to so far, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cpalloc.sim.measures import Comparison, compare
from cpalloc.sim.measures.summary import Summary
from cpalloc.sim.sweep.plan import Task
from cpalloc.sim.sweep.results import result_of


def done_of(tasks: Sequence[Task]) -> dict[str, tuple[Summary, ...]]:
    """Read the summaries of the tasks that are done, by scenario."""
    return by_scenario(tasks, {task.stem: found for task in tasks if (found := result_of(task)) is not None})


def by_scenario(tasks: Sequence[Task], done: Mapping[str, Summary]) -> dict[str, tuple[Summary, ...]]:
    """Sort summaries, by stem of their tasks, by scenario; one of which nothing is done has none."""
    names = dict.fromkeys(task.scenario.name for task in tasks)
    return {name: tuple(done[t.stem] for t in tasks if t.stem in done and t.scenario.name == name) for name in names}


def comparison_of(summaries: Mapping[str, Sequence[Summary]]) -> Comparison | None:
    """Compare what is done, to the base or else to the first scenario that has a result; None where nothing is."""
    done = {name: runs for name, runs in summaries.items() if runs}
    return compare(done) if done else None
