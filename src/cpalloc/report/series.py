"""Series over time for charts: bins wide enough that a line can be read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cpalloc.sim.history import FloatArray, IntArray
from cpalloc.sim.measures import View
from cpalloc.sim.measures.capacity import capacity_bins
from cpalloc.sim.measures.delivery import delivery_hours, ratios
from cpalloc.sim.measures.steps import HOUR_S, bin_edges

DAY_S = 86_400
MOST_BINS = 96
_STEPS_H = (1, 2, 3, 6, 12, 24, 48, 168)


def step_s(start_s: int, end_s: int, most: int = MOST_BINS) -> int:
    """Width of bins so that there are at most ``most`` (weeks at the widest)."""
    hours = (end_s - start_s) / HOUR_S
    return HOUR_S * next((step for step in _STEPS_H if hours / step <= most), _STEPS_H[-1])


@dataclass(frozen=True, slots=True)
class HeldSeries:
    """Mean GPUs per bin; ``days`` are the starts of the bins, shape (B,)."""

    days: FloatArray
    in_service: FloatArray
    allocated: FloatArray
    borrowed: FloatArray


def held(v: View, most: int = MOST_BINS) -> HeldSeries:
    """GPUs in service and held over time."""
    h = v.history
    bins = capacity_bins(v, bin_edges(h.start_s, h.end_s, step_s(h.start_s, h.end_s, most)))
    length = np.maximum(np.diff(bins.edges_s), 1)
    return HeldSeries(
        bins.edges_s[:-1] / DAY_S, bins.in_service / length, bins.allocated / length, bins.borrowed / length
    )


@dataclass(frozen=True, slots=True)
class OwedSeries:
    """Mean GPUs per bin of each leaf, shape (L, B).

    ``met``: Σ_h min(delivered_h, owed_h) of the bin's hours, so that ``owed − met`` is what was owed and not delivered.
    """

    days: FloatArray
    owed: FloatArray
    delivered: FloatArray
    met: FloatArray


def owed(v: View, most: int = MOST_BINS) -> OwedSeries:
    """Owed and delivered GPUs over time, by leaf; sums of hours, as policy section 9 caps them."""
    h = v.history
    hours = delivery_hours(v)
    if hours.owed.shape[1] == 0:
        empty = np.zeros((len(h.leaf_names), 0))
        return OwedSeries(np.zeros(0), empty, empty, empty)
    first = np.arange(0, hours.owed.shape[1], step_s(h.start_s, h.end_s, most) // HOUR_S)
    edges = np.append(hours.edges_s[first], h.end_s)
    met = np.minimum(hours.owed, hours.delivered)
    means = (np.add.reduceat(x, first, axis=1) / np.diff(edges) for x in (hours.owed, hours.delivered, met))
    return OwedSeries(edges[:-1] / DAY_S, *means)


@dataclass(frozen=True, slots=True)
class SampledSeries:
    """Means of the samples in each bin that has some, shape (B,) and (B, L) for ``ratio``; NaN where unknown."""

    days: FloatArray
    stranded: FloatArray
    time_to_place_h: FloatArray
    largest_gang: FloatArray
    ratio: FloatArray


def sampled(v: View, most: int = MOST_BINS) -> SampledSeries:
    """Fragmentation and the leaves' ratios over time."""
    h, samples = v.history, v.history.samples
    step = step_s(h.start_s, h.end_s, most)
    bins, first = np.unique((samples.at_s - h.start_s) // step, return_index=True)

    def mean(values: FloatArray | IntArray) -> FloatArray:
        if not len(first):
            return values.astype(np.float64)
        known = np.isfinite(values)
        total = np.add.reduceat(np.where(known, values, 0.0), first, axis=0)
        count = np.add.reduceat(known.astype(np.int64), first, axis=0)
        result: FloatArray = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
        return result

    return SampledSeries(
        days=(h.start_s + bins * step) / DAY_S,
        stranded=mean(samples.stranded),
        time_to_place_h=mean(samples.time_to_place_s) / HOUR_S,
        largest_gang=mean(samples.largest_gang),
        ratio=mean(ratios(v)),
    )
