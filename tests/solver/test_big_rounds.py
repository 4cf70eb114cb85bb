"""What is done only where models are big comes to the same answers where they are small."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from cpalloc.engine import solve_round
from cpalloc.generate import GeneratorConfig, generate_doc
from cpalloc.schema import parse_round
from cpalloc.solver import relaxations, search, strict
from cpalloc.solver.models import Models
from cpalloc.solver.results import Solution
from cpalloc.solver.strict import StrictOrder
from reference.tiny_rounds import tiny_doc


def documents() -> Iterator[dict[str, object]]:
    for seed in range(60):
        yield tiny_doc(seed)
    for seed in range(1, 4):
        for family in ("mixed", "gang-heavy"):
            yield generate_doc(GeneratorConfig(nodes=12, seed=seed, family=family))


def solved(document: dict[str, object]) -> Solution:
    options = {"deterministic": True, "deterministic_limit": 5, "workers": 1}
    return solve_round(parse_round({**document, "options": options})).solution


def settled(solution: Solution) -> list[tuple[str, list[tuple[int, int | None, int]]]]:
    return [(t.name, [(p.best, p.bound, p.limit) for p in t.parts]) for t in solution.tiers]


@pytest.mark.parametrize("quick_share", [0.15, 1e-9])
def test_answers_are_the_same(quick_share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """With time for the whole model at first, and with next to none, so that regions come before it."""
    usual = [solved(document) for document in documents()]
    monkeypatch.setattr(search, "FEW_NODES", 0)
    monkeypatch.setattr(relaxations, "FEW_NODES", 0)
    monkeypatch.setattr(strict, "FEW_NODES", 0)
    monkeypatch.setattr(search, "QUICK_SHARE", quick_share)
    proved = 0
    for document, before in zip(documents(), usual, strict=True):
        after = solved(document)
        if before.stop_reason == after.stop_reason == "proved":
            # Delay counts the jobs that are blocked in the incumbent of that moment, and those of two that are as good
            # so far may differ; then so may what follows.
            alike = before.decision.blocked == after.decision.blocked
            tiers = len(before.tiers) if alike else [t.name for t in before.tiers].index("delay")
            proved += alike
            assert settled(after)[:tiers] == settled(before)[:tiers]
    assert proved >= 55


def test_who_is_dearer_than_a_decision_that_a_relaxation_led_to_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """First by what the greedy pays for preemptions, then by the less that sparing pays, before a model is built."""
    monkeypatch.setattr(search, "FEW_NODES", 0)
    monkeypatch.setattr(relaxations, "FEW_NODES", 0)
    paid: list[int] = []
    spare = Models.spare_the_dear

    def watched(self: Models, cost: int, number: int | None = None, gpus: int | None = None) -> None:
        spare(self, cost, number, gpus)
        assert all(self.problem.jobs.preempt_cost[j] <= cost for j in self.unsettled())
        if number is None:
            paid.append(cost)

    monkeypatch.setattr(Models, "spare_the_dear", watched)
    less = 0
    for seed in range(1, 5):
        paid.clear()
        solved(generate_doc(GeneratorConfig(nodes=32, seed=seed, family="mixed")))
        less += len(paid) > 1 and paid[1] < paid[0]
    assert less > 0


@pytest.mark.parametrize(
    ("nodes", "value", "relaxation", "can"),
    [
        (600, 100, 100, False),
        (600, 100, 99, False),  # one GPU of the fifty that slack was used for
        (600, 100, 98, True),
        (600, 100, None, True),
        (600, 50, 0, False),  # no slack was used
        (16, 100, 100, True),  # a small model is asked itself
    ],
)
def test_slack_is_taken_back_where_a_relaxation_leaves_more_than_a_little(
    nodes: int, value: int, relaxation: int | None, can: bool
) -> None:
    order: Any = StrictOrder.__new__(StrictOrder)
    order.problem = SimpleNamespace(nodes=SimpleNamespace(names=range(nodes)))
    order.best = SimpleNamespace(values={"shortfall": (value,)})
    found = None if relaxation is None else (relaxation, frozenset[int]())
    order.models = SimpleNamespace(pooled=lambda *_: found)
    assert order._can_be_taken_back("shortfall", 0, 50, 1.0) is can
