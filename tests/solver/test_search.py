"""Which models are worth solving."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from cpalloc.models.partition import Partition
from cpalloc.solver.goals import Goal
from cpalloc.solver.search import Search


@pytest.mark.parametrize(
    ("stays", "firm", "value", "in_vain"),
    [
        ({1}, {7}, 10, True),
        ({1, 2}, {7, 8}, 10, True),
        ({1, 2}, {7, 8}, 9, True),
        ({1}, {7}, 11, False),
        (set(), {7}, 10, False),
        ({1}, {8}, 10, False),
    ],
)
def test_what_leaves_less_open_than_a_model_that_had_nothing_better_is_not_solved(
    stays: set[int], firm: set[int], value: int, in_vain: bool
) -> None:
    models: Any = SimpleNamespace(problem=None)
    best: Any = SimpleNamespace(values={"preemption": (value,)})
    search = Search(models, best)
    search._narrow = [(Partition(stays=frozenset({1}), firm=frozenset({7})), 10)]
    narrow = Partition(stays=frozenset(stays), firm=frozenset(firm))
    assert search._in_vain(narrow, Goal("preemption", 3, 0)) is in_vain
