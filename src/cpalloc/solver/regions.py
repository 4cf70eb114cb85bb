"""Parts of the cluster to look at one after the other, where the whole is too big a model.

A large neighbourhood search: whatever the decision does outside a region stays, inside everything may change. Regions
are made of whole domains of one pool, those where most is lost first; every sweep cuts them differently.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from cpalloc.models.constraints.preemption import victims
from cpalloc.models.partition import Partition, Region
from cpalloc.problem.problem import Action, Decision, JobState, Mode, NodeState, Problem

NODES = 250
"""Nodes of a region, about; a model of so many is solved in a second or two (docs/benchmarks.md)."""

WAITING = 12
"""Waiting jobs of every budget that a region may start, best first."""


def regions(problem: Problem, decision: Decision, sweep: int) -> Iterator[tuple[frozenset[int], float]]:
    """Sets of nodes that cover the cluster, those with the dearest preemptions of a decision first.

    Each comes with its part of what all that are still to come lose by preemptions.
    """
    cost = np.zeros(len(problem.nodes.names), dtype=np.int64)
    for v in victims(problem, decision):
        on = {rep.node for rep in problem.jobs.placement[v] if rep.node >= 0}
        for n in on:
            cost[n] += int(problem.jobs.preempt_cost[v]) // len(on)
    groups: list[list[int]] = []
    rng = np.random.default_rng(sweep)
    ready = problem.nodes.state == NodeState.READY
    for pool in range(len(problem.pool_names)):
        blocks: Mapping[int, list[int]] = defaultdict(list)
        for n in np.flatnonzero(ready & (problem.nodes.pool == pool)).tolist():
            blocks[int(problem.topology.domain_of[min(1, len(problem.topology.levels) - 1), n])].append(n)
        order = list(blocks)
        if sweep:
            rng.shuffle(order)
        here: list[int] = []
        for d in order:
            for begin in range(0, len(blocks[d]), NODES):
                here += blocks[d][begin : begin + NODES]
                if len(here) >= NODES:
                    groups.append(here)
                    here = []
        if here:
            groups.append(here)
    groups.sort(key=lambda nodes: (-int(cost[nodes].sum()), nodes[0]))
    lost = [float(cost[nodes].sum()) for nodes in groups]
    for i, nodes in enumerate(groups):
        yield frozenset(nodes), lost[i] / (sum(lost[i:]) or 1.0)


def partition_of(problem: Problem, partition: Partition, decision: Decision, nodes: frozenset[int]) -> Partition:
    """A partition in which a decision may change on some nodes only."""
    jobs = problem.jobs
    inside = {j for j, reps in decision.placement.items() if all(rep.node in nodes for rep in reps)}
    evictable = np.flatnonzero(jobs.state == JobState.EVICTABLE).tolist()
    chosen = set(victims(problem, decision))
    # Room that a start which stays has taken cannot be given back.
    shut = {rep.node for j, reps in decision.placement.items() if j not in inside for rep in reps}
    free = {
        j
        for j in evictable
        if all(rep.node in nodes for rep in jobs.placement[j])
        and not (j in chosen and any(rep.node in shut for rep in jobs.placement[j]))
    }
    queued: dict[int, int] = defaultdict(int)
    waits = (decision.action == Action.WAIT) & (jobs.state == JobState.PENDING) & jobs.may_allocate
    waiting = np.flatnonzero(waits)
    absent = set(np.flatnonzero((jobs.state == JobState.PENDING) & ~jobs.may_allocate).tolist())
    for j in waiting[np.argsort(jobs.order[waiting])].tolist():
        queued[int(jobs.leaf[j])] += 1
        if queued[int(jobs.leaf[j])] > WAITING:
            absent.add(j)
    return replace(
        partition,
        stays=(partition.stays | frozenset(j for j in evictable if j not in free and j not in chosen)) - chosen,
        gone=frozenset(chosen - free),
        region=Region(
            nodes,
            tuple((j, Mode(int(decision.mode[j])), reps) for j, reps in decision.placement.items() if j not in inside),
            frozenset(absent - inside),
            frozenset(np.flatnonzero(decision.promoted).tolist()),
        ),
    )
