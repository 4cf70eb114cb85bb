"""Budgets that serve their queues in turn, in the relaxation without nodes.

Who starts in a solution of :class:`~cpalloc.models.pooled.Pooled` is whoever room is made for most cheaply, and passes
over those of his budget who rank better. Put in order afterwards, budgets start others, for whom more is preempted
than the solution spared. So budgets are bound to their queues here: budget ℓ starts what its queue gives when it is
gone through in order, up to some number of GPUs G, and whoever still fits within G starts:

    F_ℓ(G): G ← G − size_j for each j in order with size_j ≤ G,
    Σ_G λ_ℓG = 1,    Σ_p y_cp = Σ_G λ_ℓG · |F_ℓ(G) ∩ c|    for each class c of the budget's jobs.

Whoever is left out asks for more than all behind him hold together, so nobody is passed over as far as GPUs tell.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import numpy as np
from ortools.sat.python.cp_model import IntVar

from cpalloc.models.pooled import Pooled
from cpalloc.models.variables import dot

LEVELS = 14
"""Numbers of GPUs that are tried for each budget, as far apart as each other."""

BESIDE = (-8, -4, -2, -1, 0, 1, 2, 4, 8)
"""And these from where it is expected."""


def serve_in_turn(pooled: Pooled, about: Mapping[int, int]) -> None:
    """Let every budget start only what its queue gives in turn. The optimum is no bound any more.

    Parameters
    ----------
    pooled
        The relaxation, which gets the rows.
    about
        GPUs that each leaf may be expected to start: choices are closest there.
    """
    jobs, entitled = pooled.problem.jobs, pooled.problem.budgets.entitled
    classes_of: dict[int, list[tuple[list[int], dict[int, IntVar]]]] = defaultdict(list)
    for members, starts in pooled.waiting:
        classes_of[int(jobs.leaf[members[0]])].append((members, starts))
    for leaf, classes in classes_of.items():
        queue = sorted((int(jobs.order[j]), int(jobs.size[j]), c) for c, (who, _) in enumerate(classes) for j in who)
        likely, total = about.get(leaf, 0), sum(size for _, size, _ in queue)
        most = min(total, max(2 * likely, int(entitled[leaf]) + max(BESIDE)))
        levels = {*np.linspace(0, most, LEVELS).astype(int).tolist(), *(likely + d for d in BESIDE)}
        choices = sorted({_served(queue, len(classes), gpus) for gpus in levels})
        chosen = [pooled.model.new_bool_var("") for _ in choices]
        pooled.model.add(dot([(1, var) for var in chosen]) == 1)
        for c, (_, starts) in enumerate(classes):
            given = [(counts[c], var) for counts, var in zip(choices, chosen, strict=True) if counts[c]]
            pooled.model.add(dot([(1, var) for var in starts.values()]) == dot(given))


def _served(queue: list[tuple[int, int, int]], classes: int, gpus: int) -> tuple[int, ...]:
    """How many of each class start: whoever in the queue of (order, size, class) still fits within some GPUs."""
    counts = [0] * classes
    for _, size, c in queue:
        if size <= gpus:
            gpus -= size
            counts[c] += 1
    return tuple(counts)
