"""Work that never changes, to hold seconds of one machine, or of one hour, against those of another."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from random import Random

from ortools.sat.python import cp_model

ITEMS, ROWS = 60, 12
DETERMINISTIC_LIMIT = 0.5
"""Of every search, in CP-SAT's deterministic time: the same steps on every machine."""

LOOPS = 1_500_000
THREADS = 2
"""As many as cpalloc's searches that race on a model, so that a busy core counts here as it counts there."""


def calibration_s() -> float:
    """Seconds for a loop in Python and then two CP-SAT searches side by side, the same ones every time."""
    began = time.perf_counter()
    total = 0
    for i in range(LOOPS):
        total += i * i % 7
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(_search, range(THREADS)))
    return time.perf_counter() - began


def _search(seed: int) -> None:
    """Choose items within several capacities, by a search cut off after so many steps."""
    dice, model = Random(seed), cp_model.CpModel()
    items = [model.new_bool_var(f"{i}") for i in range(ITEMS)]
    for _ in range(ROWS):
        sizes = [dice.randrange(10, 100) for _ in items]
        model.add(cp_model.LinearExpr.weighted_sum(items, sizes) <= sum(sizes) // 3)
    model.maximize(cp_model.LinearExpr.weighted_sum(items, [dice.randrange(10, 100) for _ in items]))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = seed
    solver.parameters.max_deterministic_time = DETERMINISTIC_LIMIT
    solver.solve(model)
