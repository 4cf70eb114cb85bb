"""Who holds which GPUs once a decision is carried out: the common ground of occupancy and fragmentation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from cpalloc.problem.problem import (
    US,
    Action,
    BoolArray,
    Decision,
    IntArray,
    JobState,
    Mode,
    NodeState,
    Problem,
    Replica,
)


class HolderKind(IntEnum):
    """Why a job holds GPUs after the round, in the order in which a GPU held twice is attributed."""

    NONE = -1
    ALLOCATED = 0
    BORROWED = 1
    STOPPING = 2


@dataclass(frozen=True, slots=True)
class Holdings:
    """What jobs hold after a decision, one row per replica on a listed node; shapes: W rows, J jobs, N nodes.

    Attributes
    ----------
    job, node : IntArray, shape (W,)
        Replicas of kept, started and stopping jobs. Replicas on absent nodes have no row.
    gpus : IntArray, shape (W,)
        GPUs of the row, each GPU counted once: in-service GPUs on ready nodes, all GPUs on draining nodes, none on
        nodes that are down. May be 0 (a job on unhealthy GPUs only).
    kind : IntArray, shape (J,)
        :class:`HolderKind` of the job.
    release_us : IntArray, shape (J,)
        Microseconds from now until protection no longer stands in the way; 0 for whatever is not protected.
    stopping : IntArray, shape (N,)
        GPUs held by stopping jobs and by no allocated one, whether or not a borrowed job was placed on them too.
    """

    job: IntArray
    node: IntArray
    gpus: IntArray
    kind: IntArray
    release_us: IntArray
    stopping: IntArray


def holdings(problem: Problem, decision: Decision) -> Holdings:
    """What every job holds after the decision.

    Kept and stopping jobs hold ``jobs.placement``, starts ``decision.placement``. Preempted, drained and lost jobs have
    left. A GPU held by a stopping job and by the job placed on it next counts for the latter.

    Where a node's devices are known, GPUs are told apart by their bitmasks. Where they are not, counts above what is in
    service are cut back: stopping jobs first, then borrowed, then allocated with the earliest release (so that a
    measure never promises a GPU that may be unhealthy).

    Parameters
    ----------
    problem, decision
        The round and what was decided.

    Returns
    -------
    Holdings
        Rows in job order.
    """
    kind = _kinds(problem, decision)
    release_us = _releases(problem, decision, kind)
    holders = np.flatnonzero(kind >= 0)
    placed = problem.jobs.placement
    starts = (decision.action[holders] == Action.START).tolist()
    places = [decision.placement[j] if new else placed[j] for j, new in zip(holders.tolist(), starts, strict=True)]
    replicas = [replica for place in places for replica in place]
    job = np.repeat(holders, np.array([len(place) for place in places], dtype=np.int64))
    node = np.array([replica.node for replica in replicas], dtype=np.int64)
    gpus = np.array([replica.gpus for replica in replicas], dtype=np.int64)
    if (node < 0).any():
        present = np.flatnonzero(node >= 0)
        job, node, gpus = job[present], node[present], gpus[present]
        replicas = [replicas[row] for row in present.tolist()]
    stopping = np.zeros(len(problem.nodes.names), dtype=np.int64)
    contested = _contested(problem, node, gpus, kind[job] == HolderKind.STOPPING)
    rows = np.flatnonzero(contested[node])
    if len(rows):
        rows = rows[np.lexsort((rows, -release_us[job[rows]], kind[job[rows]]))]
        _attribute(problem, rows.tolist(), replicas, kind[job].tolist(), gpus, stopping)
    return Holdings(job=job, node=node, gpus=gpus, kind=kind, release_us=release_us, stopping=stopping)


def _kinds(problem: Problem, decision: Decision) -> IntArray:
    runs = (decision.action == Action.KEEP) | (decision.action == Action.START)
    kind = np.full(len(problem.jobs), int(HolderKind.NONE), dtype=np.int64)
    kind[runs & (decision.mode == Mode.ALLOCATED)] = HolderKind.ALLOCATED
    kind[runs & (decision.mode == Mode.BORROWED)] = HolderKind.BORROWED
    kind[problem.jobs.state == JobState.STOPPING] = HolderKind.STOPPING
    return kind


def _releases(problem: Problem, decision: Decision, kind: IntArray) -> IntArray:
    """Microseconds of protection left per job: kept until ``protected_until_us``, started or promoted min_runtime."""
    jobs = problem.jobs
    fresh = (decision.action == Action.START) | decision.promoted
    kept = np.where(jobs.protected, jobs.protected_until_us - problem.now_us, 0)
    left = np.where(fresh, jobs.min_runtime_s * US, kept)
    return np.where(kind == HolderKind.ALLOCATED, np.maximum(left, 0), 0)


def _contested(problem: Problem, node: IntArray, gpus: IntArray, stops: BoolArray) -> BoolArray:
    """Nodes whose rows cannot simply be added up: unhealthy GPUs, stopping jobs, down, or counts beyond the node."""
    nodes = problem.nodes
    contested: BoolArray = (nodes.healthy < nodes.gpus) | (nodes.state == NodeState.DOWN)
    contested[node[stops]] = True
    total = np.zeros(len(nodes.names), dtype=np.int64)
    np.add.at(total, node, gpus)
    return contested | (total > nodes.gpus)


class _Left:
    """GPUs of contested nodes not attributed yet: a bitmask where the devices are known, else a count."""

    def __init__(self, masks: dict[int, int], counts: dict[int, int]) -> None:
        self._masks = masks
        self._counts = counts

    def copy(self) -> _Left:
        return _Left(dict(self._masks), dict(self._counts))

    def take(self, replica: Replica) -> int:
        """Attribute what is left of a replica's GPUs; returns how many."""
        node = replica.node
        if node in self._masks:
            taken = replica.devices & self._masks[node]
            self._masks[node] &= ~taken
            return taken.bit_count()
        count = min(replica.gpus, self._counts[node])
        self._counts[node] -= count
        return count


def _attribute(
    problem: Problem,
    rows: Sequence[int],
    replicas: Sequence[Replica],
    kind: Sequence[int],
    gpus: IntArray,
    stopping: IntArray,
) -> None:
    """Settle contested rows, sorted by kind and latest release; writes ``gpus`` per row and ``stopping`` per node."""
    left = _capacity(problem, [replicas[row] for row in rows])
    allocated = [row for row in rows if kind[row] == HolderKind.ALLOCATED]
    others = rows[len(allocated) :]
    for row in allocated:
        gpus[row] = left.take(replicas[row])
    beside_allocated = left.copy()
    for row in others:
        if kind[row] == HolderKind.STOPPING:
            stopping[replicas[row].node] += beside_allocated.take(replicas[row])
    for row in others:
        gpus[row] = left.take(replicas[row])


def _capacity(problem: Problem, replicas: Sequence[Replica]) -> _Left:
    """What can be held on the nodes of some replicas: in service where ready, all GPUs where draining, else nothing."""
    nodes = problem.nodes
    touched = sorted({replica.node for replica in replicas})
    unknown = {replica.node for replica in replicas if replica.devices < 0}
    unknown.update(node for node in touched if nodes.unknown_devices[node])
    masks: dict[int, int] = {}
    counts: dict[int, int] = {}
    for node in touched:
        state = int(nodes.state[node])
        ready, draining = state == NodeState.READY, state == NodeState.DRAINING
        if node in unknown:
            counts[node] = int(nodes.healthy[node]) if ready else int(nodes.gpus[node]) if draining else 0
        else:
            masks[node] = nodes.healthy_devices[node] if ready else -1 if draining else 0
    return _Left(masks, counts)
