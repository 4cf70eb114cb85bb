"""Delivered of owed, per leaf and in total, and the ratio charged / owed over time (policy section 9)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cpalloc.sim.history import FloatArray, IntArray
from cpalloc.sim.measures.capacity import share
from cpalloc.sim.measures.steps import HOUR_S, bin_edges, held_per_group, level_integral, step_at
from cpalloc.sim.measures.view import View


@dataclass(frozen=True, slots=True)
class DeliveryHours:
    """Per leaf and hour, shape (L, H) each, in GPU-seconds.

    ``owed = min(entitled, demanded)``, where ``entitled`` is share × in-service GPUs and ``demanded`` the GPUs of
    allocatable jobs that were submitted and not gone, both integrated over the hour. ``delivered`` is allocated time;
    ``borrowed`` time does not count as delivered.
    """

    edges_s: IntArray
    entitled: FloatArray
    demanded: IntArray
    owed: FloatArray
    delivered: IntArray
    borrowed: IntArray


@dataclass(frozen=True, slots=True)
class LeafDelivery:
    """Delivered of owed of one leaf budget; None where nothing was owed.

    ``hour_capped``: Σ_h min(delivered_h, owed_h) / Σ_h owed_h. ``total_capped``: min(Σ delivered, Σ owed) / Σ owed.
    ``last_ratio``: charged / owed over the window at the last sample.
    """

    leaf: str
    owed_gpu_hours: float
    demanded_gpu_hours: float
    delivered_gpu_hours: float
    borrowed_gpu_hours: float
    hour_capped: float | None
    total_capped: float | None
    last_ratio: float | None


@dataclass(frozen=True, slots=True)
class Delivery:
    """Delivered of owed in total, capped leaf by leaf before adding up, and the leaf that did worst (hour-capped)."""

    owed_gpu_hours: float
    delivered_gpu_hours: float
    hour_capped: float | None
    total_capped: float | None
    worst_leaf: str | None
    worst_hour_capped: float | None
    leaves: tuple[LeafDelivery, ...]


def delivery_hours(v: View) -> DeliveryHours:
    """Owed and delivered GPU-seconds of each leaf in each hour since the end of the warm-up."""
    h, jobs, runs = v.history, v.jobs, v.runs
    edges, leaves = bin_edges(v.from_s, h.end_s), len(h.leaf_names)
    asks = jobs.may_allocate & jobs.admitted
    demanded = held_per_group(
        jobs.leaf[asks], leaves, jobs.submitted_s[asks], jobs.left_s[asks], jobs.size[asks], edges
    )
    by_mode = [
        held_per_group(runs.leaf[m], leaves, runs.start_s[m], runs.end_s[m], runs.size[m], edges)
        for m in (runs.allocated, ~runs.allocated)
    ]
    entitled = _entitled(v, edges)
    return DeliveryHours(edges, entitled, demanded, np.minimum(entitled, demanded), *by_mode)


def _entitled(v: View, edges_s: IntArray) -> FloatArray:
    """Integral of share × in-service GPUs per leaf and hour, shape (L, H)."""
    h = v.history
    at = np.union1d(h.share_s, h.capacity_s)
    gpus = np.where(at >= h.capacity_s[0], h.capacity_gpus[step_at(h.capacity_s, at)], 0)
    level = h.share[step_at(h.share_s, at)] * gpus[:, None]
    hours = [level_integral(at, level[:, leaf], edges_s) for leaf in range(len(h.leaf_names))]
    return np.array(hours, dtype=np.float64).reshape(len(h.leaf_names), len(edges_s) - 1)


def delivery(v: View) -> Delivery:
    """Delivered of owed over the history after its warm-up."""
    hours = delivery_hours(v)
    capped = np.minimum(hours.delivered, hours.owed).sum(axis=1)
    owed, delivered = hours.owed.sum(axis=1), hours.delivered.sum(axis=1)
    demanded, borrowed = hours.demanded.sum(axis=1), hours.borrowed.sum(axis=1)
    last = ratios(v)[-1:]
    leaves = tuple(
        LeafDelivery(
            leaf=name,
            owed_gpu_hours=float(owed[i]) / HOUR_S,
            demanded_gpu_hours=float(demanded[i]) / HOUR_S,
            delivered_gpu_hours=float(delivered[i]) / HOUR_S,
            borrowed_gpu_hours=float(borrowed[i]) / HOUR_S,
            hour_capped=share(float(capped[i]), float(owed[i])),
            total_capped=share(float(min(delivered[i], owed[i])), float(owed[i])),
            last_ratio=float(last[0, i]) if len(last) and np.isfinite(last[0, i]) else None,
        )
        for i, name in enumerate(v.history.leaf_names)
    )
    worst = min(((x.hour_capped, x.leaf) for x in leaves if x.hour_capped is not None), default=(None, None))
    return Delivery(
        owed_gpu_hours=float(owed.sum()) / HOUR_S,
        delivered_gpu_hours=float(delivered.sum()) / HOUR_S,
        hour_capped=share(float(capped.sum()), float(owed.sum())),
        total_capped=share(float(np.minimum(delivered, owed).sum()), float(owed.sum())),
        worst_leaf=worst[1],
        worst_hour_capped=worst[0],
        leaves=leaves,
    )


def ratios(v: View) -> FloatArray:
    """Charged / owed over the window of each leaf at each sample, shape (T, L); NaN where nothing is owed."""
    samples = v.history.samples
    owed = samples.owed.astype(np.float64)
    return np.divide(samples.charged, owed, out=np.full_like(owed, np.nan), where=owed > 0)
