"""Quantiles, of values that are all known and of waits that may not be over."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cpalloc.sim.history import FloatArray, IntArray
from cpalloc.sim.measures.view import BoolArray


@dataclass(frozen=True, slots=True)
class Quantile:
    """A value of which it may only be known that the truth is not below."""

    value: float
    lower_bound: bool = False


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Median, p90 and p99 (nearest rank, never interpolated), of ``count`` jobs; None where there is none.

    ``censored`` jobs had not got there by the end of the history. They count with the value reached by then, which may
    only grow. The k-th smallest value is exact when k values are known that no censored one is below; else it is
    marked as a lower bound, as is the mean with any censored job.
    """

    count: int
    censored: int
    mean: Quantile | None
    p50: Quantile | None
    p90: Quantile | None
    p99: Quantile | None


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean, median, p90, p99 and extremes of a series; samples without a value are left out."""

    mean: float
    low: float
    p50: float
    p90: float
    p99: float
    high: float


def quantiles(values: IntArray | FloatArray, censored: BoolArray, chosen: BoolArray) -> Quantiles:
    """Quantiles of the chosen values; ``censored`` marks those that may only grow. All of one shape."""
    value, unfinished = values[chosen], censored[chosen]
    n = len(value)
    ordered = np.sort(value)
    known = int(np.count_nonzero(value[~unfinished] <= value[unfinished].min())) if unfinished.any() else n

    def at(percent: int) -> Quantile | None:
        k = rank(percent, n)
        return Quantile(float(ordered[k - 1]), k > known) if n else None

    mean = Quantile(float(value.mean()), bool(unfinished.any())) if n else None
    return Quantiles(n, int(unfinished.sum()), mean, at(50), at(90), at(99))


def spread(values: FloatArray | IntArray) -> Spread | None:
    """Mean, quantiles (nearest rank) and extremes of the finite values; None where there is none."""
    known = np.sort(values[np.isfinite(values)].astype(np.float64))
    n = len(known)
    if not n:
        return None
    p50, p90, p99 = (float(known[rank(percent, n) - 1]) for percent in (50, 90, 99))
    return Spread(float(known.mean()), float(known[0]), p50, p90, p99, float(known[-1]))


def rank(percent: int, n: int) -> int:
    """Rank of a quantile among n ascending values, ⌈percent / 100 · n⌉ and at least 1 (as in ``metrics.fairness``)."""
    return max(1, -(-percent * n // 100))
