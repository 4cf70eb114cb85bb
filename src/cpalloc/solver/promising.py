"""In which order blocked jobs are given their promises: the one with the least delay in all.

Promises share no GPU, so that whoever is promised first may cost the others hours. By rank alone a gang can lose its
rack to a single GPU's job that would have found room elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import permutations

from cpalloc.metrics.reservations import reserve
from cpalloc.models.objectives.delay import delay_of
from cpalloc.problem.problem import Decision, Hold, Problem

MOST_PERMUTED = 4
"""Jobs of which every order is tried; of more, only neighbours change places."""


def best_order(problem: Problem, decision: Decision, kept: Sequence[Hold], jobs: Sequence[int]) -> tuple[int, ...]:
    """Order of ``jobs`` whose promises delay least; that by rank where nothing is gained.

    Parameters
    ----------
    kept
        Promises that stand and are renewed before any of ``jobs``.
    jobs
        The blocked jobs, best rank first.
    """
    renewed = {h.job for h in kept}
    best = tuple(job for job in jobs if job not in renewed)
    first = tuple(job for job in jobs if job in renewed)
    least = _delay(problem, decision, kept, best)
    if least is None or len(best) < 2:
        return first + best
    alone = [_delay(problem, decision, kept, [job]) for job in best]
    if None not in alone and least <= sum(delay or 0 for delay in alone):
        return first + best  # everybody is promised what it would be promised alone
    for order in _orders(best):
        delay = _delay(problem, decision, kept, order)
        if delay is not None and delay < least:
            best, least = order, delay
    return first + best


def _orders(jobs: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    if len(jobs) <= MOST_PERMUTED:
        yield from permutations(jobs)
        return
    for i in range(len(jobs) - 1):
        yield (*jobs[:i], jobs[i + 1], jobs[i], *jobs[i + 2 :])


def _delay(problem: Problem, decision: Decision, kept: Sequence[Hold], order: Sequence[int]) -> int | None:
    """GPU-seconds of delay of the jobs; None where not all of them are considered in that order."""
    holds, considered = reserve(problem, decision, kept=kept, jobs=order)
    if not set(order) <= set(considered):
        return None
    promised = replace(decision, reservations=holds, blocked=considered)
    return sum(delay_of(problem, promised, j) for j in order)
