"""Former incumbents offered again: looked at once, as long as promises are given in the same way."""

from __future__ import annotations

import pytest

from cpalloc.generate import GeneratorConfig, generate_doc
from cpalloc.problem.compile import compile_round
from cpalloc.problem.problem import status_quo
from cpalloc.schema import parse_round
from cpalloc.solver import incumbent
from cpalloc.solver.greedy import greedy
from cpalloc.solver.incumbent import Incumbent


def test_what_was_seen_is_looked_at_again_only_when_promises_are_given_differently(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem = compile_round(parse_round(generate_doc(GeneratorConfig(nodes=16, seed=2)))).problem
    best, looked = Incumbent(problem), 0
    check = incumbent.violations

    def counted(*args: object) -> object:
        nonlocal looked
        looked += 1
        return check(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(incumbent, "violations", counted)
    best.seen = [status_quo(problem), greedy(problem)]
    for _ in range(2):  # the status quo is looked at once the greedy's decision has taken its place
        best.offer_seen(len(best.tiers))
    before = looked
    assert before > 1
    best.offer_seen(len(best.tiers))
    assert looked == before
    best.settle_blocked()
    best.offer_seen(len(best.tiers))
    assert looked > before


def test_a_former_incumbent_that_is_better_comes_back() -> None:
    problem = compile_round(parse_round(generate_doc(GeneratorConfig(nodes=16, seed=2)))).problem
    best = Incumbent(problem)
    best.seen = [greedy(problem)]
    best.offer_seen(2)
    assert best.values["shortfall"] < Incumbent(problem).values["shortfall"]
