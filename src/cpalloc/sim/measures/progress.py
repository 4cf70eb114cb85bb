"""What became of the GPU-hours held: progress that survived, progress lost, restarts; and what interrupted it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cpalloc.sim.history import IntArray, JobEnd, RunEnd
from cpalloc.sim.measures.capacity import share
from cpalloc.sim.measures.steps import HOUR_S
from cpalloc.sim.measures.view import BoolArray, View


@dataclass(frozen=True, slots=True)
class Progress:
    """Where the GPU-hours held went: ``held = useful + lost + restart``, exactly.

    Attributes
    ----------
    useful_gpu_hours
        Σ GPUs × progress that survived (up to the end of the history).
    lost_gpu_hours
        Σ GPUs × (progress reached at the end of a run − what survives it), earlier progress of the job that is lost
        with it included; ``lost_by_*`` says what ended the run.
    restart_gpu_hours
        Σ GPUs × seconds spent on restarting.
    useful_share
        useful / held; None where nothing was held.
    """

    held_gpu_hours: float
    useful_gpu_hours: float
    lost_gpu_hours: float
    lost_by_preemption_gpu_hours: float
    lost_by_drain_gpu_hours: float
    lost_by_failure_gpu_hours: float
    lost_by_timeout_gpu_hours: float
    restart_gpu_hours: float
    useful_share: float | None


@dataclass(frozen=True, slots=True)
class Interruptions:
    """How often runs were ended before their time, and in how many rounds the policy preempted."""

    preemptions: int
    preempted_gpus: int
    rounds_with_preemptions: int
    drained: int
    failed: int


@dataclass(frozen=True, slots=True)
class JobCounts:
    """How the jobs stand at the end. ``work_done_gpu_hours``: Σ GPUs × work of the jobs that are done."""

    submitted: int
    waiting: int
    running: int
    done: int
    timed_out: int
    killed: int
    never_fits: int
    not_submitted: int
    work_done_gpu_hours: float


def progress(v: View) -> Progress:
    """Where the held GPU-hours went, over the runs that ended after the warm-up."""
    runs, end = v.runs, v.history.runs.end
    size = np.where(runs.counts, runs.size, 0)
    lost = size * (runs.reached_s - runs.saved_s)
    held, useful = _hours(size * runs.length_s), _hours(size * (runs.saved_s - runs.before_s))
    return Progress(
        held_gpu_hours=held,
        useful_gpu_hours=useful,
        lost_gpu_hours=_hours(lost),
        lost_by_preemption_gpu_hours=_hours(lost[end == RunEnd.PREEMPTED]),
        lost_by_drain_gpu_hours=_hours(lost[end == RunEnd.DRAINED]),
        lost_by_failure_gpu_hours=_hours(lost[end == RunEnd.LOST]),
        lost_by_timeout_gpu_hours=_hours(lost[end == RunEnd.TIMED_OUT]),
        restart_gpu_hours=_hours(size * runs.restart_s),
        useful_share=share(useful, held),
    )


def interruptions(v: View) -> Interruptions:
    """Preemptions and other interruptions."""
    end = np.where(v.runs.counts, v.history.runs.end, RunEnd.OPEN)
    rounds = v.history.rounds
    preempted: BoolArray = end == RunEnd.PREEMPTED
    return Interruptions(
        preemptions=int(preempted.sum()),
        preempted_gpus=int(v.runs.size[preempted].sum()),
        rounds_with_preemptions=int(np.count_nonzero(rounds.preempted[rounds.at_s >= v.from_s])),
        drained=int(np.count_nonzero(end == RunEnd.DRAINED)),
        failed=int(np.count_nonzero(end == RunEnd.LOST)),
    )


def job_counts(v: View) -> JobCounts:
    """How many jobs stand how at the end of the history, and the work of those that are done."""
    end = v.history.job_end
    count = np.bincount(end, minlength=len(JobEnd))
    done = end == JobEnd.DONE
    return JobCounts(
        submitted=int(len(end) - count[JobEnd.NOT_SUBMITTED]),
        waiting=int(count[JobEnd.WAITING]),
        running=int(count[JobEnd.RUNNING]),
        done=int(count[JobEnd.DONE]),
        timed_out=int(count[JobEnd.TIMED_OUT]),
        killed=int(count[JobEnd.KILLED]),
        never_fits=int(count[JobEnd.NEVER_FITS]),
        not_submitted=int(count[JobEnd.NOT_SUBMITTED]),
        work_done_gpu_hours=_hours(v.jobs.size[done] * v.jobs.work_s[done]),
    )


def _hours(gpu_seconds: IntArray) -> float:
    return int(gpu_seconds.sum()) / HOUR_S
