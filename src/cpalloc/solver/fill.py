"""Use what a decision leaves free, greedily: the model leaves out borrowed work until a tier minds it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cpalloc.problem.problem import Decision, Problem
from cpalloc.solver.greedy import lend, serve_beyond
from cpalloc.solver.placing import GreedyState
from cpalloc.solver.prune import prune


def filled(problem: Problem, decision: Decision, halted: Callable[[], bool] = bool) -> Iterator[Decision]:
    """The decision with what is left free lent, and before that given to allocated work beyond the entitlements.
    None once ``halted``."""
    for beyond in (True, False):
        state = GreedyState.after(problem, decision)
        if beyond:
            serve_beyond(state, halted)
        lend(state, halted)
        if halted():
            return
        yield prune(problem, state.result())
