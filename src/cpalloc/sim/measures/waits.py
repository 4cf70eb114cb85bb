"""How long jobs waited, by class: until their first start, in all, and relative to their length."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cpalloc.metrics.fairness import JobClass
from cpalloc.sim.history import FloatArray, IntArray, JobEnd
from cpalloc.sim.measures.quantiles import Quantiles, quantiles
from cpalloc.sim.measures.view import CLASSES, BoolArray, View

SHORTEST_RUN_S = 600
"""Bound of the slowdown: shorter jobs count as this long."""


@dataclass(frozen=True, slots=True)
class GroupWaits:
    """Waits of a group of jobs in seconds: ``first`` until the first start, ``queued`` in all, requeues included."""

    first: Quantiles
    queued: Quantiles


@dataclass(frozen=True, slots=True)
class Waits:
    """Waits by class (policy section 1), of the largest gangs, and of all jobs; and the bounded slowdown.

    Jobs that only ever borrow are a group of their own: they wait for idle GPUs, not for their budget's turn, and among
    them are small ones without a minimum runtime that the definition of a debug job would take in.

    ``largest_gpus``: the largest gangs are those of at least so many GPUs, half of the largest one submitted.
    """

    debug: GroupWaits
    interactive: GroupWaits
    single_node: GroupWaits
    multi_node: GroupWaits
    large: GroupWaits
    borrowed: GroupWaits
    largest: GroupWaits
    all: GroupWaits
    largest_gpus: int
    slowdown: Quantiles


def first_waits(v: View) -> IntArray:
    """Seconds from submission to the first start, shape (J,); to the end of the history where there was none."""
    jobs = v.jobs
    return np.where(jobs.first_start_s >= 0, jobs.first_start_s, v.history.end_s) - jobs.submitted_s


def queued(v: View) -> IntArray:
    """Seconds in the queue in all, shape (J,): ``left − submitted − Σ runs``, so that every requeue counts."""
    ran = np.zeros(len(v.jobs.size), dtype=np.int64)
    np.add.at(ran, v.runs.job, v.runs.length_s)
    return v.jobs.left_s - v.jobs.submitted_s - ran


def slowdowns(v: View) -> FloatArray:
    """Bounded slowdown ``max(1, (left − submitted) / max(needed, 10 min))``, shape (J,).

    ``left − submitted`` is all waiting and running; ``needed`` the running a job needs at least. :func:`waits` leaves
    killed jobs out: they never get an answer.
    """
    response = v.jobs.left_s - v.jobs.submitted_s
    return np.maximum(1.0, response / np.maximum(v.jobs.needed_s, SHORTEST_RUN_S))


def waits(v: View) -> Waits:
    """Waits by class and slowdown of the jobs submitted after the warm-up."""
    jobs = v.jobs
    largest_gpus = -(-int(jobs.size[jobs.admitted].max(initial=0)) // 2)
    first, in_all = first_waits(v), queued(v)

    def group(chosen: BoolArray) -> GroupWaits:
        counted = chosen & jobs.fresh
        return GroupWaits(
            first=quantiles(first, jobs.first_start_s < 0, counted), queued=quantiles(in_all, ~jobs.gone, counted)
        )

    of = {name: group((jobs.job_class == i) & jobs.may_allocate) for i, name in enumerate(CLASSES)}
    killed = v.history.job_end == JobEnd.KILLED
    return Waits(
        debug=of[JobClass.DEBUG],
        interactive=of[JobClass.INTERACTIVE],
        single_node=of[JobClass.SINGLE_NODE],
        multi_node=of[JobClass.MULTI_NODE],
        large=of[JobClass.LARGE],
        borrowed=group(~jobs.may_allocate),
        largest=group(jobs.may_allocate & (jobs.size >= max(1, largest_gpus))),
        all=group(np.ones_like(jobs.admitted)),
        largest_gpus=largest_gpus,
        slowdown=quantiles(slowdowns(v), ~jobs.gone, jobs.fresh & ~killed),
    )
