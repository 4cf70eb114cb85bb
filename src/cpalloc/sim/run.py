"""Run a scenario: read its workload, change it, and simulate it under the policy."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from cpalloc.errors import InputError, Issue
from cpalloc.schema import Budget
from cpalloc.sim.config import Progress
from cpalloc.sim.files import read_workload
from cpalloc.sim.history import History
from cpalloc.sim.policies.registry import make_policy
from cpalloc.sim.recipe import recipe_of
from cpalloc.sim.scale import scale_demand, scale_nodes, submitted_until
from cpalloc.sim.scenario import Scenario
from cpalloc.sim.simulate import simulate
from cpalloc.sim.workload import Workload


def run_scenario(
    scenario: Scenario,
    seed: int,
    *,
    progress: Callable[[Progress], None] | None = None,
    cancel: threading.Event | None = None,
    checkpoint: Path | None = None,
    resume: bool = False,
) -> History:
    """Run a scenario with one seed; the other arguments are those of :func:`cpalloc.sim.simulate.simulate`.

    Raises
    ------
    InputError
        When the workload cannot be read, changed or simulated.
    """
    return simulate(
        workload_of(scenario, seed),
        make_policy(scenario.policy, seed),
        config=scenario.config(seed),
        progress=progress,
        cancel=cancel,
        checkpoint=checkpoint,
        resume=resume,
    )


def workload_of(scenario: Scenario, seed: int) -> Workload:
    """Read the workload of a scenario and change it: what is submitted, the demand, the nodes, the weights.

    Raises
    ------
    InputError
        When it cannot be read, or does not have what is to be changed.
    """
    source = scenario.workload
    workload = read_workload(
        source.path,
        seed=seed,
        format=source.format,
        nodes=source.nodes,
        gpus_per_node=source.gpus_per_node,
        recipe=None if source.recipe is None else recipe_of(source.recipe),
        events=source.events,
    )
    if scenario.submissions is not None:
        workload = submitted_until(workload, scenario.submissions)
    if scenario.demand is not None:
        workload = scale_demand(workload, scenario.demand, seed)
    if scenario.nodes is not None:
        workload = scale_nodes(workload, scenario.nodes)
    return reweigh(workload, scenario.weights) if scenario.weights else workload


def reweigh(workload: Workload, weights: Mapping[str, int]) -> Workload:
    """Give budgets other weights, in all budget trees of the workload that have them.

    Raises
    ------
    InputError
        Code ``unknown_budget``.
    """
    trees = (workload.budgets, *(change.budgets for change in workload.budget_changes))
    known = {budget.name: budget.weight for tree in reversed(trees) for budget in tree}
    issues = [
        Issue("unknown_budget", f"weights.{name}", f"is no budget of the workload; its budgets: {', '.join(known)}")
        for name in weights
        if name not in known
    ]
    if issues:
        raise InputError(issues)

    def changed(tree: tuple[Budget, ...]) -> tuple[Budget, ...]:
        return tuple(b.model_copy(update={"weight": weights.get(b.name, b.weight)}) for b in tree)

    words = ", ".join(f"{name} {known[name]} to {weight}" for name, weight in weights.items())
    return replace(
        workload,
        budgets=changed(workload.budgets),
        budget_changes=tuple(replace(c, budgets=changed(c.budgets)) for c in workload.budget_changes),
        notes=(*workload.notes, f"weights changed: {words}"),
    )
