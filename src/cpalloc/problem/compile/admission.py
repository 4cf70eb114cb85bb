"""Which pending jobs may take part at all, and whether a job fits an empty cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cpalloc.problem.compile.nodes import Hardware
from cpalloc.problem.compile.terms import MAX_AMOUNT
from cpalloc.problem.problem import BoolArray, IntArray, NodeState, Policy, Refusal
from cpalloc.schema.request import Job
from cpalloc.topology import Topology

MAX_GPUS = 10**6
"""GPUs of the largest gang that is taken seriously."""


def eligible_nodes(job: Job, hw: Hardware) -> BoolArray:
    """Nodes of any state a job may use by type, labels and exclusions; shape (N,)."""
    ok = np.ones(len(hw.names), dtype=np.bool_)
    if job.gpu_types is not None:
        accepted = set(job.gpu_types)
        ok &= np.array([p in accepted for p in hw.pool_names], dtype=np.bool_)[hw.pool]
    for label in job.node_selector.items():
        there = np.zeros(len(ok), dtype=np.bool_)
        there[list(hw.labelled.get(label, ()))] = True
        ok &= there
    for name in job.exclude_nodes:
        if name in hw.index:
            ok[hw.index[name]] = False
    return ok


def empty_slots(job: Job, hw: Hardware, gpus: IntArray, devices: tuple[int, ...] | None = None) -> IntArray:
    """Replicas of a job on every node were it empty and had ``gpus`` GPUs; shape (N,)."""
    g = job.gpus_per_replica
    if job.same_gpu_group:
        masks = devices if devices is not None else tuple((1 << int(x)) - 1 for x in gpus)
        slots = np.array(
            [sum((m & group).bit_count() // g for group in gs) for m, gs in zip(masks, hw.groups, strict=True)],
            dtype=np.int64,
        )
    else:
        slots = gpus // g
    for r, name in enumerate(hw.resource_names):
        need = job.resources_per_replica.get(name, 0)
        if need:
            most = int(hw.resources[:, r].max(initial=0))
            slots = np.minimum(slots, hw.resources[:, r] // need) if need <= most else np.zeros_like(slots)
    if job.max_replicas_per_node is not None:
        slots = np.minimum(slots, min(job.max_replicas_per_node, MAX_GPUS))
    return slots


def pools_empty(job: Job, slots: IntArray, pool: IntArray, topology: Topology) -> list[int]:
    """Pools in which some domain of the required level has room for every replica."""
    level = topology.level_index(job.topology.required) if job.topology.required else 0
    domain = topology.domain_of[level]
    width, domains = int(pool.max(initial=0)) + 1, int(domain.max(initial=-1)) + 1
    room = np.bincount(domain * width + pool, weights=slots, minlength=domains * width).reshape(domains, width)
    return [int(p) for p in np.flatnonzero(room.max(axis=0, initial=0) >= job.replicas)]


@dataclass(frozen=True, slots=True)
class Where:
    """Where jobs of one kind can run.

    ``ever``: whether their sizes make sense and they would fit were all listed nodes, of any state, empty. ``ready``:
    ready nodes they may use, shape (N,). ``pools``: those in which they would fit were the ready nodes empty.
    ``resources``: what a replica needs of each of ``Hardware.resource_names``, at most ``MAX_AMOUNT``.
    """

    ever: bool
    ready: BoolArray
    pools: frozenset[int]
    resources: tuple[int, ...]


def where(job: Job, hw: Hardware, topology: Topology) -> Where:
    """Where a job, and every other of its kind, can run."""
    needs = tuple(min(job.resources_per_replica.get(name, 0), MAX_AMOUNT) for name in hw.resource_names)
    eligible = eligible_nodes(job, hw)
    ready = eligible & (hw.state == NodeState.READY)
    if job.replicas < 1 or job.gpus_per_replica < 1:
        return Where(False, np.zeros_like(ready), frozenset(), needs)
    pools = np.unique(hw.pool[ready]).tolist()
    if job.topology.required is not None and job.topology.required not in topology.levels:
        return Where(False, ready, frozenset(pools), needs)
    if job.replicas * job.gpus_per_replica > MAX_GPUS:
        return Where(False, ready, frozenset(), needs)
    slots = np.where(ready, empty_slots(job, hw, hw.healthy, hw.healthy_devices), 0)
    now = pools_empty(job, slots, hw.pool, topology)
    ever = pools_empty(job, np.where(eligible, empty_slots(job, hw, hw.gpus), 0), hw.pool, topology)
    return Where(bool(ever), ready, frozenset(now), needs)


def refusal(
    job: Job,
    *,
    policy: Policy,
    hw: Hardware,
    topology: Topology,
    leaf_of: Mapping[str, int],
    interior: frozenset[str],
    owed: IntArray,
    now_us: int,
    submitted_us: int,
    allocated: bool,
    borrowed: bool,
) -> Refusal | None:
    """Why a pending job waits whatever else is decided, or None. Messages tell its user what to change."""
    bad = _terms(job, policy=policy, topology=topology, hw=hw, now_us=now_us, submitted_us=submitted_us)
    if job.budget in interior:
        bad = f"budget {job.budget} has sub-budgets; jobs belong to one of those"
    elif job.budget not in leaf_of:
        bad = f"there is no budget {job.budget}; check its name or ask for it to be funded"
    if bad:
        return Refusal("inadmissible", bad)
    if allocated and not borrowed and owed[leaf_of[job.budget]] == 0:
        return Refusal(
            "no_funding",
            f"budget {job.budget} is owed nothing, so it cannot fund allocated work; run it borrowed (min_runtime 0)",
        )
    eligible = eligible_nodes(job, hw)
    if not eligible.any():
        return Refusal("never_fits", _nowhere(job))
    slots = np.where(eligible, empty_slots(job, hw, hw.gpus), 0)
    if pools_empty(job, slots, hw.pool, topology):
        return None
    return Refusal("never_fits", _too_large(job, slots, hw, topology))


def _terms(job: Job, *, policy: Policy, topology: Topology, hw: Hardware, now_us: int, submitted_us: int) -> str | None:
    if job.replicas < 1 or job.gpus_per_replica < 1:
        return f"asks for {job.replicas} replicas of {job.gpus_per_replica} GPUs; both must be at least 1"
    if job.replicas * job.gpus_per_replica > MAX_GPUS:
        return f"asks for {job.replicas * job.gpus_per_replica:,} GPUs; no cluster here has so many"
    if job.min_runtime > policy.max_min_runtime_s and (job.funding is None or job.funding != "borrowed"):
        return (
            f"min_runtime of {job.min_runtime} s is over the maximum of {policy.max_min_runtime_s} s; "
            "lower it, or checkpoint more often"
        )
    if submitted_us > now_us:
        return "was submitted in the future; check the clock of the machine it came from"
    if job.max_replicas_per_node is not None and job.max_replicas_per_node < 1:
        return "max_replicas_per_node must be at least 1"
    for level in (job.topology.required, job.topology.preferred):
        if level is not None and level not in topology.levels:
            return f"there is no topology level {level!r}; this cluster has {', '.join(topology.levels)}"
    if job.gpu_types is not None and not set(job.gpu_types) & set(hw.pool_names):
        return (
            f"no node has GPU type {' or '.join(job.gpu_types) or '(none given)'}; here are {', '.join(hw.pool_names)}"
        )
    return None


def _nowhere(job: Job) -> str:
    parts = []
    if job.node_selector:
        parts.append("labels " + ", ".join(f"{k}={v}" for k, v in sorted(job.node_selector.items())))
    if job.exclude_nodes:
        parts.append(f"{len(job.exclude_nodes)} excluded nodes")
    if job.gpu_types is not None:
        parts.append("GPU type " + " or ".join(job.gpu_types))
    return "no node meets " + (" and ".join(parts) or "its terms")


def _too_large(job: Job, slots: IntArray, hw: Hardware, topology: Topology) -> str:
    level = job.topology.required or "cluster"
    domain = topology.domain_of[topology.level_index(level)]
    width = int(hw.pool.max(initial=0)) + 1
    best = int(np.bincount(domain * width + hw.pool, weights=slots).max(initial=0))
    where = "the whole cluster, of one GPU type," if level == "cluster" else f"the largest {level}"
    each = f"{job.gpus_per_replica} GPU{'s' if job.gpus_per_replica > 1 else ''}"
    replicas = "1 replica" if job.replicas == 1 else f"{job.replicas} replicas"
    extra = ", ".join(f"{v} {k}" for k, v in sorted(job.resources_per_replica.items()))
    return (
        f"needs {replicas} of {each}{' and ' + extra if extra else ''}; {where} could hold {best} of them were it empty"
    )
