"""Budgets that only their own loans keep from what they are entitled to."""

from __future__ import annotations

import pytest

from builders import Budget, Node, Pending, Running, problem
from cpalloc.generate import GeneratorConfig, generate
from cpalloc.models.constraints.preemption import victims
from cpalloc.models.objectives import OBJECTIVES
from cpalloc.models.objectives.inversion import inverted
from cpalloc.problem.compile import compile_round
from cpalloc.problem.problem import Decision, Mode, Problem
from cpalloc.schema import parse_round
from cpalloc.solver.greedy import greedy
from cpalloc.solver.own_loans import take_back_own_loans
from cpalloc.solver.relaxations import NOTHING
from cpalloc.solver.values import violations
from reference.tiny_rounds import tiny_doc


def worth(p: Problem, d: Decision, tier: str) -> int:
    return OBJECTIVES[tier].evaluate(p, d)[0]


def held_by_a_loan(*others: Pending, mine: int = 4) -> Problem:
    """x is entitled to some GPUs of a node that its own loan holds."""
    return problem(
        nodes=[Node("n1")],
        jobs=[Running("loan", budget="x", at="n1", gpus=8), Pending("mine", budget="x", gpus=mine), *others],
        budgets=[Budget("x", entitled=mine, claim=mine), Budget("y", charged=1)],
    )


def test_a_small_start_of_another_budget_takes_a_loan_back_for_its_own() -> None:
    p = held_by_a_loan(Pending("large", budget="y", gpus=4), Pending("small", budget="y", gpus=1))
    first = greedy(p)
    assert worth(p, first, "shortfall") == 4
    found = take_back_own_loans(p, first, NOTHING)
    assert violations(p, found) == []
    assert worth(p, found, "shortfall") == 0
    started = {p.jobs.ids[j] for j in found.starts_in(Mode.ALLOCATED)}
    assert {"mine", "small"} <= started
    assert [p.jobs.ids[v] for v in victims(p, found)] == ["loan"]


@pytest.mark.parametrize("others", [(), (Pending("whole", budget="y", gpus=8),), (Pending("own", budget="x"),)])
def test_a_loan_stays_where_nothing_is_gained(others: tuple[Pending, ...]) -> None:
    p = held_by_a_loan(*others)
    found = take_back_own_loans(p, greedy(p), NOTHING)
    assert violations(p, found) == []
    assert not victims(p, found)
    assert worth(p, found, "shortfall") == 4


def test_whoever_is_stopped_has_what_was_decided() -> None:
    p = held_by_a_loan(Pending("small", budget="y", gpus=1))
    found = take_back_own_loans(p, greedy(p), NOTHING, lambda: True)
    assert not victims(p, found)


def test_the_smallest_start_takes_a_loan_back_as_those_before_it_would_not_fit_in_its_place() -> None:
    first, small = Pending("s2", budget="y", gpus=2, priority=3), Pending("s1", budget="y", gpus=1, priority=0)
    p = held_by_a_loan(first, small, mine=7)
    found = take_back_own_loans(p, greedy(p), NOTHING)
    assert {p.jobs.ids[j] for j in found.placement} == {"mine", "s1"}
    assert inverted(p, found) == []


def test_whatever_the_round_every_rule_holds_and_no_budget_is_shorter() -> None:
    better = 0
    rounds = [compile_round(parse_round(tiny_doc(seed))).problem for seed in range(150)]
    rounds += [
        compile_round(generate(GeneratorConfig(nodes=nodes, seed=seed, family=family))).problem
        for nodes, seed in ((24, 1), (24, 17), (48, 9), (48, 14))  # in three of them one budget has most of the shares
        for family in ("mixed", "gang-heavy")
    ]
    for p in rounds:
        first = greedy(p)
        found = take_back_own_loans(p, first, NOTHING)
        assert violations(p, found) == []
        assert worth(p, found, "shortfall") <= worth(p, first, "shortfall")
        better += worth(p, found, "shortfall") < worth(p, first, "shortfall")
    assert better >= 3
