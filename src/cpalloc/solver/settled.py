"""Which preemptions are settled: the same in every decision within the limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from ortools.sat.python.cp_model import CpModel

from cpalloc.models.objectives import OBJECTIVES
from cpalloc.models.variables import ModelContext
from cpalloc.problem.problem import JobState, Problem
from cpalloc.solver.outcome import Run, Status

Known = tuple[frozenset[int], frozenset[int]]
"""Evictable jobs that stay, and those that are preempted, in every decision."""

MOST_SETS = 3
"""Sets of victims looked for at most."""


def settled(
    ctx: ModelContext,
    problem: Problem,
    victims: frozenset[int],
    solve: Callable[[CpModel], Run],
    bounds: Sequence[int | None] = (),
    most_sets: int = MOST_SETS,
) -> Known | None:
    """Evictable jobs that every solution of a model keeps, and those that every one preempts.

    Other sets of victims than the one known are looked for, one after the other. What the model has no variable for is
    kept.

    Parameters
    ----------
    solve
        Looks for any solution of a model.
    bounds
        What the parts of ``preemption`` are at least, where that is known: a set that is less stands for no decision.
    most_sets
        Sets looked for, the one known included; where there are more, nothing is settled.

    Returns
    -------
    stays, gone
        None where that could not be told.
    """
    sets, model = [victims], ctx.model.clone()
    for expression, bound in zip(ctx.term(OBJECTIVES["preemption"]), bounds, strict=False):
        if bound is not None and not isinstance(expression, int):
            model.add(expression >= bound)
    for _ in range(most_sets):
        model.add_bool_or([v.negated() if j in sets[-1] else v for j, v in ctx.e.items()])
        run = solve(model)
        if run.status is Status.INFEASIBLE:
            every, some = frozenset.intersection(*sets), frozenset.union(*sets)
            return frozenset(np.flatnonzero(problem.jobs.state == JobState.EVICTABLE).tolist()) - some, every
        if not run.found:
            return None
        sets.append(frozenset(j for j, v in ctx.e.items() if run.value(v)))
    return None
