"""One round, from a problem to a solution: greedy first, then tier by tier."""

from __future__ import annotations

import time
from threading import Event

from cpalloc.problem.problem import Problem
from cpalloc.solver.greedy import greedy
from cpalloc.solver.results import Clock, Solution
from cpalloc.solver.strict import StrictOrder

GREEDY_SHARE = 0.9
"""Part of the time that the greedy may take; only with too little time for a large cluster does it need that."""

LENT_TO_GREEDY = 0.25
"""Part of what is kept back for later that it may take as well: no bound is worth a decision cut short."""

AFTER_S = 1.1e-4
"""Seconds a job that are kept back for what comes after the tiers: the guard, reasons, measures and decoding."""

AFTER_COMPILING = 2.8
"""The same in times what compiling took, where that is more: a machine that is slow now is slow then."""


def solve_problem(problem: Problem, *, began: float | None = None, cancel: Event | None = None) -> Solution:
    """Solve a problem within its options' limit, counted from ``began`` (``time.perf_counter``)."""
    options, now = problem.options, time.perf_counter()
    began = now if began is None else began
    after = 0.02 + max(AFTER_S * len(problem.jobs), AFTER_COMPILING * (now - began))
    kept = min(after, options.time_limit_s / 2)
    limit = options.time_limit_s * 0.97 - kept
    if options.deterministic:
        limit = options.deterministic_limit if options.deterministic_limit > 0 else options.time_limit_s
    clock = Clock(limit, began)

    def halted() -> bool:
        return cancel is not None and cancel.is_set()

    latest = began + GREEDY_SHARE * limit + LENT_TO_GREEDY * kept

    def late() -> bool:
        return not options.deterministic and time.perf_counter() > latest

    return StrictOrder(problem, clock, [greedy(problem, halted, late)], cancel).solve()
