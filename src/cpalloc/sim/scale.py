"""The same workload with more or fewer nodes, with more or less work, or with its first jobs only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from cpalloc.errors import InputError, Issue
from cpalloc.schema import Cluster, Node
from cpalloc.sim.workload import WorkJob, Workload

_JITTER_S = 1_800
"""A copy of a job is submitted up to so much earlier or later than the original, seconds."""


def scale_nodes(workload: Workload, factor: float) -> Workload:
    """Give the cluster ``factor`` times its nodes; budgets and jobs stay.

    Every team's nodes (or every GPU type's, where teams have none of their own) are scaled for themselves, to whole
    nodes by largest remainder, but to at least one. The last ones of each go, with what happens to them, so that whole
    racks stay whole; more nodes are copies of the first ones in racks of their own.

    Raises
    ------
    InputError
        When the factor is not above 0, or the cluster is given as a graph.
    """
    if not factor > 0:
        raise InputError([Issue("range", "nodes", f"a factor of {factor} leaves no cluster; give one above 0")])
    if workload.cluster.graph is not None:
        raise InputError([Issue("graph", "cluster", "is a graph; give its nodes to scale it")])
    groups = _groups(workload)
    counts = _apportion({name: len(nodes) for name, nodes in groups.items()}, factor)
    kept = {name: _resized(nodes, counts[name]) for name, nodes in groups.items()}
    names = {node.name for group in kept.values() for node in group}
    old = {node.name for node in workload.cluster.nodes}
    nodes = [node for node in workload.cluster.nodes if node.name in names]
    nodes += [node for group in kept.values() for node in group if node.name not in old]
    gpus = sum(node.gpus for node in nodes)
    too_large = sum(job.size > gpus for job in workload.jobs)
    note = f"nodes scaled by {factor:g}: {len(workload.cluster.nodes)} to {len(nodes)}"
    return replace(
        workload,
        cluster=Cluster(name=workload.cluster.name, levels=workload.cluster.levels, nodes=tuple(nodes)),
        node_events=tuple(event for event in workload.node_events if event.node in names),
        team_nodes={team: tuple(node.name for node in kept.get(team, ())) for team in workload.team_nodes},
        notes=(*workload.notes, note + (f"; {too_large} jobs are larger than that" if too_large else "")),
    )


def scale_demand(workload: Workload, factor: float, seed: int) -> Workload:
    """Offer ``factor`` times the work: a part of the jobs, or all of them and copies.

    Jobs are taken evenly from each team's, ordered by GPU-seconds, so that the demand is met nearly and each team keeps
    its mix. Copies have ids ending in ``+1`` … and are submitted within half an hour of the original.

    Raises
    ------
    InputError
        When the factor is not above 0.
    """
    if not factor > 0:
        raise InputError([Issue("range", "demand", f"a factor of {factor} leaves no job; give one above 0")])
    rng = np.random.default_rng([seed, 1])
    jobs: list[WorkJob] = []
    for team in sorted({job.budget for job in workload.jobs}):
        mine = sorted((j for j in workload.jobs if j.budget == team), key=lambda j: (j.size * j.work_s, j.id))
        steps = np.floor(np.arange(len(mine) + 1) * factor + rng.random()).astype(np.int64)
        for job, copies in zip(mine, np.diff(steps).tolist(), strict=True):
            jobs += [job] * (copies > 0)
            for copy in range(1, copies):
                shift = int(rng.integers(-_JITTER_S, _JITTER_S + 1))
                jobs.append(replace(job, id=f"{job.id}+{copy}", submitted_s=max(0, job.submitted_s + shift)))
    jobs.sort(key=lambda job: (job.submitted_s, job.order, job.id))
    before, after = _gpu_s(workload.jobs), _gpu_s(jobs)
    note = f"demand scaled by {factor:g}, seed {seed}: {len(workload.jobs):,} jobs to {len(jobs):,}"
    note += f", GPU time by {after / before:.3f}" if before else ""
    return replace(workload, jobs=tuple(jobs), notes=(*workload.notes, note))


def submitted_until(workload: Workload, end_s: int) -> Workload:
    """Leave out the jobs submitted at ``end_s`` seconds or later; what happens to nodes and budgets later still does.

    Raises
    ------
    InputError
        When no job is left.
    """
    jobs = tuple(job for job in workload.jobs if job.submitted_s < end_s)
    if workload.jobs and not jobs:
        first = min(job.submitted_s for job in workload.jobs)
        message = f"leaves no job: the first is submitted after {first:,} s; give a longer time"
        raise InputError([Issue("range", "submissions", message)])
    note = f"jobs submitted in the first {end_s:,} s only: {len(workload.jobs):,} jobs to {len(jobs):,}"
    return replace(workload, jobs=jobs, notes=(*workload.notes, note))


def _gpu_s(jobs: Sequence[WorkJob]) -> int:
    return sum(job.size * job.work_s for job in jobs)


def _groups(workload: Workload) -> dict[str, list[Node]]:
    """Nodes by the team that has them, else by GPU type."""
    owner = {node: team for team, nodes in workload.team_nodes.items() for node in nodes}
    groups: dict[str, list[Node]] = {}
    for node in workload.cluster.nodes:
        groups.setdefault(owner.get(node.name, f"type {node.gpu_type}"), []).append(node)
    return groups


def _apportion(counts: Mapping[str, int], factor: float) -> dict[str, int]:
    """Scale counts to whole numbers of at least 1 whose sum is the scaled sum, by largest remainder."""
    exact = {name: count * Fraction(factor).limit_denominator(10**6) for name, count in counts.items()}
    scaled = {name: max(1, int(x)) for name, x in exact.items()}
    left = round(sum(exact.values())) - sum(scaled.values())
    for name in sorted(exact, key=lambda n: (scaled[n] - exact[n], n))[: max(0, left)]:
        scaled[name] += 1
    return scaled


def _resized(nodes: Sequence[Node], count: int) -> list[Node]:
    """The first ``count`` nodes, and copies once they are used up."""
    resized: list[Node] = []
    for i in range(count):
        node, copy = nodes[i % len(nodes)], i // len(nodes)
        if copy:
            domains = {level: f"{domain}+{copy}" for level, domain in node.domains.items()}
            node = node.model_copy(update={"name": f"{node.name}+{copy}", "domains": domains})
        resized.append(node)
    return resized
