"""One model solved: by searches that are good at different models, of which the first that is done stops the others."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from threading import Event, Thread
from typing import Protocol

from ortools.sat.python import cp_model

from cpalloc.models.variables import Linear
from cpalloc.problem.problem import Options
from cpalloc.solver.cp_sat import CpSat
from cpalloc.solver.highs import Highs
from cpalloc.solver.outcome import Run, Status

log = logging.getLogger(__name__)

MOST_VARIABLES = 15_000
"""Variables up to which HiGHS takes part: on larger models it has gone on for 9 s after it was told to stop."""


LOOK_S = 0.02
"""Seconds after which somebody looks whether the caller wants no more."""


class Search(Protocol):
    """Somebody who solves a model, in a thread of its own, and can be stopped from another."""

    def solve(self) -> Run:
        """Solve, and say what was found."""
        ...

    def stop(self) -> None:
        """Give up soon; may be said again and again."""
        ...

    def may_be_left(self) -> bool:
        """Whether it needs nothing any more that its caller may change, so that nobody has to wait until it stops."""
        ...


def minimise(
    model: cp_model.CpModel,
    objective: Linear,
    *,
    options: Options,
    limit_s: float,
    hint: Sequence[tuple[cp_model.IntVar, int]] = (),
    most: int | None = None,
    presolve: bool = True,
    cancel: Event | None = None,
) -> Run:
    """Minimise an expression over a model.

    With two workers or more, and not deterministic, single-threaded searches race, and whichever proves its answer
    stops the others: CP-SAT working upwards from the bound, HiGHS where the model is not too large, and CP-SAT
    improving the known solution in its place, or with three workers. Alone, the last of these must do.

    Parameters
    ----------
    hint
        Values of the deciding variables in a known solution.
    most
        What the optimum is at most, as far as that is known: it helps HiGHS to prune, and others it does not.
    limit_s
        Seconds, or units of deterministic time in deterministic mode.
    presolve
        False where the answer is to be sure that there is no solution: without presolve, and without HiGHS, whose
        arithmetic is not exact.

    Raises
    ------
    ModelInvalid
        When CP-SAT refuses the model: a bug of ours.
    """
    model.clear_hints()  # type: ignore[no-untyped-call]
    model.clear_objective()  # type: ignore[no-untyped-call]
    model.minimize(objective)
    racing = options.workers > 1 and not options.deterministic
    searches: list[Search] = []
    if racing:
        searches.append(CpSat(model, options, limit_s, presolve=presolve, upwards=True))
    highs = racing and presolve and len(model.proto.variables) <= MOST_VARIABLES
    if highs:
        searches.append(Highs(model, limit_s, most=most))
    if not highs or options.workers > 2:
        known = model.clone() if racing else model  # the hint stays in it, and is for this search alone
        searches.append(CpSat(known, options, limit_s, hint=hint, presolve=presolve))
    try:
        with _Watch(searches, cancel):
            return _best(_race(searches, limit_s, cancel) if len(searches) > 1 else [searches[0].solve()])
    finally:
        model.clear_hints()  # type: ignore[no-untyped-call]


_PROVED = (Status.OPTIMAL, Status.INFEASIBLE)


def _race(searches: Sequence[Search], limit_s: float, cancel: Event | None = None) -> list[Run]:
    """Solve in one thread each; once one has nothing left to find, the others are told to stop until they have, or
    may be left to themselves.

    So are all of them once the limit is over, or the caller wants no more: not everybody looks often enough.
    """
    until = time.perf_counter() + limit_s
    pool = ThreadPoolExecutor(len(searches))
    running = [pool.submit(search.solve) for search in searches]
    pool.shutdown(wait=False)
    settled = False
    while any(not (f.done() or (settled and s.may_be_left())) for s, f in zip(searches, running, strict=True)):
        left_s = 0.005 if settled else max(0.0, until - time.perf_counter())
        wait([f for f in running if not f.done()], timeout=min(left_s, LOOK_S), return_when=FIRST_COMPLETED)
        settled = any(_ends(f) for f in running) or time.perf_counter() > until
        settled |= cancel is not None and cancel.is_set()
        for search, future in zip(searches, running, strict=True):
            if settled and not future.done():
                # Again and again: a search that has not begun yet may forget that it was told to stop.
                search.stop()
    return [f.result() if f.done() else _left(s, f) for s, f in zip(searches, running, strict=True)]


def _left(search: Search, running: Future[Run]) -> Run:
    """What is known of a search that is left to itself: nothing. It is told to stop until it has."""

    def insist() -> None:
        while not running.done():
            search.stop()
            wait([running], timeout=LOOK_S)
        if running.exception() is not None:
            log.error("a search that was left to itself failed", exc_info=running.exception())

    Thread(target=insist, daemon=True).start()
    return Run(Status.UNKNOWN)


def _ends(search: Future[Run]) -> bool:
    """Whether a search leaves the others nothing to find, or failed."""
    return search.done() and (search.exception() is not None or search.result().status in _PROVED)


def _best(runs: Sequence[Run]) -> Run:
    """A proved run if there is one, else the better solution, always with the better bound."""
    deterministic = sum(run.deterministic for run in runs)
    proved = [run for run in runs if run.status is Status.OPTIMAL]
    if not any(run.found for run in runs):
        proved = [run for run in runs if run.status is Status.INFEASIBLE]
    if proved:
        return replace(proved[0], deterministic=deterministic)
    best = min(runs, key=lambda run: (run.objective is None, run.objective or 0))
    bounded = [run for run in runs if run.bound is not None]
    if bounded:
        sharpest = max(bounded, key=lambda run: run.bound or 0)
        best = replace(best, bound=sharpest.bound, source=sharpest.source)
    return replace(best, deterministic=deterministic)


class _Watch:
    """Stops searches when an event is set; does nothing without an event."""

    def __init__(self, searches: Sequence[Search], event: Event | None) -> None:
        self._searches, self._event, self._done = searches, event, Event()
        self._thread: Thread | None = None

    def __enter__(self) -> None:
        if self._event is not None:
            self._thread = Thread(target=self._look, args=(self._event,), daemon=True)
            self._thread.start()

    def _look(self, event: Event) -> None:
        while not self._done.wait(LOOK_S):
            if event.is_set():
                # Again and again: a search that has not begun yet may forget that it was told to stop.
                for search in self._searches:
                    search.stop()

    def __exit__(self, *_: object) -> None:
        self._done.set()
        if self._thread is not None:
            self._thread.join()
