"""Demand and protection of every leaf, and the entitlement and claim they lead to (policy section 3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from cpalloc.entitlement import Tree, claims, entitlements
from cpalloc.problem.compile.budgets import Funding
from cpalloc.problem.problem import BoolArray, Budgets, Jobs, JobState, Mode, Nodes, NodeState, Policy


def budget_arrays(
    fund: Funding,
    jobs: Jobs,
    nodes: Nodes,
    eligibility: BoolArray,
    in_service_fit: Sequence[frozenset[int]],
    policy: Policy,
) -> Budgets:
    """The budgets with their demand, protected, claimed and entitled GPUs."""
    num_leaves = len(fund.leaf_vertex)
    num_pools = int(nodes.pool.max(initial=-1)) + 1
    demand: list[Counter[frozenset[int]]] = [Counter() for _ in range(num_leaves)]
    protected = np.zeros((num_leaves, max(num_pools, 1)), dtype=np.int64)
    capacity = [
        int(nodes.healthy[(nodes.pool == p) & (nodes.state == NodeState.READY)].sum()) for p in range(num_pools)
    ]
    for j in range(len(jobs)):
        leaf = int(jobs.leaf[j])
        if leaf < 0:
            continue
        runs_in = _pool_of(jobs, nodes, j)
        if jobs.protected[j] and jobs.state[j] == JobState.FIXED:
            for rep in jobs.placement[j]:
                if rep.node >= 0:
                    pool = int(nodes.pool[rep.node])
                    protected[leaf, pool] += rep.gpus
                    if nodes.state[rep.node] == NodeState.DRAINING:
                        capacity[pool] += rep.gpus
        size, accepts = int(jobs.size[j]), _accepts(jobs, fund, j, runs_in, in_service_fit[j])
        if size and accepts:
            demand[leaf][accepts] += size
    tree = Tree(
        names=fund.names,
        parent=fund.parent.tolist(),
        owed=fund.owed.tolist(),
        charged=fund.charged.tolist(),
        cap=fund.max_gpus.tolist(),
    )
    wants = [sorted(((p, g) for p, g in c.items()), key=lambda x: sorted(x[0])) for c in demand]
    held = protected.tolist() if num_pools else [[] for _ in range(num_leaves)]
    h = policy.charge_horizon_s
    return Budgets(
        names=fund.names,
        parent=fund.parent,
        leaf_vertex=fund.leaf_vertex,
        leaves_below=fund.leaves_below,
        share=fund.share,
        owed=fund.owed,
        charged=fund.charged,
        demand=np.array([sum(c.values()) for c in demand], dtype=np.int64),
        protected=protected.sum(axis=1),
        claim=np.array(claims(tree, capacity, wants, h), dtype=np.int64),
        entitled=np.array(entitlements(tree, capacity, held, wants, h), dtype=np.int64),
        max_gpus=fund.max_gpus,
        max_borrowed=fund.max_borrowed,
    )


def _pool_of(jobs: Jobs, nodes: Nodes, job: int) -> int:
    """The pool a running job is in; -1 for a pending job or one on absent nodes only."""
    return next((int(nodes.pool[r.node]) for r in jobs.placement[job] if r.node >= 0), -1)


def _accepts(jobs: Jobs, fund: Funding, job: int, runs_in: int, fits: frozenset[int]) -> frozenset[int]:
    """Pools in which a job counts as allocatable demand; empty when it does not count.

    Pending jobs that may be allocated, running allocated jobs, borrowed ones that may be promoted; forced ends only
    when they resume. Where nothing is owed nothing can be claimed beyond what is protected.
    """
    leaf, state = int(jobs.leaf[job]), JobState(int(jobs.state[job]))
    if state is JobState.PENDING:
        if not jobs.may_allocate[job] or not _within_caps(fund, leaf, int(jobs.size[job])):
            return frozenset()
        return fits
    if state in (JobState.DRAINED, JobState.STOPPING, JobState.LOST):
        return fits if jobs.resumable[job] and jobs.may_allocate[job] else frozenset()
    if state in (JobState.FIXED, JobState.EVICTABLE) and runs_in >= 0:
        counts = jobs.mode[job] == Mode.ALLOCATED or jobs.may_promote[job]
        return frozenset((runs_in,)) if counts else frozenset()
    return frozenset()


def _within_caps(fund: Funding, leaf: int, size: int) -> bool:
    """Whether a job alone is within the caps of its budgets."""
    vertex = int(fund.leaf_vertex[leaf])
    while vertex >= 0:
        if 0 <= fund.max_gpus[vertex] < size:
            return False
        vertex = int(fund.parent[vertex])
    return True
