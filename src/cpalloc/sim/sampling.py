"""Fragmentation of the simulated cluster at an instant (policy section 8), over a mix of shapes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from cpalloc.metrics.shape_mix import default_shape_mix
from cpalloc.problem.problem import NodeState, Shape
from cpalloc.sim.columns import NO_LEVEL
from cpalloc.sim.state import State


@dataclass(frozen=True, slots=True)
class FragmentationSample:
    """Expected stranded GPUs and time to place over a mix; GPUs of the largest gang of whole free nodes."""

    stranded: float
    time_to_place_s: float
    largest_gang: int


def workload_mix(state: State) -> tuple[Shape, ...]:
    """The workload's own mix: every job that could run, one each, and a whole node of each pool."""
    jobs, nodes = state.jobs, state.nodes
    many = len(nodes.pool_names) > 1
    rows = []
    for job in range(len(jobs)):
        if jobs.fits[job]:
            preferred = jobs.preferred_level[job]
            level = jobs.required_level[job] or (0 if preferred == NO_LEVEL else preferred)
            pool = jobs.pools[job][0] if many and len(jobs.pools[job]) == 1 else -1
            rows.append((jobs.replicas[job], jobs.gpus_per_replica[job], level, pool))
    largest = {pool: max(g for g, p in zip(nodes.gpus, nodes.pool, strict=True) if p == pool) for pool in nodes.pool}
    return default_shape_mix(rows, [(gpus, pool if many else -1) for pool, gpus in sorted(largest.items())])


def fragmentation_sample(state: State, mix: Sequence[Shape], at_s: int) -> FragmentationSample:
    """Measure the cluster as it stands at ``at_s``, which is not before ``state.now_s`` and before the next event.

    Parameters
    ----------
    state : State
    mix : sequence of Shape
        Weighed by ``weight``; what no weight is on counts 0.
    at_s : int

    Returns
    -------
    FragmentationSample
        ``Σ p(s)·stranded(s)`` in GPUs and ``Σ p(s)·time_to_place(s)`` in seconds as policy section 8 has them.
    """
    releases = _releases(state, at_s)
    free_in: dict[int, int] = defaultdict(int)
    for free, pool in zip(state.free_gpus, state.nodes.pool, strict=True):
        free_in[pool] += free
        free_in[-1] += free
    weight = stranded = waiting = 0
    slots_now: dict[tuple[int, int], list[tuple[int, int]]] = {}
    slots_later: dict[tuple[int, int], dict[tuple[int, int], list[int]]] = {}
    for shape in mix:
        key = (shape.gpus_per_replica, shape.level)
        if key not in slots_now:
            slots_now[key] = _slots_now(state, *key)
            slots_later[key] = _slots_later(state, releases, *key)
        copies = sum(n // shape.replicas for pool, n in slots_now[key] if shape.pool in (-1, pool))
        weight += shape.weight
        stranded += shape.weight * (free_in[shape.pool] - copies * shape.size)
        waiting += shape.weight * _time_to_place_s(slots_later[key], shape, state.config.site.max_min_runtime)
    return FragmentationSample(
        stranded=stranded / weight if weight else 0.0,
        time_to_place_s=waiting / weight if weight else 0.0,
        largest_gang=_largest_gang(state),
    )


def _slots_now(state: State, gpus: int, level: int) -> list[tuple[int, int]]:
    """(pool, replicas of ``gpus`` that fit now) per domain of a level and pool."""
    slots: dict[tuple[int, int], int] = defaultdict(int)
    for free, pool, domain in zip(state.free_gpus, state.nodes.pool, state.nodes.domain_of[level], strict=True):
        if free >= gpus:
            slots[pool, domain] += free // gpus
    return [(pool, n) for (pool, _), n in slots.items()]


def _slots_later(
    state: State, releases: Sequence[Sequence[int]], gpus: int, level: int
) -> dict[tuple[int, int], list[int]]:
    """When each replica of ``gpus`` could be placed, ascending, per (pool, domain of a level)."""
    slots: dict[tuple[int, int], list[int]] = defaultdict(list)
    nodes = state.nodes
    for release, pool, domain in zip(releases, nodes.pool, nodes.domain_of[level], strict=True):
        slots[pool, domain].extend(release[gpus - 1 :: gpus])
    return {key: sorted(times) for key, times in slots.items()}


def _time_to_place_s(slots: dict[tuple[int, int], list[int]], shape: Shape, cap_s: int) -> int:
    able = (
        times[shape.replicas - 1]
        for (pool, _), times in slots.items()
        if shape.pool in (-1, pool) and len(times) >= shape.replicas
    )
    return min(min(able, default=cap_s), cap_s)


def _releases(state: State, at_s: int) -> list[list[int]]:
    """Seconds until each healthy GPU of the ready nodes is not protected, ascending; empty on other nodes."""
    ready = [s is NodeState.READY for s in state.node_state]
    result: list[list[int]] = [[] for _ in ready]
    for job in state.running:
        left_s = state.protected_until_s[job] - at_s
        if left_s > 0:
            for node, devices in state.places[job]:
                if ready[node]:
                    result[node] += [left_s] * (devices & state.nodes.healthy[node]).bit_count()
    for node, times in enumerate(result):
        if ready[node]:
            times.sort()
            times[:0] = [0] * (state.nodes.healthy[node].bit_count() - len(times))
    return result


def _largest_gang(state: State) -> int:
    """GPUs of the most whole, wholly free nodes of one size and pool."""
    whole: dict[tuple[int, int], int] = defaultdict(int)
    for free, gpus, pool in zip(state.free_gpus, state.nodes.gpus, state.nodes.pool, strict=True):
        if free == gpus:
            whole[pool, gpus] += gpus
    return max(whole.values(), default=0)
