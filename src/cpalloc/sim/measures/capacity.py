"""What the cluster had and how much of it was held: availability, occupancy, borrowed share (policy section 9)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cpalloc.sim.history import IntArray
from cpalloc.sim.measures.steps import HOUR_S, bin_edges, held_per_bin, integral
from cpalloc.sim.measures.view import View


@dataclass(frozen=True, slots=True)
class CapacityBins:
    """GPU-seconds per bin, shape (H,) each: ``in_service = allocated + borrowed + idle``.

    ``off_service``: held on draining nodes, in none of the others.
    """

    edges_s: IntArray
    in_service: IntArray
    allocated: IntArray
    borrowed: IntArray
    idle: IntArray
    off_service: IntArray


@dataclass(frozen=True, slots=True)
class Capacity:
    """Capacity over the whole span; shares in 0 … 1, None where there is nothing to divide by.

    Attributes
    ----------
    availability
        In-service / installed GPU-hours.
    occupancy
        (allocated + borrowed) / in-service GPU-hours.
    borrowed_share
        borrowed / (allocated + borrowed).
    off_service_gpu_hours
        Held on draining nodes; apart, so that occupancy never exceeds 1.
    """

    installed_gpu_hours: float
    in_service_gpu_hours: float
    allocated_gpu_hours: float
    borrowed_gpu_hours: float
    idle_gpu_hours: float
    off_service_gpu_hours: float
    availability: float | None
    occupancy: float | None
    borrowed_share: float | None


def capacity_bins(v: View, edges_s: IntArray) -> CapacityBins:
    """In-service, allocated, borrowed and idle GPU-seconds between edges."""
    h, runs, off = v.history, v.runs, v.off_service
    in_service = np.diff(integral(h.capacity_s, np.diff(h.capacity_gpus, prepend=0), edges_s))
    held = []
    for mode in (runs.allocated, ~runs.allocated):
        away = mode[off.run]
        everywhere = held_per_bin(runs.start_s[mode], runs.end_s[mode], runs.size[mode], edges_s)
        held.append(everywhere - held_per_bin(off.start_s[away], off.end_s[away], off.gpus[away], edges_s))
    allocated, borrowed = held
    return CapacityBins(
        edges_s=edges_s,
        in_service=in_service,
        allocated=allocated,
        borrowed=borrowed,
        idle=in_service - allocated - borrowed,
        off_service=held_per_bin(off.start_s, off.end_s, off.gpus, edges_s),
    )


def capacity(v: View) -> Capacity:
    """Capacity over the history after its warm-up."""
    h = v.history
    bins = capacity_bins(v, bin_edges(v.from_s, h.end_s, max(1, h.end_s - v.from_s)))
    installed = h.installed_gpus * (h.end_s - v.from_s)
    in_service, allocated, borrowed = (int(x.sum()) for x in (bins.in_service, bins.allocated, bins.borrowed))
    return Capacity(
        installed_gpu_hours=installed / HOUR_S,
        in_service_gpu_hours=in_service / HOUR_S,
        allocated_gpu_hours=allocated / HOUR_S,
        borrowed_gpu_hours=borrowed / HOUR_S,
        idle_gpu_hours=int(bins.idle.sum()) / HOUR_S,
        off_service_gpu_hours=int(bins.off_service.sum()) / HOUR_S,
        availability=share(in_service, installed),
        occupancy=share(allocated + borrowed, in_service),
        borrowed_share=share(borrowed, allocated + borrowed),
    )


def share(part: float, whole: float) -> float | None:
    """``part / whole``; None where there is no whole."""
    return part / whole if whole else None
