"""What running jobs hold on the nodes, and what is left."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from cpalloc.problem.compile.nodes import Hardware
from cpalloc.problem.compile.stays import Stays
from cpalloc.problem.problem import BoolArray, Held, IntArray, JobState, Nodes, NodeState


@dataclass(frozen=True, slots=True)
class _Taken:
    """GPUs taken per node, by jobs that go on and by stopping ones, and the devices of the latter where any are."""

    used: IntArray
    stop_used: IntArray
    stop_mask: dict[int, int]


def occupancy(
    hw: Hardware, state: IntArray, resources: IntArray, exclusive: BoolArray, stays: Stays
) -> tuple[Nodes, Held]:
    """What is free on every node after forced ends, and what each evictable job would free.

    Stopping jobs keep their GPUs from everybody; where counts only are known they are taken to hold GPUs of their own
    as far as the node has them. A job with exclusive nodes holds everything its nodes have left.
    """
    n_nodes = len(hw.names)
    of = state[stays.job]
    goes_on, stops = (of == JobState.FIXED) | (of == JobState.EVICTABLE), of == JobState.STOPPING
    there = goes_on | stops
    unknown, company = np.zeros(n_nodes, dtype=np.bool_), np.zeros(n_nodes, dtype=np.bool_)
    known = np.array([mask >= 0 for mask in stays.devices], dtype=np.bool_)
    unknown[stays.node[there & ~known]] = True
    company[stays.node[there & (of != JobState.EVICTABLE)]] = True
    used_resources = np.zeros((n_nodes, len(hw.resource_names)), dtype=np.int64)
    if hw.resource_names:
        amounts = resources[stays.job[goes_on]] * stays.replicas[goes_on, None]
        np.add.at(used_resources, stays.node[goes_on], amounts)
    stop_mask: dict[int, int] = defaultdict(int)
    for row in np.flatnonzero(stops & known).tolist():
        stop_mask[int(stays.node[row])] |= stays.devices[row]
    taken = _Taken(_gpus_on(stays, goes_on, n_nodes), _gpus_on(stays, stops, n_nodes), stop_mask)
    free, free_mask = _free(hw, stays, there & known, unknown, taken)
    held = _held(hw, stays, of == JobState.EVICTABLE, resources, exclusive, unknown, taken, free, free_mask)
    for n in np.unique(stays.node[there & exclusive[stays.job]]).tolist():
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
        free_resources=np.where(ready[:, None], hw.resources - used_resources, 0),
        groups=hw.groups,
        unknown_devices=unknown,
        company=company,
    )
    return nodes, held


def _gpus_on(stays: Stays, rows: BoolArray, n_nodes: int) -> IntArray:
    total = np.zeros(n_nodes, dtype=np.int64)
    np.add.at(total, stays.node[rows], stays.gpus[rows])
    return total


def _free(hw: Hardware, stays: Stays, rows: BoolArray, unknown: BoolArray, taken: _Taken) -> tuple[IntArray, list[int]]:
    """GPUs free on every node, as numbers and as masks (-1 where ``unknown``); ``rows`` hold known devices."""
    ready, free_mask = hw.state == NodeState.READY, list(hw.healthy_devices)
    for row, n in zip(np.flatnonzero(rows).tolist(), stays.node[rows].tolist(), strict=True):
        free_mask[n] &= ~stays.devices[row]
    for n in np.flatnonzero(~ready).tolist():
        free_mask[n] = 0
    free = np.where(ready, np.maximum(hw.healthy - taken.used - taken.stop_used, 0), 0)
    for n in np.unique(stays.node[rows]).tolist():
        if not unknown[n]:
            free[n] = free_mask[n].bit_count()
    for n in np.flatnonzero(unknown).tolist():
        free_mask[n] = -1
    return free, free_mask


def _held(
    hw: Hardware,
    stays: Stays,
    evictable: BoolArray,
    resources: IntArray,
    exclusive: BoolArray,
    unknown: BoolArray,
    taken: _Taken,
    free: IntArray,
    free_mask: list[int],
) -> Held:
    rows = np.flatnonzero(evictable & (hw.state[stays.node] == NodeState.READY))
    job, node, gpus = stays.job[rows], stays.node[rows], stays.gpus[rows]
    # Held beyond the healthy GPUs: what one job gives back may be what nobody should have.
    gpus = np.maximum(gpus - np.maximum(taken.used + taken.stop_used - hw.healthy, 0)[node], 0)
    alone, masks = exclusive[job].tolist(), []
    for i, (row, n, counted) in enumerate(zip(rows.tolist(), node.tolist(), unknown[node].tolist(), strict=True)):
        mask = -1
        if not counted:
            mask = stays.devices[row] & hw.healthy_devices[n] & ~taken.stop_mask.get(n, 0)
            gpus[i] = mask.bit_count()
        if alone[i]:
            gpus[i] += free[n]
            mask = mask | free_mask[n] if mask >= 0 else -1
        masks.append(mask)
    return Held(job, node, gpus, tuple(masks), resources[job] * stays.replicas[rows, None])
