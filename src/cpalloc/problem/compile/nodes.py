"""Nodes of the request as arrays, and what running jobs hold on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cpalloc.problem.problem import BoolArray, Held, IntArray, JobState, Nodes, NodeState, Replica
from cpalloc.schema.request import Job, Node

_STATE = {"ready": NodeState.READY, "draining": NodeState.DRAINING, "down": NodeState.DOWN}


def mask_of(devices: Sequence[int]) -> int:
    """Bitmask of device indices."""
    mask = 0
    for d in devices:
        mask |= 1 << d
    return mask


@dataclass(frozen=True, slots=True)
class Hardware:
    """The nodes themselves, before any job is looked at; arrays as in :class:`Nodes`."""

    names: tuple[str, ...]
    index: Mapping[str, int]
    pool_names: tuple[str, ...]
    pool: IntArray
    state: IntArray
    gpus: IntArray
    healthy: IntArray
    healthy_devices: tuple[int, ...]
    resource_names: tuple[str, ...]
    resources: IntArray
    groups: tuple[tuple[int, ...], ...]
    labels: tuple[Mapping[str, str], ...]


def hardware(nodes: Sequence[Node], jobs: Sequence[Job]) -> Hardware:
    """Arrays of the nodes, sorted by name. Resources are all names that a node or a job mentions."""
    rows = sorted(nodes, key=lambda n: n.name)
    pools = sorted({n.gpu_type for n in rows})
    pool_index = {p: i for i, p in enumerate(pools)}
    names = sorted({r for n in rows for r in n.resources} | {r for j in jobs for r in j.resources_per_replica})
    healthy_devices = tuple(((1 << n.gpus) - 1) & ~mask_of(n.unhealthy_gpus) for n in rows)
    return Hardware(
        names=tuple(n.name for n in rows),
        index={n.name: i for i, n in enumerate(rows)},
        pool_names=tuple(pools),
        pool=np.array([pool_index[n.gpu_type] for n in rows], dtype=np.int64),
        state=np.array([_STATE[n.state] for n in rows], dtype=np.int64),
        gpus=np.array([n.gpus for n in rows], dtype=np.int64),
        healthy=np.array([m.bit_count() for m in healthy_devices], dtype=np.int64),
        healthy_devices=healthy_devices,
        resource_names=tuple(names),
        resources=np.array([[n.resources.get(r, 0) for r in names] for n in rows], dtype=np.int64).reshape(
            len(rows), len(names)
        ),
        groups=tuple(_groups(n) for n in rows),
        labels=tuple(n.labels for n in rows),
    )


def _groups(node: Node) -> tuple[int, ...]:
    """Masks of the GPU groups; GPUs in no group are a group each. Without groups all GPUs are one."""
    if not node.gpu_groups:
        return ((1 << node.gpus) - 1,)
    masks = [mask_of(g) for g in node.gpu_groups if g]
    joined = sum(masks)
    return tuple(masks + [1 << d for d in range(node.gpus) if not joined >> d & 1])


def occupancy(
    hw: Hardware,
    state: IntArray,
    resources: IntArray,
    exclusive: BoolArray,
    placement: Sequence[Sequence[Replica]],
) -> tuple[Nodes, Held]:
    """What is free on every node after forced ends, and what each evictable job would free.

    Stopping jobs keep their GPUs from everybody; where counts only are known they are taken to hold GPUs of their own
    as far as the node has them. A job with exclusive nodes holds everything its nodes have left.
    """
    n_nodes, n_res = len(hw.names), len(hw.resource_names)
    stays = [j for j in range(len(state)) if state[j] in (JobState.FIXED, JobState.EVICTABLE)]
    stopping = [j for j in range(len(state)) if state[j] == JobState.STOPPING]
    unknown = np.zeros(n_nodes, dtype=np.bool_)
    used_mask, stop_mask = [0] * n_nodes, [0] * n_nodes
    used, stop_used = np.zeros(n_nodes, dtype=np.int64), np.zeros(n_nodes, dtype=np.int64)
    used_res = np.zeros((n_nodes, n_res), dtype=np.int64)
    company = np.zeros(n_nodes, dtype=np.bool_)
    for j in stays + stopping:
        for rep in placement[j]:
            if rep.node < 0:
                continue
            n, stops = rep.node, state[j] == JobState.STOPPING
            company[n] |= state[j] != JobState.EVICTABLE
            unknown[n] |= rep.devices < 0
            if stops:
                stop_mask[n] |= max(rep.devices, 0)
                stop_used[n] += rep.gpus
            else:
                used_mask[n] |= max(rep.devices, 0)
                used[n] += rep.gpus
                used_res[n] += resources[j]
    free, free_mask = np.zeros(n_nodes, dtype=np.int64), [0] * n_nodes
    for n in range(n_nodes):
        if hw.state[n] != NodeState.READY:
            free_mask[n] = -1 if unknown[n] else 0
        elif unknown[n]:
            free[n] = max(0, int(hw.healthy[n] - used[n] - stop_used[n]))
            free_mask[n] = -1
        else:
            free_mask[n] = hw.healthy_devices[n] & ~used_mask[n] & ~stop_mask[n]
            free[n] = free_mask[n].bit_count()
    shut = {rep.node for j in stays + stopping if exclusive[j] for rep in placement[j] if rep.node >= 0}
    rows: list[tuple[int, int, int, int, IntArray]] = []
    for j in stays:
        if state[j] != JobState.EVICTABLE:
            continue
        for n in sorted({rep.node for rep in placement[j] if rep.node >= 0}):
            here = [rep for rep in placement[j] if rep.node == n]
            if hw.state[n] != NodeState.READY:
                continue
            if unknown[n]:
                # Held beyond the healthy GPUs: what one job gives back may be what nobody should have.
                excess = max(0, int(used[n] + stop_used[n] - hw.healthy[n]))
                gpus, mask = max(0, sum(rep.gpus for rep in here) - excess), -1
            else:
                mask = 0
                for rep in here:
                    mask |= rep.devices
                mask &= hw.healthy_devices[n] & ~stop_mask[n]
                gpus = mask.bit_count()
            if exclusive[j]:
                gpus, mask = gpus + int(free[n]), mask | free_mask[n] if mask >= 0 else -1
            rows.append((j, n, gpus, mask, resources[j] * len(here)))
    for n in shut:
        free[n], free_mask[n] = 0, -1 if free_mask[n] < 0 else 0
    ready = hw.state == NodeState.READY
    nodes = Nodes(
        names=hw.names,
        pool=hw.pool,
        state=hw.state,
        gpus=hw.gpus,
        healthy=hw.healthy,
        healthy_devices=hw.healthy_devices,
        free_gpus=free,
        free_devices=tuple(free_mask),
        resources=hw.resources,
        free_resources=np.where(ready[:, None], hw.resources - used_res, 0),
        groups=hw.groups,
        unknown_devices=unknown,
        company=company,
    )
    held = Held(
        job=np.array([r[0] for r in rows], dtype=np.int64),
        node=np.array([r[1] for r in rows], dtype=np.int64),
        gpus=np.array([r[2] for r in rows], dtype=np.int64),
        devices=tuple(r[3] for r in rows),
        resources=np.array([r[4] for r in rows], dtype=np.int64).reshape(len(rows), n_res),
    )
    return nodes, held
