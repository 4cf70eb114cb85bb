"""Delivered of owed and waits by class (policy section 9): pure functions of a history, exact fractions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

Amount = int | Fraction
"""GPUs held over an hour on average, or GPU-seconds in it; one unit throughout a call."""

DEBUG_GPUS = 8
DEBUG_MIN_RUNTIME_S = 15 * 60
LARGE_PART_OF_POOL = 8


@dataclass(frozen=True, slots=True)
class Delivered:
    """Delivered of owed over a span.

    ``owed`` and ``delivered`` are the plain sums over the hours, in the unit they were given in. ``hour_capped`` and
    ``total_capped`` are in 0 ... 1, exact; None where nothing was owed.
    """

    owed: Fraction
    delivered: Fraction
    hour_capped: Fraction | None
    total_capped: Fraction | None


def ratio(charged: int, owed: int) -> Fraction | None:
    """A budget's charged / owed, both in GPU-seconds, exact; None where nothing is owed (infinite)."""
    return Fraction(charged, owed) if owed else None


def owed_in_hour(share: Fraction, in_service: Amount, demand: Amount) -> Fraction:
    """``owed_h = min(share × in-service, demand_h)``: nobody is owed more than it asked for.

    Parameters
    ----------
    share
        The leaf's share of the cluster, 0 ... 1.
    in_service, demand
        In-service capacity and the leaf's demand in the hour, in GPUs or GPU-seconds.
    """
    return min(share * in_service, Fraction(demand))


def delivered_of_owed(delivered: Sequence[Amount], owed: Sequence[Amount]) -> Delivered:
    """Delivered of owed of one leaf.

    Hour-capped ``Σ_h min(delivered_h, owed_h) / Σ_h owed_h``: hours above what was owed do not make up for hours below.
    Total-capped ``min(Σ_h delivered_h, Σ_h owed_h) / Σ_h owed_h``: they do.

    Parameters
    ----------
    delivered
        Allocated GPUs or GPU-seconds per hour; borrowed ones do not count.
    owed
        :func:`owed_in_hour` of the same hours.

    Raises
    ------
    ValueError
        When the two differ in length.
    """
    return delivered_in_total([(delivered, owed)])


def delivered_in_total(leaves: Iterable[tuple[Sequence[Amount], Sequence[Amount]]]) -> Delivered:
    """Delivered of owed over several leaves, each given as (delivered, owed) per hour.

    Both ways cap leaf by leaf before adding up, so that what one leaf got beyond its due never hides what another
    lacks; weighted by what each was owed.

    Raises
    ------
    ValueError
        When a leaf's two sequences differ in length.
    """
    owed = delivered = by_hour = in_total = Fraction(0)
    for got, due in leaves:
        leaf_got, leaf_due = Fraction(sum(got)), Fraction(sum(due))
        by_hour += sum(min(Fraction(g), Fraction(d)) for g, d in zip(got, due, strict=True))
        in_total += min(leaf_got, leaf_due)
        delivered += leaf_got
        owed += leaf_due
    return Delivered(
        owed=owed,
        delivered=delivered,
        hour_capped=by_hour / owed if owed else None,
        total_capped=in_total / owed if owed else None,
    )


class JobClass(StrEnum):
    """Classes by which waits are reported."""

    DEBUG = "debug"
    INTERACTIVE = "interactive"
    SINGLE_NODE = "single-node"
    MULTI_NODE = "multi-node"
    LARGE = "large"


def job_class(
    *,
    replicas: int,
    gpus_per_replica: int,
    min_runtime_s: int,
    interactive: bool,
    pool_gpus: int,
    node_gpus: int,
    max_per_node: int = 0,
) -> JobClass:
    """Class of a job; the first that applies of the following.

    interactive: ``kind: interactive``. debug: at most 8 GPUs and min_runtime at most 15 minutes. large: at least 1/8 of
    its pool. single-node: all replicas can share one node of its pool. multi-node: the rest.

    Parameters
    ----------
    replicas, gpus_per_replica, min_runtime_s, interactive, max_per_node
        The job's; ``max_per_node`` 0 = no limit.
    pool_gpus
        Installed GPUs of the pool it ran in; of the largest it accepts, while it waits.
    node_gpus
        GPUs of the largest node of that pool.
    """
    size = replicas * gpus_per_replica
    if interactive:
        return JobClass.INTERACTIVE
    if size <= DEBUG_GPUS and min_runtime_s <= DEBUG_MIN_RUNTIME_S:
        return JobClass.DEBUG
    if size * LARGE_PART_OF_POOL >= pool_gpus:
        return JobClass.LARGE
    if size <= node_gpus and (max_per_node == 0 or replicas <= max_per_node):
        return JobClass.SINGLE_NODE
    return JobClass.MULTI_NODE


@dataclass(frozen=True, slots=True)
class WaitQuantiles:
    """How long jobs of a class waited, in the unit given; None where there was no job."""

    count: int
    p50: int | None
    p90: int | None
    p99: int | None


def nearest_rank(ordered: Sequence[int], percent: int) -> int | None:
    """The ⌈percent/100 · n⌉-th smallest of n values sorted ascending (at least the first); None where n = 0.

    Always one of the values, never interpolated.
    """
    rank = max(1, -(-percent * len(ordered) // 100))
    return ordered[rank - 1] if ordered else None


def waits(classes: Mapping[JobClass, Iterable[int]]) -> dict[JobClass, WaitQuantiles]:
    """Median, p90 and p99 of the waits of each class, by :func:`nearest_rank`.

    Parameters
    ----------
    classes
        Waits (integers of one unit, e.g. seconds) of the jobs of each class; classes left out had no job.

    Returns
    -------
    dict
        Every class of :class:`JobClass`, in its order.
    """
    result = {}
    for name in JobClass:
        ordered = sorted(classes.get(name, ()))
        p50, p90, p99 = (nearest_rank(ordered, percent) for percent in (50, 90, 99))
        result[name] = WaitQuantiles(len(ordered), p50, p90, p99)
    return result
