"""What of a sweep is drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from cpalloc.report.write import Study
from cpalloc.sim.measures import Comparison
from cpalloc.sim.sweep import Task, history_of


def study_of(comparison: Comparison, tasks: Sequence[Task]) -> Study:
    """Draw one seed of each scenario: the first that most of them have.

    Parameters
    ----------
    comparison : Comparison
        Of the tasks that are done.
    tasks : sequence of Task
        All of the sweep.
    """
    found = dict(zip(comparison.scenarios, comparison.seeds, strict=True))
    (seed, _), *_ = Counter(seed for seeds in found.values() for seed in seeds).most_common(1)
    shown = [task for task in tasks if task.seed == seed and seed in found.get(task.scenario.name, ())]
    histories = {task.scenario.name: history_of(task) for task in shown}
    # The timeline puts the same nodes side by side, so that another cluster stands in the tables only.
    nodes = next(iter(histories.values())).node_names
    same = {name: history for name, history in histories.items() if history.node_names == nodes}
    return Study(comparison, same)
