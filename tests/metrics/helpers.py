"""Tiny rounds built by hand, without the compiler: nodes and jobs in a line each.

``free_gpus`` and ``Held`` are worked out here device by device, from their descriptions in ``problem.py`` alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from cpalloc.problem.problem import (
    US,
    Action,
    Budgets,
    Decision,
    Held,
    IntArray,
    Jobs,
    JobState,
    Mode,
    Nodes,
    NodeState,
    Options,
    Policy,
    Problem,
    Replica,
    Shape,
    Topology,
    status_quo,
)

NOW_US = 1_795_000_000 * US
HOUR = 3600
A, B = Mode.ALLOCATED, Mode.BORROWED
STAYS = (JobState.FIXED, JobState.EVICTABLE)


@dataclass(frozen=True)
class N:
    """A node: ``domains`` one name per level between cluster and node; ``healthy`` a device mask, -1 = all."""

    gpus: int = 8
    domains: tuple[str, ...] = ()
    state: NodeState = NodeState.READY
    pool: int = 0
    healthy: int = -1
    unknown: bool = False

    @property
    def mask(self) -> int:
        return (1 << self.gpus) - 1 & self.healthy


@dataclass(frozen=True)
class J:
    """A job: ``at`` holds (node, device mask) per replica, or (node, count) on nodes with unknown devices."""

    state: JobState = JobState.PENDING
    mode: Mode = Mode.NONE
    at: tuple[tuple[int, int], ...] = ()
    left_s: float = 0
    min_runtime_s: int = 0
    exclusive: bool = False


def devices(first: int, count: int) -> int:
    """Mask of ``count`` devices from ``first`` on."""
    return (1 << count) - 1 << first


def replicas_of(nodes: Sequence[N], at: Sequence[tuple[int, int]]) -> tuple[Replica, ...]:
    """Places as Replica; node -1 is absent from the snapshot."""
    return tuple(
        Replica(node, held, -1) if node < 0 or nodes[node].unknown else Replica(node, held.bit_count(), held)
        for node, held in at
    )


def ints(values: Sequence[int]) -> IntArray:
    return np.array(values, dtype=np.int64)


def make(
    nodes: Sequence[N],
    jobs: Sequence[J] = (),
    mix: Sequence[Shape] = (),
    levels: Sequence[str] = (),
    max_min_runtime_s: int = 8 * HOUR,
    horizon_s: int = HOUR,
) -> Problem:
    """A Problem from lines; jobs keep their places in the list, and so do nodes."""
    return Problem(
        now_us=NOW_US,
        topology=_topology(nodes, levels),
        nodes=_nodes(nodes, jobs),
        jobs=_jobs(nodes, jobs),
        held=_held(nodes, jobs),
        budgets=_budgets(),
        policy=Policy(7 * 24 * HOUR, horizon_s, max_min_runtime_s, 900, False, 4, -1, ()),
        options=Options(),
        pool_names=tuple(f"p{p}" for p in range(max((n.pool for n in nodes), default=0) + 1)),
        resource_names=(),
        eligibility=np.ones((1, len(nodes)), dtype=np.bool_),
        shape_mix=tuple(mix),
    )


def decide(
    problem: Problem,
    nodes: Sequence[N] = (),
    *,
    start: Mapping[int, tuple[Mode, Sequence[tuple[int, int]]]] | None = None,
    preempt: Sequence[int] = (),
    promote: Sequence[int] = (),
) -> Decision:
    """The status quo with some jobs started (mode and places), preempted or promoted."""
    quo = status_quo(problem)
    action, mode, promoted = quo.action.copy(), quo.mode.copy(), quo.promoted.copy()
    for job in preempt:
        action[job], mode[job] = Action.PREEMPT, Mode.NONE
    for job in promote:
        mode[job], promoted[job] = Mode.ALLOCATED, True
    placement = {}
    for job, (how, at) in (start or {}).items():
        action[job], mode[job] = Action.START, how
        placement[job] = replicas_of(nodes, at)
    return Decision(action, mode, promoted, placement)


def _topology(nodes: Sequence[N], levels: Sequence[str]) -> Topology:
    names = [("cluster",)]
    domain_of = [[0] * len(nodes)]
    for level in range(len(levels)):
        here = sorted({n.domains[level] for n in nodes})
        names.append(tuple(here))
        domain_of.append([here.index(n.domains[level]) for n in nodes])
    names.append(tuple(f"n{i:04}" for i in range(len(nodes))))
    domain_of.append(list(range(len(nodes))))
    return Topology(("cluster", *levels, "node"), np.array(domain_of, dtype=np.int64), tuple(names))


def _nodes(nodes: Sequence[N], jobs: Sequence[J]) -> Nodes:
    there = defaultdict(list)
    for j in jobs:
        for at, held in j.at:
            there[at].append((j, held))
    free, masks, company = [], [], []
    for i, n in enumerate(nodes):
        holding = [(j, held) for j, held in there[i] if j.state in (*STAYS, JobState.STOPPING)]
        company.append(any(j.state != JobState.EVICTABLE for j, _ in holding))
        if n.state != NodeState.READY or any(j.exclusive for j, _ in holding):
            free.append(0)
            masks.append(0)
        elif n.unknown:
            free.append(max(0, n.mask.bit_count() - sum(held for _, held in holding)))
            masks.append(-1)
        else:
            left = n.mask
            for _, held in holding:
                left &= ~held
            free.append(left.bit_count())
            masks.append(left)
    none = np.zeros((len(nodes), 0), dtype=np.int64)
    return Nodes(
        names=tuple(f"n{i:04}" for i in range(len(nodes))),
        pool=ints([n.pool for n in nodes]),
        state=ints([n.state for n in nodes]),
        gpus=ints([n.gpus for n in nodes]),
        healthy=ints([n.mask.bit_count() for n in nodes]),
        healthy_devices=tuple(n.mask for n in nodes),
        free_gpus=ints(free),
        free_devices=tuple(masks),
        resources=none,
        free_resources=none,
        groups=tuple(((1 << n.gpus) - 1,) for n in nodes),
        unknown_devices=np.array([n.unknown for n in nodes], dtype=np.bool_),
        company=np.array(company, dtype=np.bool_),
    )


def _held(nodes: Sequence[N], jobs: Sequence[J]) -> Held:
    rows = []
    for index, job in enumerate(jobs):
        if job.state != JobState.EVICTABLE:
            continue
        for node in sorted({at for at, _ in job.at if at >= 0}):
            n = nodes[node]
            own = [held for at, held in job.at if at == node]
            if n.unknown:
                whole = n.mask.bit_count()
                rows.append((index, node, whole if job.exclusive else min(sum(own), whole), -1))
                continue
            mask = n.mask if job.exclusive else n.mask & sum(own)
            for other_index, other in enumerate(jobs):
                stays = other.state in STAYS and other_index != index and job.exclusive
                if stays or other.state == JobState.STOPPING:
                    for at, held in other.at:
                        mask &= ~held if at == node else -1
            rows.append((index, node, mask.bit_count(), mask))
    job, node, gpus, mask = zip(*rows, strict=True) if rows else ((), (), (), ())
    return Held(ints(job), ints(node), ints(gpus), tuple(mask), np.zeros((len(rows), 0), dtype=np.int64))


def _jobs(nodes: Sequence[N], jobs: Sequence[J]) -> Jobs:
    count = len(jobs)
    zeros = np.zeros(count, dtype=np.int64)
    no = np.zeros(count, dtype=np.bool_)
    placement = tuple(replicas_of(nodes, j.at) for j in jobs)
    size = ints([sum(r.gpus for r in place) for place in placement])
    return Jobs(
        ids=tuple(f"j{i:04}" for i in range(count)),
        state=ints([j.state for j in jobs]),
        leaf=zeros,
        submitted_us=zeros,
        priority=zeros,
        interactive=no,
        replicas=ints([max(1, len(j.at)) for j in jobs]),
        gpus_per_replica=ints([place[0].gpus if place else 1 for place in placement]),
        size=size,
        resources=np.zeros((count, 0), dtype=np.int64),
        max_per_node=zeros,
        exclusive=np.array([j.exclusive for j in jobs], dtype=np.bool_),
        same_gpu_group=no,
        eligibility=zeros,
        required_level=zeros,
        preferred_level=zeros - 1,
        min_runtime_s=ints([j.min_runtime_s for j in jobs]),
        timeout_s=zeros - 1,
        restart_cost_s=zeros,
        resumable=no,
        may_allocate=no,
        may_borrow=no,
        may_promote=no,
        mode=ints([j.mode for j in jobs]),
        protected=np.array([j.left_s > 0 for j in jobs], dtype=np.bool_),
        protected_until_us=ints([NOW_US + round(j.left_s * US) if j.mode == A else -1 for j in jobs]),
        started_us=zeros - 1,
        placed_us=zeros - 1,
        allocated_since_us=zeros - 1,
        checkpointed_us=zeros - 1,
        lost_gpu_seconds=zeros,
        preempt_cost=zeros,
        rank=zeros - 1,
        order=zeros,
        placement=placement,
    )


def _budgets() -> Budgets:
    one = ints([0])
    return Budgets(("all",), ints([-1]), one, ((0,),), (Fraction(1),), one, one, one, one, one, one, one - 1, one - 1)
