"""What a wire job says about itself, in numbers: read once a job, whatever the round it is in."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Generic, NamedTuple, TypeVar

from cpalloc.problem.compile.clock import to_us
from cpalloc.problem.problem import Mode
from cpalloc.schema.request import Job

MAX_AMOUNT = 10**15
"""Largest amount of a resource, and longest duration in seconds, that arrays hold."""

MAX_NUMBER = 10**18
"""Largest number of any kind that arrays hold."""

NOT_GIVEN_US = -(2**62)
"""An instant that the job leaves open."""

BORROWED, ALLOCATED, ANY = 0, 1, 2
"""How a job may be funded (policy section 2): values of ``Terms.funding``."""

_PRIORITY = {"low": 0, "normal": 1, "high": 2, "urgent": 3, "immediate": 4}
_FUNDING = {"borrowed": BORROWED, "allocated": ALLOCATED, "any": ANY}
_MODE = {"allocated": int(Mode.ALLOCATED), "borrowed": int(Mode.BORROWED)}

T = TypeVar("T")


class Terms(NamedTuple, Generic[T]):
    """Numbers of one job (T = int), or of many as columns (T = IntArray); truth values are 0 and 1.

    ``funding`` is what a job without a minimum runtime gets as well, which is borrowed GPUs; ``asks_too_much`` where it
    asked for others. Those from ``runs`` on are of running jobs.
    """

    submitted_us: T
    priority: T
    interactive: T
    replicas: T
    gpus_per_replica: T
    max_per_node: T
    exclusive: T
    same_gpu_group: T
    min_runtime_s: T
    timeout_s: T
    restart_cost_s: T
    resumable: T
    funding: T
    asks_too_much: T
    runs: T
    mode: T
    stopping: T
    placed_us: T
    started_us: T
    allocated_since_us: T
    checkpointed_us: T


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """Jobs that want the same nodes and the same room on them; ``like`` is one of these jobs."""

    like: Job


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """A job, its kind and its numbers."""

    job: Job
    kind: Kind
    terms: Terms[int]


def kind_key(job: Job) -> tuple[object, ...]:
    """Equal for jobs of one kind."""
    return (
        job.gpu_types,
        tuple(sorted(job.node_selector.items())) if job.node_selector else (),
        job.exclude_nodes,
        job.replicas,
        job.gpus_per_replica,
        job.same_gpu_group,
        tuple(sorted(job.resources_per_replica.items())) if job.resources_per_replica else (),
        job.max_replicas_per_node,
        job.topology.required,
    )


def read_terms(job: Job) -> Terms[int]:
    """The numbers of a job; those no cluster could meet are cut to what arrays hold."""
    run = job.running
    funding = job.funding or ("borrowed" if job.min_runtime == 0 else "allocated")
    too_much = funding != "borrowed" and job.min_runtime == 0
    return Terms(
        submitted_us=to_us(job.submitted_at),
        priority=_PRIORITY[job.priority],
        interactive=job.kind == "interactive",
        replicas=min(job.replicas, MAX_NUMBER),
        gpus_per_replica=min(job.gpus_per_replica, MAX_NUMBER),
        max_per_node=min(job.max_replicas_per_node or 0, MAX_NUMBER),
        exclusive=job.exclusive_nodes,
        same_gpu_group=job.same_gpu_group,
        min_runtime_s=min(job.min_runtime, MAX_NUMBER),
        timeout_s=-1 if job.timeout is None else min(job.timeout, MAX_AMOUNT),
        restart_cost_s=min(job.restart_cost, MAX_AMOUNT),
        resumable=job.resumable,
        funding=BORROWED if too_much else _FUNDING[funding],
        asks_too_much=too_much,
        runs=run is not None,
        mode=int(Mode.NONE) if run is None else _MODE[run.mode],
        stopping=run is not None and run.stopping,
        placed_us=_us(run.placed_at) if run else NOT_GIVEN_US,
        started_us=_us(run.started_at) if run else NOT_GIVEN_US,
        allocated_since_us=_us(run.allocated_since) if run else NOT_GIVEN_US,
        checkpointed_us=_us(run.checkpointed_at) if run else NOT_GIVEN_US,
    )


def _us(instant: datetime | None) -> int:
    return NOT_GIVEN_US if instant is None else to_us(instant)
