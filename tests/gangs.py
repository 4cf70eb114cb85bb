"""Gangs that wait behind allocated work, for tests of what they are promised."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from builders import HOUR, Node, Running
from cpalloc.metrics.reservations import reserve
from cpalloc.models.objectives.delay import delay_of
from cpalloc.problem.problem import Decision, Hold, Problem


def until(node: str, hours: int, gpus: int = 8) -> Running:
    """Allocated work of a budget within its share that leaves a node in so many hours."""
    name = f"{node}-{hours}"
    return Running(name, budget="z", at=node, gpus=gpus, mode="allocated", age_s=0, timeout_s=hours * HOUR)


def mostly_held(nodes: Sequence[Node], sizes: Sequence[int], rng: Random) -> list[Running]:
    """Work of such sizes on nodes of four GPUs until they are full or a size is 0; it leaves in 1 to 8 hours, or 30."""
    out: list[Running] = []
    for node in nodes:
        free = 4
        while free and 0 < (gpus := rng.choice(sizes)) <= free:
            free -= gpus
            out.append(replace(until(node.name, rng.choice([*range(1, 9), 30]), gpus), name=f"r{len(out)}"))
    return out


def gangs(p: Problem) -> list[int]:
    """Jobs whose names begin with a g."""
    return [j for j, name in enumerate(p.jobs.ids) if name.startswith("g")]


def delay(p: Problem, d: Decision) -> int:
    """GPU-seconds that the blocked jobs of a decision wait."""
    return sum(delay_of(p, d, j) for j in d.blocked)


def in_turn(p: Problem, d: Decision, jobs: Sequence[int], kept: Sequence[Hold] = ()) -> Decision:
    """A decision with its promises, given one after the other."""
    holds, blocked = reserve(p, d, kept=kept, jobs=jobs)
    return replace(d, reservations=holds, blocked=blocked)
