"""The mix of gang shapes that fragmentation is measured against when the request gives none (policy section 8)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from cpalloc.problem.problem import Shape

MAX_SHAPES = 64
"""Most shapes a default mix keeps."""


def default_shape_mix(
    jobs: Iterable[tuple[int, int, int, int]], whole_nodes: Iterable[tuple[int, int]]
) -> tuple[Shape, ...]:
    """Shapes of the round's own jobs, one each, plus one whole node of each pool.

    Equal shapes are added up into one with their number as weight; nothing else is merged. Up to 64 shapes all are
    kept; of more, the 64 with the largest weight x size (ties: the first in the answer's order), so that a round of
    many odd sizes stays cheap to measure.

    Parameters
    ----------
    jobs
        ``(replicas, gpus_per_replica, level, pool)`` of each pending or running job that could run. ``level`` indexes
        ``Topology.levels``: the required level, else the preferred one, else 0 (cluster). ``pool`` -1: any.
    whole_nodes
        ``(gpus, pool)`` of one whole node of each pool. It has one replica, so its level does not matter: 0.

    Returns
    -------
    tuple of Shape
        Sorted by level, replicas, gpus_per_replica, pool. Shapes without a GPU are left out.
    """
    weight = Counter(jobs)
    weight.update((1, gpus, 0, pool) for gpus, pool in whole_nodes)
    shapes = [
        Shape(replicas=replicas, gpus_per_replica=gpus, level=level, weight=count, pool=pool)
        for (replicas, gpus, level, pool), count in weight.items()
        if replicas > 0 and gpus > 0
    ]
    shapes.sort(key=_order)
    heaviest = sorted(shapes, key=lambda shape: -shape.weight * shape.size)[:MAX_SHAPES]
    return tuple(sorted(heaviest, key=_order))


def _order(shape: Shape) -> tuple[int, int, int, int]:
    return shape.level, shape.replicas, shape.gpus_per_replica, shape.pool
