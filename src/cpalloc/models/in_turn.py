"""Budgets that serve their queues in turn, in the relaxation without nodes.

Who starts in a solution of :class:`~cpalloc.models.pooled.Pooled` is whoever room is made for most cheaply, and passes
over those of his budget who rank better. Put in order afterwards, budgets start others, for whom more is preempted
than the solution spared. So budgets are bound to their queues here: budget ℓ starts what its queue gives when it is
gone through in order, up to some number of GPUs G, and whoever still fits within G starts:

    F_ℓ(P, G): G ← G − size_j for each j in order that may go to a pool of P, with size_j ≤ G,
    Σ λ_ℓPG = 1,    Σ_p y_cp = Σ λ_ℓPG · |F_ℓ(P, G) ∩ c|,    y_cp ≤ Σ_{P ∋ p} λ_ℓPG · |F_ℓ(P, G) ∩ c|

for each class c of the budget's jobs. With P all pools whoever is left out asks for more than all behind it hold; with
fewer it may have no use for their place. Nobody is passed over, as far as GPUs and pools tell.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import combinations

from ortools.sat.python.cp_model import IntVar

from cpalloc.models.pooled import Pooled
from cpalloc.models.variables import dot

LEVELS, BESIDE = 14, (-8, -4, -2, -1, 0, 1, 2, 4, 8)
"""How many numbers of GPUs are tried for each budget, as far apart as each other; and which ones from where it is
expected."""

LEVELS_A_SET, BESIDE_A_SET = 5, (-4, -2, -1, 0, 1, 2, 4)
"""The same for each set of pools, where they are told apart."""

FINELY = 7
"""Times as many where they are to be close."""

MOST_POOLS = 3
"""Pools of which all sets are tried; of more, each alone and all together."""

Classes = list[tuple[list[int], dict[int, IntVar]]]
Queue = list[tuple[int, int, int]]
"""(order, size, class) of each job, in order."""


def serve_in_turn(
    pooled: Pooled, about: Mapping[tuple[int, int], int], *, by_pool: bool = False, finely: bool = False
) -> None:
    """Let every budget start only what its queue gives in turn. The optimum is no bound any more.

    Parameters
    ----------
    pooled
        The relaxation, which gets the rows.
    about
        GPUs that each leaf may be expected to start in each pool: choices are closest there.
    by_pool
        Whether a budget may also serve its queue for some of the pools.
    finely
        Whether there are to be many choices.
    """
    leaf, classes_of = pooled.problem.jobs.leaf, defaultdict[int, Classes](list)
    for members, starts in pooled.waiting:
        classes_of[int(leaf[members[0]])].append((members, starts))
    for at, classes in classes_of.items():
        pools = sorted({pool for _, starts in classes for pool in starts})
        sets = list(_sets(pools)) if by_pool else [frozenset(pools)]
        choices: set[tuple[tuple[int, ...], frozenset[int]]] = set()
        for some in sets:
            likely, queue = sum(about.get((at, pool), 0) for pool in some), _queue(pooled, classes, some)
            number, beside = (LEVELS_A_SET, BESIDE_A_SET) if len(sets) > 1 else (LEVELS, BESIDE)
            number *= FINELY if finely else 1
            most = max(2 * likely, int(pooled.problem.budgets.entitled[at]) + max(BESIDE))
            for gpus in {*_evenly(queue, most, number), *(likely + d for d in beside)}:
                choices.add((_served(queue, len(classes), gpus), some))
        _choose(pooled, classes, sorted(choices, key=lambda choice: (choice[0], sorted(choice[1]))))


def _sets(pools: list[int]) -> Iterator[frozenset[int]]:
    """Sets of pools that a budget may serve its queue for."""
    sizes = range(1, len(pools) + 1) if len(pools) <= MOST_POOLS else (1, len(pools))
    return (frozenset(some) for size in sizes for some in combinations(pools, size))


def _queue(pooled: Pooled, classes: Classes, pools: frozenset[int]) -> Queue:
    """The jobs that may go to some pools."""
    jobs, among = pooled.problem.jobs, [(c, who) for c, (who, starts) in enumerate(classes) if pools & starts.keys()]
    return sorted((int(jobs.order[j]), int(jobs.size[j]), c) for c, who in among for j in who)


def _evenly(queue: Queue, most: int, number: int) -> list[int]:
    """Numbers of GPUs as far apart as each other, up to all that a queue asks for."""
    all_ = min(sum(size for _, size, _ in queue), most)
    return [all_ * i // (number - 1) for i in range(number)]


def _served(queue: Queue, classes: int, gpus: int) -> tuple[int, ...]:
    """How many of each class start: whoever in the queue still fits within some GPUs."""
    counts = [0] * classes
    for _, size, c in queue:
        if not gpus:
            break
        if size <= gpus:
            gpus -= size
            counts[c] += 1
    return tuple(counts)


def _choose(pooled: Pooled, classes: Classes, choices: list[tuple[tuple[int, ...], frozenset[int]]]) -> None:
    """Let a budget start what one of some choices says, in its pools."""
    model, chosen = pooled.model, [pooled.model.new_bool_var("") for _ in choices]
    model.add(dot([(1, var) for var in chosen]) == 1)
    for c, (_, starts) in enumerate(classes):
        given = [(counts[c], var, pools) for (counts, pools), var in zip(choices, chosen, strict=True) if counts[c]]
        model.add(dot([(1, y) for y in starts.values()]) == dot([(number, var) for number, var, _ in given]))
        for pool, y in starts.items():
            if any(pool not in pools for _, _, pools in given):
                model.add(y <= dot([(number, var) for number, var, pools in given if pool in pools]))
