"""Who is told apart in the model: cells of like nodes, kinds of replicas, shapes of gangs.

One boolean per (job, node) does not scale, so the model counts. Replicas that no constraint and no tier can tell
apart are one *kind*; gangs of the same kind, size and required level are one *shape*; nodes in the same state are one
*cell*. How finely parties are told apart a :class:`cpalloc.models.partition.Partition` says.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from cpalloc.models.partition import Partition
from cpalloc.problem.problem import US, JobState, Mode, NodeState, Problem
from cpalloc.problem.releases import start_release_us
from cpalloc.problem.usage import Usage


@dataclass(frozen=True, slots=True)
class Cell:
    """Nodes in one state: same finest domain, pool, free GPUs and resources, and the same evictable jobs.

    ``free``, ``resources``, ``devices``: of one representative node, with what the partition takes for preempted gone.
    ``rows``: rows of ``Problem.held`` there, of jobs that may be preempted; cells of several nodes have at most one.
    """

    nodes: tuple[int, ...]
    pool: int
    free: int
    resources: tuple[int, ...]
    devices: int
    rows: tuple[int, ...]

    @property
    def first(self) -> int:
        """The node that stands for the cell."""
        return self.nodes[0]


@dataclass(frozen=True, slots=True)
class Party:
    """Whose work a replica is, as far as anyone asks: the fields of its signature.

    ``late``: how many of the partition's instants lie before its end: it is in the way at those.
    """

    mode: int
    leaf: int = -1
    bucket: int = 0
    holds: int = 0
    late: int = 0
    job: int = -1


@dataclass(frozen=True, slots=True)
class Kind:
    """Interchangeable replicas in one pool: footprint (GPUs, resources), eligible nodes, rules on sharing, party.

    ``lone`` is the job whose replicas they are where ``max_per_node`` or ``exclusive`` bind (-1: neither binds).
    """

    pool: int
    gpus: int
    resources: tuple[int, ...]
    eligible: int
    same_group: bool
    lone: int
    max_per_node: int
    exclusive: bool
    party: Party


@dataclass(frozen=True, slots=True)
class Shape:
    """Interchangeable gangs in one pool: ``replicas`` of a kind inside one domain of ``level``."""

    kind: int
    replicas: int
    level: int


@dataclass(frozen=True, slots=True)
class Start:
    """A pending job in one mode, with the shapes (one a pool) it may take."""

    job: int
    mode: Mode
    shapes: tuple[int, ...]


@dataclass(slots=True)
class Layout:
    """Cells, kinds, shapes and starts of a round under a partition."""

    cells: list[Cell] = field(default_factory=list)
    kinds: list[Kind] = field(default_factory=list)
    shapes: list[Shape] = field(default_factory=list)
    starts: list[Start] = field(default_factory=list)
    cell_of: dict[int, int] = field(default_factory=dict)
    slots: dict[tuple[int, int], int] = field(default_factory=dict)
    """``slots[kind, cell]``: most replicas of the kind in the cell with everything evictable gone; absent when 0."""


def party_of(problem: Problem, partition: Partition, job: int, mode: Mode) -> Party:
    """The signature that every constraint and tier looks at; two starts of one party and shape are the same to all."""
    jobs = problem.jobs
    leaf, order = int(jobs.leaf[job]), int(jobs.order[job])
    marks = [int(jobs.order[w]) for w in partition.apart | partition.exact if jobs.leaf[w] == leaf]
    bucket = sum(w < order for w in marks)
    told = bool(marks) or (mode is Mode.ALLOCATED and leaf in partition.leaves)
    bits = late = 0
    if mode is Mode.ALLOCATED:
        if partition.instants:
            late = bisect_left(partition.instants, promotion_end_us(problem, partition, job))
        release = start_release_us(problem, job) if partition.holds else 0
        for index, hold in enumerate(partition.holds):
            bound = index >= partition.hard or int(jobs.rank[job]) > int(jobs.rank[hold.job])
            if bound and hold.job != job and release > hold.starts_us:
                bits |= 1 << index
    return Party(int(mode), leaf if told else -1, bucket, bits, late, job if job in partition.single else -1)


def promotions(problem: Problem, partition: Partition) -> frozenset[int]:
    """Borrowed jobs that may be promoted where they stand."""
    if partition.possible is not None:
        return partition.possible.promotes
    return frozenset(np.flatnonzero(problem.jobs.may_promote).tolist())


def promotion_end_us(problem: Problem, partition: Partition, job: int) -> int:
    """Instant until which a job is in the way if it becomes allocated now, as the partition measures it."""
    if partition.by_release:
        return start_release_us(problem, job)
    return problem.now_us + int(problem.jobs.min_runtime_s[job]) * US


@dataclass(frozen=True, slots=True)
class _Terms:
    """What of a pending job's terms can bind, and where: the same under every partition.

    ``gpus``, ``replicas``, ``level``, ``resources``, ``eligible``: as the job has them. ``group``, ``limit``,
    ``exclusive``: same_gpu_group, max_per_node (0: none) and exclusive nodes, neutral where they cannot bind on any
    node the job may use. ``pools``: those of its nodes.
    """

    gpus: int
    replicas: int
    level: int
    resources: tuple[int, ...]
    eligible: int
    group: bool
    limit: int
    exclusive: bool
    pools: tuple[int, ...]


def terms_of(problem: Problem) -> dict[int, _Terms]:
    """The terms of every pending job."""
    jobs, nodes = problem.jobs, problem.nodes
    split = np.array([len(groups) > 1 for groups in nodes.groups], dtype=np.bool_)
    known: dict[object, _Terms] = {}
    out: dict[int, _Terms] = {}
    for j in np.flatnonzero(jobs.state == JobState.PENDING).tolist():
        g, replicas, limit = int(jobs.gpus_per_replica[j]), int(jobs.replicas[j]), int(jobs.max_per_node[j])
        exclusive, group = bool(jobs.exclusive[j]), bool(jobs.same_gpu_group[j])
        level, eligibility, resources = int(jobs.required_level[j]), int(jobs.eligibility[j]), jobs.resources[j]
        key = (eligibility, g, replicas, level, resources.tobytes(), limit, exclusive, group)
        if key not in known:
            eligible = problem.eligibility[eligibility]
            healthy = nodes.healthy[eligible]
            if limit and (replicas <= limit or not bool(np.any(healthy // g > limit))):
                limit = 0
            known[key] = _Terms(
                gpus=g,
                replicas=replicas,
                level=level,
                resources=tuple(resources.tolist()),
                eligible=eligibility,
                group=group and bool((g > 1 and split[eligible].any()) or nodes.unknown_devices[eligible].any()),
                limit=limit,
                exclusive=exclusive and bool(np.any(healthy != g)),
                pools=tuple(np.unique(nodes.pool[eligible]).tolist()),
            )
        out[j] = known[key]
    return out


def _cells(problem: Problem, partition: Partition, chain: bool) -> list[Cell]:
    """Nodes that can still change, merged where merging is exact.

    Merging like nodes is exact when at most one evictable job lies on them and the GPU sizes divide one another
    (Coffman, Garey, Johnson 1987); otherwise every node is a cell of its own.
    """
    nodes, held = problem.nodes, problem.held
    usage = Usage.status_quo(problem)
    for job in partition.gone:
        usage.evict(job)
    region = partition.region
    for job, _, places in region.starts if region else ():
        usage.place(job, places)
    ready = np.flatnonzero(nodes.state == NodeState.READY).tolist()
    free, resources = usage.free_gpus, usage.free_resources
    rows_of: dict[int, list[int]] = {}
    promotable: dict[int, list[int]] = {}
    served: dict[int, list[int]] = {}
    promoting = promotions(problem, partition)
    for row, (node, job) in enumerate(zip(held.node.tolist(), held.job.tolist(), strict=True)):
        if job in partition.gone:
            if int(problem.jobs.leaf[job]) in partition.leaves:
                served.setdefault(node, []).append(job)  # who serves others must be seen on its very nodes
            continue
        if job not in partition.stays:
            rows_of.setdefault(node, []).append(row)
        elif job in promoting:
            promotable.setdefault(node, []).append(row)
    finest = problem.topology.domain_of[-2]
    kept = {n for hold in partition.holds for n in hold.nodes}
    columns = problem.eligibility.T
    merged: dict[object, list[int]] = {}
    for n in sorted(region.nodes.intersection(ready)) if region else ready:
        rows, staying = rows_of.get(n, []), promotable.get(n, [])
        if not rows and not staying and free[n] == 0:
            continue
        alone = (
            not chain or len(rows) + len(staying) > 1 or n in kept or len(nodes.groups[n]) > 1 or bool(partition.exact)
        )
        key: object = (
            n
            if alone
            else (
                int(finest[n]),
                int(nodes.pool[n]),
                int(free[n]),
                resources[n].tobytes(),
                tuple((int(held.job[r]), int(held.gpus[r]), held.resources[r].tobytes()) for r in rows + staying),
                columns[n].tobytes(),
                int(nodes.healthy[n]),
                tuple(sorted(served.get(n, ()))),
            )
        )
        merged.setdefault(key, []).append(n)
    cells = [
        Cell(
            tuple(ns),
            int(nodes.pool[ns[0]]),
            int(free[ns[0]]),
            tuple(resources[ns[0]].tolist()),
            usage.free_devices[ns[0]],
            tuple(rows_of.get(ns[0], ())),
        )
        for ns in merged.values()
    ]
    return sorted(cells, key=lambda c: c.nodes)


def most_slots(problem: Problem, cell: Cell, kind: Kind) -> int:
    """Most replicas of a kind on one node of the cell with everything evictable gone (an upper bound)."""
    held = problem.held
    if not problem.eligibility[kind.eligible, cell.first]:
        return 0
    if kind.same_group and problem.nodes.unknown_devices[cell.first]:
        return 0  # nobody can tell which GPUs of one group are free
    gpus = cell.free + sum(int(held.gpus[r]) for r in cell.rows)
    most = gpus // kind.gpus
    if most and any(kind.resources):
        free = np.array(cell.resources) + sum((held.resources[r] for r in cell.rows), np.int64(0))
        for r, need in enumerate(kind.resources):
            if need:
                most = min(most, max(0, int(free[r])) // need)
    return min(most, kind.max_per_node) if kind.max_per_node else most


def layout(problem: Problem, partition: Partition, terms: Mapping[int, _Terms] | None = None) -> Layout:
    """Lay out a round under a partition: which cells, kinds, shapes and starts the model has.

    ``terms``: :func:`terms_of` the problem where they are at hand.
    """
    jobs, out = problem.jobs, Layout()
    kind_of: dict[Kind, int] = {}
    shape_of: dict[Shape, int] = {}
    level_node = len(problem.topology.levels) - 1
    region = partition.region
    possible = partition.starts()
    considered = None if possible is None else {j for j, _ in possible}
    settled = region.absent | {j for j, _, _ in region.starts} if region else frozenset()
    for j, term in (terms_of(problem) if terms is None else terms).items():
        if j in settled or (considered is not None and j not in considered):
            continue
        group, limit, exclusive = term.group, term.limit, term.exclusive
        g, replicas, level, resources = term.gpus, term.replicas, term.level, term.resources
        if level == level_node and not (group or limit):
            # All replicas on one node: one replica of the whole size, wherever it goes.
            g, resources, replicas, level = g * replicas, tuple(x * replicas for x in resources), 1, 0
        elif level == level_node and limit:
            continue  # more replicas than one node may hold of this job: nowhere to go
        for mode, may in ((Mode.ALLOCATED, jobs.may_allocate[j]), (Mode.BORROWED, jobs.may_borrow[j])):
            if not may or (mode is Mode.BORROWED and not partition.lend and not jobs.may_allocate[j]):
                continue
            if possible is not None and (j, mode) not in possible:
                continue
            shapes = []
            lone, party = j if limit or exclusive else -1, party_of(problem, partition, j, mode)
            for pool in term.pools:
                kind = Kind(pool, g, resources, term.eligible, group, lone, limit, exclusive, party)
                index = kind_of.setdefault(kind, len(kind_of))
                shape = Shape(index, replicas, level)
                shapes.append(shape_of.setdefault(shape, len(shape_of)))
            out.starts.append(Start(j, mode, tuple(shapes)))
    out.kinds, out.shapes = list(kind_of), list(shape_of)
    out.cells = _cells(problem, partition, not partition.split and _mergeable(out.kinds))
    out.cell_of = {n: c for c, cell in enumerate(out.cells) for n in cell.nodes}
    for k, kind in enumerate(out.kinds):
        for c, cell in enumerate(out.cells):
            if cell.pool == kind.pool:
                most = most_slots(problem, cell, kind) * len(cell.nodes)
                if most:
                    out.slots[k, c] = most
    return out


def _mergeable(kinds: list[Kind]) -> bool:
    """Whether counting on like nodes is exact: sizes divide one another, only GPUs bind, nobody minds company."""
    sizes = sorted({k.gpus for k in kinds})
    chain = all(b % a == 0 for a, b in pairwise(sizes))
    return chain and not any(any(k.resources) or k.same_group or k.lone >= 0 for k in kinds)
