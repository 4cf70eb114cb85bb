"""The parts of a simulation that never change, as columns: plain lists, which scalar access is fastest on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from cpalloc.problem.problem import NodeState
from cpalloc.schema.types import Funding, Priority
from cpalloc.schema.types import NodeState as WireNodeState
from cpalloc.sim.workload import WorkJob
from cpalloc.topology import Cluster, to_arrays

NO_LEVEL = -1
"""``JobColumns.preferred_level`` of a job without one."""

NODE_STATES = {
    WireNodeState.READY: NodeState.READY,
    WireNodeState.DRAINING: NodeState.DRAINING,
    WireNodeState.DOWN: NodeState.DOWN,
}
"""States of nodes on the wire and inside."""

PRIORITIES = {p: i for i, p in enumerate(Priority)}
"""Priority classes as numbers, 0 (low) to 4 (immediate)."""


@dataclass(frozen=True, slots=True)
class NodeColumns:
    """Nodes in order of their names, whatever the order of the cluster's list.

    ``pool`` indexes ``pool_names``; ``gpus`` are installed, ``healthy`` is the bitmask of those that work.
    ``levels[0]`` is ``cluster`` and ``levels[-1]`` ``node``; ``domain_of[level][node]`` numbers the domains of a level.
    ``state``: as the simulation starts.
    """

    names: tuple[str, ...]
    index: dict[str, int]
    pool_names: tuple[str, ...]
    pool: list[int]
    gpus: list[int]
    healthy: list[int]
    state: list[NodeState]
    levels: tuple[str, ...]
    domain_of: list[list[int]]

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True, slots=True)
class JobColumns:
    """Jobs in the order of the workload.

    ``leaf`` indexes the leaves of the ledger; ``priority`` 0 … 4; ``min_runtime_s`` is at most the site's maximum.
    ``pools[j]``: pools the job accepts, ascending. ``required_level`` (0: cluster) and ``preferred_level`` (-1: none)
    index ``NodeColumns.levels``. ``fits``: whether the nodes could hold it were they all empty and ready.
    """

    leaf: list[int]
    submitted_s: list[int]
    replicas: list[int]
    gpus_per_replica: list[int]
    size: list[int]
    work_s: list[int]
    priority: list[int]
    min_runtime_s: list[int]
    timeout_s: list[int]
    resumable: list[bool]
    restart_cost_s: list[int]
    checkpoint_interval_s: list[int]
    may_allocate: list[bool]
    may_borrow: list[bool]
    pools: list[tuple[int, ...]]
    required_level: list[int]
    preferred_level: list[int]
    fits: list[bool]

    def __len__(self) -> int:
        return len(self.leaf)


def node_columns(cluster: Cluster) -> NodeColumns:
    """Number the nodes, pools and domains of a cluster."""
    names, topology = to_arrays(cluster)
    pools = sorted({n.gpu_type for n in cluster.nodes})
    return NodeColumns(
        names=names,
        index={name: i for i, name in enumerate(names)},
        pool_names=tuple(pools),
        pool=[pools.index(n.gpu_type) for n in cluster.nodes],
        gpus=[n.gpus for n in cluster.nodes],
        healthy=[((1 << n.gpus) - 1) & ~sum(1 << d for d in set(n.unhealthy_gpus)) for n in cluster.nodes],
        state=[NODE_STATES[n.state] for n in cluster.nodes],
        levels=topology.levels,
        domain_of=topology.domain_of.tolist(),
    )


def job_columns(
    jobs: Sequence[WorkJob], nodes: NodeColumns, leaf_of: dict[str, int], max_min_runtime_s: int
) -> JobColumns:
    """Read the jobs of a checked workload (:func:`cpalloc.sim.check.workload_issues` has nothing to say)."""
    every_pool = tuple(range(len(nodes.pool_names)))
    pool_of = {name: i for i, name in enumerate(nodes.pool_names)}
    pools = [
        tuple(sorted(pool_of[t] for t in set(j.gpu_types) if t in pool_of)) if j.gpu_types else every_pool for j in jobs
    ]
    required = [nodes.levels.index(j.required_level) if j.required_level else 0 for j in jobs]
    return JobColumns(
        leaf=[leaf_of[j.budget] for j in jobs],
        submitted_s=[j.submitted_s for j in jobs],
        replicas=[j.replicas for j in jobs],
        gpus_per_replica=[j.gpus_per_replica for j in jobs],
        size=[j.size for j in jobs],
        work_s=[j.work_s for j in jobs],
        priority=[PRIORITIES[j.priority] for j in jobs],
        min_runtime_s=[min(j.min_runtime_s, max_min_runtime_s) for j in jobs],
        timeout_s=[j.timeout_s for j in jobs],
        resumable=[j.resumable for j in jobs],
        restart_cost_s=[j.restart_cost_s for j in jobs],
        checkpoint_interval_s=[j.checkpoint_interval_s for j in jobs],
        may_allocate=[j.may_allocate and max_min_runtime_s > 0 for j in jobs],
        may_borrow=[_may_borrow(j, max_min_runtime_s) for j in jobs],
        pools=pools,
        required_level=required,
        preferred_level=[nodes.levels.index(j.preferred_level) if j.preferred_level else NO_LEVEL for j in jobs],
        fits=_fits(jobs, pools, required, nodes),
    )


def _may_borrow(job: WorkJob, max_min_runtime_s: int) -> bool:
    """Policy section 2: ``borrowed`` and ``any``, and everything without a minimum runtime."""
    return min(job.min_runtime_s, max_min_runtime_s) == 0 or job.funding in (Funding.BORROWED, Funding.ANY)


def _fits(
    jobs: Sequence[WorkJob], pools: Sequence[tuple[int, ...]], required: Sequence[int], nodes: NodeColumns
) -> list[bool]:
    known: dict[tuple[int, int, tuple[int, ...], int], bool] = {}
    result = []
    for job, accepted, level in zip(jobs, pools, required, strict=True):
        key = (job.replicas, job.gpus_per_replica, accepted, level)
        if key not in known:
            known[key] = job.replicas <= _most_replicas(job.gpus_per_replica, accepted, level, nodes)
        result.append(known[key])
    return result


def _most_replicas(gpus: int, pools: tuple[int, ...], level: int, nodes: NodeColumns) -> int:
    """Replicas that one domain of a level holds at most, in one pool, when it is empty."""
    slots: dict[tuple[int, int], int] = defaultdict(int)
    for pool, domain, healthy in zip(nodes.pool, nodes.domain_of[level], nodes.healthy, strict=True):
        if pool in pools:
            slots[pool, domain] += healthy.bit_count() // gpus
    return max(slots.values(), default=0)
