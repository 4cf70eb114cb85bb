"""A history made ready to be measured: one column per fact of its jobs and runs, worked out once for all measures."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from cpalloc.metrics.fairness import JobClass, job_class
from cpalloc.problem.problem import Mode
from cpalloc.schema import Node
from cpalloc.schema.types import JobKind
from cpalloc.sim.history import History, IntArray, JobEnd, RunEnd
from cpalloc.sim.measures.stays import Stays, stays_off_service
from cpalloc.sim.workload import WorkJob
from cpalloc.topology import Cluster

BoolArray = npt.NDArray[np.bool_]

CLASSES = tuple(JobClass)
"""Classes by number, as in :attr:`JobColumns.job_class`."""


@dataclass(frozen=True, slots=True)
class JobColumns:
    """One row per job of the workload, shape (J,) each.

    Attributes
    ----------
    size, leaf, submitted_s, work_s, needed_s
        GPUs; index into ``History.leaf_names``; instants and seconds. ``needed_s`` is the work, cut off at the timeout.
    may_allocate
        Whether it may ever be charged (``WorkJob.may_allocate``).
    admitted
        Submitted within the history, and not refused as something that never fits. All measures leave others out.
    fresh
        Admitted and submitted after the warm-up: those whose waits count.
    gone
        Whether it left for good (done, timed out or killed).
    left_s
        When it left for good; the end of the history while it has not.
    first_start_s
        -1 where it never started.
    job_class
        Index into :data:`CLASSES`, of the largest pool it accepts: the same under every policy.
    """

    size: IntArray
    leaf: IntArray
    submitted_s: IntArray
    work_s: IntArray
    needed_s: IntArray
    may_allocate: BoolArray
    admitted: BoolArray
    fresh: BoolArray
    gone: BoolArray
    left_s: IntArray
    first_start_s: IntArray
    job_class: IntArray


@dataclass(frozen=True, slots=True)
class RunColumns:
    """One row per run, shape (R,) each.

    Attributes
    ----------
    job, size, leaf, start_s, end_s
        Index of the job, its GPUs and leaf; runs still open end with the history.
    allocated
        Charged to the leaf; the others are borrowed.
    restart_s
        Seconds spent on restarting, at most the length of the run.
    before_s, reached_s, saved_s
        Progress of the job at the start, at the end (``before + length − restart``), and what survives the end.
    counts
        Whether it ended after the warm-up.
    """

    job: IntArray
    size: IntArray
    leaf: IntArray
    start_s: IntArray
    end_s: IntArray
    allocated: BoolArray
    restart_s: IntArray
    before_s: IntArray
    reached_s: IntArray
    saved_s: IntArray
    counts: BoolArray

    @property
    def length_s(self) -> IntArray:
        """Seconds each run held its GPUs."""
        return self.end_s - self.start_s


@dataclass(frozen=True, slots=True)
class View:
    """A history with its columns. ``nodes`` are in the order of ``Places.node``.

    ``off_service``: GPUs held on nodes that were not ready (draining), which count neither as in service nor as held.
    """

    history: History
    nodes: tuple[Node, ...]
    jobs: JobColumns
    runs: RunColumns
    off_service: Stays

    @property
    def from_s(self) -> int:
        """Where measuring begins: the end of the warm-up, at most the end of the history."""
        return measured_from_s(self.history)


def measured_from_s(history: History) -> int:
    """Start of the history plus its warm-up, at most its end."""
    return min(history.start_s + history.warm_up_s, history.end_s)


def view(history: History) -> View:
    """Work out the columns of a history."""
    nodes = Cluster.from_wire(history.workload.cluster).nodes
    jobs = _job_columns(history, nodes)
    runs = _run_columns(history, jobs)
    return View(history, nodes, jobs, runs, stays_off_service(history, nodes, runs.end_s))


def _job_columns(history: History, nodes: tuple[Node, ...]) -> JobColumns:
    jobs = history.workload.jobs
    leaf_of = {name: i for i, name in enumerate(history.leaf_names)}
    end = history.job_end
    work = _ints(job.work_s for job in jobs)
    timeout = _ints(job.timeout_s for job in jobs)
    first = np.full(len(jobs), -1, dtype=np.int64)
    started, row = np.unique(history.runs.job, return_index=True)
    first[started] = history.runs.start_s[row]
    gone = np.isin(end, (JobEnd.DONE, JobEnd.TIMED_OUT, JobEnd.KILLED))
    class_of = _classifier(nodes)
    submitted = _ints(job.submitted_s for job in jobs)
    admitted = ~np.isin(end, (JobEnd.NOT_SUBMITTED, JobEnd.NEVER_FITS))
    return JobColumns(
        size=_ints(job.size for job in jobs),
        leaf=_ints(leaf_of[job.budget] for job in jobs),
        submitted_s=submitted,
        work_s=work,
        needed_s=np.where(timeout < 0, work, np.minimum(work, timeout)),
        may_allocate=np.fromiter((job.may_allocate for job in jobs), dtype=np.bool_, count=len(jobs)),
        admitted=admitted,
        fresh=admitted & (submitted >= measured_from_s(history)),
        gone=gone,
        left_s=np.where(gone, history.finished_s, history.end_s),
        first_start_s=first,
        job_class=_ints(class_of(job) for job in jobs),
    )


def _run_columns(history: History, jobs: JobColumns) -> RunColumns:
    runs = history.runs
    is_open = runs.end == RunEnd.OPEN
    end = np.where(is_open, history.end_s, runs.end_s)
    length = end - runs.start_s
    restart = np.minimum(runs.restart_s, length)
    reached = runs.work_before_s + length - restart
    return RunColumns(
        job=runs.job,
        size=jobs.size[runs.job],
        leaf=jobs.leaf[runs.job],
        start_s=runs.start_s,
        end_s=end,
        allocated=runs.mode == Mode.ALLOCATED,
        restart_s=restart,
        before_s=runs.work_before_s,
        reached_s=reached,
        saved_s=np.where(is_open, reached, runs.work_saved_s),
        counts=end > measured_from_s(history),
    )


def _classifier(nodes: tuple[Node, ...]) -> Callable[[WorkJob], int]:
    """Make the function from a job to the number of its class; jobs of the same shape are looked up, not judged."""
    gpus: dict[str, int] = {}
    largest: dict[str, int] = {}
    for node in nodes:
        gpus[node.gpu_type] = gpus.get(node.gpu_type, 0) + node.gpus
        largest[node.gpu_type] = max(largest.get(node.gpu_type, 0), node.gpus)
    number = {name: i for i, name in enumerate(CLASSES)}

    @cache
    def class_of(
        replicas: int, gpus_per_replica: int, min_runtime_s: int, interactive: bool, types: tuple[str, ...] | None
    ) -> int:
        accepted = [t for t in gpus if types is None or t in types] or list(gpus)
        pool = max(accepted, key=lambda t: (gpus[t], t))
        found = job_class(
            replicas=replicas,
            gpus_per_replica=gpus_per_replica,
            min_runtime_s=min_runtime_s,
            interactive=interactive,
            pool_gpus=gpus[pool],
            node_gpus=largest[pool],
        )
        return number[found]

    return lambda job: class_of(
        job.replicas, job.gpus_per_replica, job.min_runtime_s, job.kind is JobKind.INTERACTIVE, job.gpu_types
    )


def _ints(values: Iterable[int]) -> IntArray:
    return np.fromiter(values, dtype=np.int64)
