"""Which models are worth solving."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from cpalloc.models.base import Violation
from cpalloc.models.partition import Partition
from cpalloc.problem.problem import Options
from cpalloc.solver import search as search_module
from cpalloc.solver.goals import Goal
from cpalloc.solver.outcome import Run, Status
from cpalloc.solver.search import Search, _Seen


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


class Scripted(Search):
    """Solves of the whole model end at given bounds; looking more closely after some of them improves the incumbent."""

    def __init__(self, bounds: list[int], gains: dict[int, int], unsettled: set[int]) -> None:
        self.gains, self.looks, self.at = gains, list[int](), -1
        runs = iter(Run(Status.OPTIMAL, [], bound, bound, "cp_sat") for bound in bounds)
        models: Any = SimpleNamespace(
            problem=SimpleNamespace(options=Options()),
            partition=Partition(),
            last_build_s=0.0,
            cancelled=lambda: False,
            whole=lambda: True,
            unsettled=lambda: unsettled,
            meter=lambda budget: lambda: budget,
            current=lambda tier, part: (None, 0),
            run=lambda *_, **__: next(runs),
        )
        best: Any = SimpleNamespace(values={"lend": (20,)})
        super().__init__(models, best)

    def _take(self, *_: object) -> _Seen:
        self.at += 1
        return _Seen(None, (), frozenset())

    def _look_closer(self, *_: object) -> None:
        self.looks.append(self.at)
        self.best.values["lend"] = (self.best.values["lend"][0] - self.gains.get(self.at, 0),)

    def _refine(self, *_: object) -> None:
        self.models.partition = replace(self.models.partition, watched=frozenset({self.at}))


@pytest.mark.parametrize(
    ("bounds", "gains", "unsettled", "looks"),
    [
        ([5] * 5, {}, set(), [0, 1]),
        ([5] * 5, {}, {7}, [0, 1, 2, 3, 4]),
        ([5, 5, 5, 6, 6, 6], {}, set(), [0, 1, 3, 4]),
        ([5] * 6, {1: 2}, set(), [0, 1, 2, 3]),
    ],
)
def test_looking_closer_twice_in_vain_is_enough_where_it_is_as_much_work(
    bounds: list[int], gains: dict[int, int], unsettled: set[int], looks: list[int]
) -> None:
    search = Scripted(bounds, gains, unsettled)
    with suppress(StopIteration):
        search.minimise(Goal("lend", 6, 0), None, 1.0)
    assert search.looks == looks


@pytest.mark.parametrize("nodes", [1, 2])
def test_where_nothing_else_shows_more_instants_and_then_single_nodes_are_told(
    monkeypatch: pytest.MonkeyPatch, nodes: int
) -> None:
    # Where every node has a cell of its own already, both come at once.
    told: list[Partition] = []
    models: Any = SimpleNamespace(
        problem=None,
        partition=Partition(),
        context=SimpleNamespace(layout=SimpleNamespace(cells=[SimpleNamespace(nodes=range(nodes))])),
        repartition=told.append,
    )
    search = Search(models, SimpleNamespace())  # type: ignore[arg-type]
    monkeypatch.setattr(search, "_told_apart", lambda partition, goal, seen: partition)
    for goal, status, finer in (
        (Goal("delay", 4, 0), Status.OPTIMAL, True),
        (Goal("delay", 4, 0), Status.FEASIBLE, False),
        (Goal("lend", 6, 0), Status.OPTIMAL, False),
    ):
        search._refine(goal, Run(status, [], 5, 5, "cp_sat"), _Seen(None, (), frozenset()))
        assert told.pop() == Partition(fine=finer, split=finer and nodes == 1)
    models.partition = Partition(fine=True)
    search._refine(Goal("delay", 4, 0), Run(Status.OPTIMAL, [], 5, 5, "cp_sat"), _Seen(None, (), frozenset()))
    assert told == [Partition(fine=True, split=True)]


def test_an_exchange_that_breaks_something_else_does_not_hide_what_the_model_must_tell_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The rules that the solution itself breaks are told, not those its replicas break after changing places."""
    solution, exchanged = object(), object()
    own, other = Violation("preemption", "no room for another budget"), Violation("holds", "promised to somebody")
    monkeypatch.setattr(search_module, "realise", lambda ctx, value: solution)
    monkeypatch.setattr(search_module, "prune", lambda problem, decision: decision)
    monkeypatch.setattr(search_module, "give_to_others", lambda problem, decision: exchanged)
    monkeypatch.setattr(search_module, "violations", lambda problem, decision: {solution: [own]}[decision])
    models: Any = SimpleNamespace(problem=None, hurry=lambda: True)
    best: Any = SimpleNamespace(offer=lambda candidate, *_: [other], tiers=[])
    ctx: Any = SimpleNamespace(e={})
    seen = Search(models, best)._take(ctx, Run(Status.OPTIMAL, [], 5, 5, "cp_sat"), Goal("shortfall", 1, 0))
    assert (seen.candidate, seen.broken) == (exchanged, [own])
