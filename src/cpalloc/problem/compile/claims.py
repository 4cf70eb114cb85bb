"""Demand and protection of every leaf, and the entitlement and claim they lead to (policy section 3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from cpalloc.entitlement import Asked, Tree, claims, entitlements
from cpalloc.problem.compile.budgets import Funding
from cpalloc.problem.compile.stays import Stays
from cpalloc.problem.problem import BoolArray, Budgets, IntArray, Jobs, JobState, Mode, Nodes, NodeState, Policy


def budget_arrays(
    fund: Funding,
    jobs: Jobs,
    nodes: Nodes,
    stays: Stays,
    in_service_fit: Sequence[frozenset[int]],
    policy: Policy,
) -> Budgets:
    """The budgets with their demand, protected, claimed and entitled GPUs."""
    num_pools = int(nodes.pool.max(initial=-1)) + 1
    capacity, protected = _pools(fund, jobs, nodes, stays, num_pools)
    wants = _demand(fund, jobs, nodes, stays, in_service_fit, num_pools)
    tree = Tree(
        names=fund.names,
        parent=fund.parent.tolist(),
        owed=fund.owed.tolist(),
        charged=fund.charged.tolist(),
        cap=fund.max_gpus.tolist(),
    )
    h = policy.charge_horizon_s
    return Budgets(
        names=fund.names,
        parent=fund.parent,
        leaf_vertex=fund.leaf_vertex,
        leaves_below=fund.leaves_below,
        share=fund.share,
        owed=fund.owed,
        charged=fund.charged,
        demand=np.array([sum(gpus for _, gpus in asked) for asked in wants], dtype=np.int64),
        protected=protected.sum(axis=1),
        claim=np.array(claims(tree, capacity, wants, h), dtype=np.int64),
        entitled=np.array(entitlements(tree, capacity, protected.tolist(), wants, h), dtype=np.int64),
        max_gpus=fund.max_gpus,
        max_borrowed=fund.max_borrowed,
    )


def _pools(fund: Funding, jobs: Jobs, nodes: Nodes, stays: Stays, num_pools: int) -> tuple[list[int], IntArray]:
    """GPUs of every pool that there are to claim, and per leaf and pool those that are protected.

    What protected jobs still hold on draining nodes counts for both.
    """
    capacity = np.zeros(num_pools, dtype=np.int64)
    ready = nodes.state == NodeState.READY
    np.add.at(capacity, nodes.pool[ready], nodes.healthy[ready])
    protected = np.zeros((len(fund.leaf_vertex), num_pools), dtype=np.int64)
    counts = jobs.protected & (jobs.state == JobState.FIXED) & (jobs.leaf >= 0)
    rows = np.flatnonzero(counts[stays.job])
    node, gpus = stays.node[rows], stays.gpus[rows]
    np.add.at(protected, (jobs.leaf[stays.job[rows]], nodes.pool[node]), gpus)
    leaves = nodes.state[node] == NodeState.DRAINING
    np.add.at(capacity, nodes.pool[node[leaves]], gpus[leaves])
    return capacity.tolist(), protected


def _demand(
    fund: Funding, jobs: Jobs, nodes: Nodes, stays: Stays, fits: Sequence[frozenset[int]], num_pools: int
) -> list[list[Asked]]:
    """Per leaf, GPUs of its allocatable jobs by the pools they accept.

    Pending jobs that may be allocated, running allocated jobs, borrowed ones that may be promoted; forced ends only
    when they resume. Where nothing is owed nothing can be claimed beyond what is protected.
    """
    state, first = jobs.state, np.flatnonzero(np.diff(stays.job, prepend=-1))
    runs_in = np.full(len(jobs), -1, dtype=np.int64)
    runs_in[stays.job[first]] = nodes.pool[stays.node[first]]
    waits = (state == JobState.PENDING) & jobs.may_allocate & _within_caps(fund, jobs)
    ends = (state == JobState.DRAINED) | (state == JobState.STOPPING) | (state == JobState.LOST)
    goes_on = ((state == JobState.FIXED) | (state == JobState.EVICTABLE)) & (runs_in >= 0)
    goes_on &= (jobs.mode == Mode.ALLOCATED) | jobs.may_promote
    anywhere = waits | (ends & jobs.resumable & jobs.may_allocate)
    counted = np.flatnonzero((anywhere | goes_on) & (jobs.leaf >= 0) & (jobs.size > 0))
    only = [frozenset((pool,)) for pool in range(num_pools)]
    demand: list[Counter[frozenset[int]]] = [Counter() for _ in fund.leaf_vertex]
    columns = (counted.tolist(), jobs.leaf[counted].tolist(), jobs.size[counted].tolist(), runs_in[counted].tolist())
    for (j, leaf, size, pool), stay in zip(zip(*columns, strict=True), goes_on[counted].tolist(), strict=True):
        accepted = only[pool] if stay else fits[j]
        if accepted:
            demand[leaf][accepted] += size
    return [sorted(asked.items(), key=lambda row: sorted(row[0])) for asked in demand]


def _within_caps(fund: Funding, jobs: Jobs) -> BoolArray:
    """Whether each job alone is within the caps of its budgets; shape (J,)."""
    most = np.full(len(fund.leaf_vertex) + 1, np.iinfo(np.int64).max)  # one more for jobs of no leaf
    if (fund.max_gpus >= 0).any():
        for leaf, vertex in enumerate(fund.leaf_vertex.tolist()):
            while vertex >= 0:
                if fund.max_gpus[vertex] >= 0:
                    most[leaf] = min(most[leaf], fund.max_gpus[vertex])
                vertex = int(fund.parent[vertex])
    within: BoolArray = jobs.size <= most[jobs.leaf]
    return within
