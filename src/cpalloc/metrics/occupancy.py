"""GPUs free and held after a decision, per node and for the cluster (policy sections 1 and 9)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from cpalloc.metrics.holdings import HolderKind, Holdings, holdings
from cpalloc.problem.problem import Action, BoolArray, Decision, IntArray, JobState, NodeState, Problem


@dataclass(frozen=True, slots=True)
class NodeUse:
    """GPUs per node after a decision; all arrays have shape (N,) and the unit GPUs.

    On ready nodes ``free + allocated + borrowed + stopping`` is what is in service. On draining nodes nothing is free
    and the held GPUs are counted whether healthy or not; on nodes that are down everything is 0.

    Attributes
    ----------
    free : IntArray
        In-service GPUs that nobody holds.
    usable_free : IntArray
        Those of them a further start could take: 0 where a job with exclusive nodes runs, starts or is stopping.
    usable_with_borrowed : IntArray
        The same, were all borrowed work (running or started) taken back. Stopping jobs still hold theirs.
    allocated, borrowed, stopping : IntArray
        Held by jobs that run allocated, run borrowed, or were told to stop by an earlier round.
    """

    free: IntArray
    usable_free: IntArray
    usable_with_borrowed: IntArray
    allocated: IntArray
    borrowed: IntArray
    stopping: IntArray


@dataclass(frozen=True, slots=True)
class Measures:
    """GPUs of the cluster after a decision.

    ``held_gpus = allocated_gpus + borrowed_gpus + stopping_gpus``, all on in-service GPUs. ``installed_gpus`` counts
    every listed node in whatever state. ``held_draining_gpus`` are held on draining nodes, which are not in service.
    ``occupancy`` is held / in service, 0 ... 1, exact; None when nothing is in service.
    """

    installed_gpus: int
    in_service_gpus: int
    held_gpus: int
    held_draining_gpus: int
    allocated_gpus: int
    borrowed_gpus: int
    stopping_gpus: int
    occupancy: Fraction | None


def in_service(problem: Problem) -> IntArray:
    """In-service GPUs per node, shape (N,): the healthy GPUs of ready nodes, 0 elsewhere."""
    return np.where(problem.nodes.state == NodeState.READY, problem.nodes.healthy, 0)


def node_use(problem: Problem, decision: Decision, *, held: Holdings | None = None) -> NodeUse:
    """Free and held GPUs per node after the decision.

    ``free = in service - held``, from the placements. ``usable_free = nodes.free_gpus + what voluntarily preempted jobs
    give back (Problem.held) - what the starts take``, never more than ``free``.

    Parameters
    ----------
    problem, decision
        The round and what was decided.
    held
        ``holdings(problem, decision)`` where the caller has it already.

    Returns
    -------
    NodeUse
        Arrays of shape (N,), in GPUs.
    """
    held = holdings(problem, decision) if held is None else held
    allocated, borrowed, stopping = (
        _on_nodes(problem, held, held.kind[held.job] == kind)
        for kind in (HolderKind.ALLOCATED, HolderKind.BORROWED, HolderKind.STOPPING)
    )
    serving = in_service(problem)
    ready = problem.nodes.state == NodeState.READY
    free = np.where(ready, serving - allocated - borrowed - stopping, 0)
    exclusive = problem.jobs.exclusive[held.job]
    locked = _touched(problem, held, exclusive)
    locked_for_good = _touched(problem, held, exclusive & (held.kind[held.job] != HolderKind.BORROWED))
    usable = np.clip(_free_by_rows(problem, decision), 0, free)
    return NodeUse(
        free=free,
        usable_free=np.where(locked, 0, usable),
        usable_with_borrowed=np.where(ready & ~locked_for_good, serving - allocated - held.stopping, 0),
        allocated=allocated,
        borrowed=borrowed,
        stopping=stopping,
    )


def measures(problem: Problem, decision: Decision, *, held: Holdings | None = None) -> Measures:
    """The cluster's GPUs by what they do after the decision (see :class:`Measures`).

    Parameters
    ----------
    problem, decision
        The round and what was decided.
    held
        ``holdings(problem, decision)`` where the caller has it already.
    """
    use = node_use(problem, decision, held=held)
    ready = problem.nodes.state == NodeState.READY
    allocated, borrowed, stopping = (int(array[ready].sum()) for array in (use.allocated, use.borrowed, use.stopping))
    serving = problem.in_service_gpus
    total = allocated + borrowed + stopping
    draining = problem.nodes.state == NodeState.DRAINING
    return Measures(
        installed_gpus=int(problem.nodes.gpus.sum()),
        in_service_gpus=serving,
        held_gpus=total,
        held_draining_gpus=int((use.allocated + use.borrowed + use.stopping)[draining].sum()),
        allocated_gpus=allocated,
        borrowed_gpus=borrowed,
        stopping_gpus=stopping,
        occupancy=Fraction(total, serving) if serving else None,
    )


def _on_nodes(problem: Problem, held: Holdings, rows: BoolArray) -> IntArray:
    total = np.zeros(len(problem.nodes.names), dtype=np.int64)
    np.add.at(total, held.node[rows], held.gpus[rows])
    return total


def _touched(problem: Problem, held: Holdings, rows: BoolArray) -> BoolArray:
    touched = np.zeros(len(problem.nodes.names), dtype=np.bool_)
    touched[held.node[rows]] = True
    return touched


def _free_by_rows(problem: Problem, decision: Decision) -> IntArray:
    """What the compiled round says is free, plus what preemptions free, less what starts take; may be negative."""
    free = problem.nodes.free_gpus.copy()
    gone = (decision.action == Action.PREEMPT) & (problem.jobs.state == JobState.EVICTABLE)
    rows = gone[problem.held.job]
    np.add.at(free, problem.held.node[rows], problem.held.gpus[rows])
    for job in np.flatnonzero(decision.action == Action.START).tolist():
        for replica in decision.placement[job]:
            free[replica.node] -= replica.gpus
    return free


def gives_back(problem: Problem, job: int, inside: BoolArray) -> int:
    """In-service GPUs that an evictable job gives back on some nodes if preempted, shape of ``inside`` (N,).

    Its own GPUs only: what a job with exclusive nodes keeps from others was free already.
    """
    held = problem.held
    if not problem.jobs.exclusive[job]:
        rows = held.job == job
        return int(held.gpus[rows][inside[held.node[rows]]].sum())
    nodes, total = problem.nodes, 0
    for rep in problem.jobs.placement[job]:
        if rep.node >= 0 and inside[rep.node] and nodes.state[rep.node] == NodeState.READY:
            total += rep.gpus if rep.devices < 0 else (rep.devices & nodes.healthy_devices[rep.node]).bit_count()
    return total
