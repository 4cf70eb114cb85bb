"""Shortfall beyond a quarter of an entitlement, the worst off weighing most."""

from __future__ import annotations

import pytest

from builders import Budget, Node, Pending, Running, decide, problem
from cpalloc.models.objectives import OBJECTIVES
from cpalloc.problem.problem import status_quo

TIER = OBJECTIVES["starvation"]


@pytest.mark.parametrize(
    ("got", "value"),
    [
        # e = 8; seg_k = min(max(4·short − 8k, 0), 8); value = 1·seg_1 + 2·seg_2 + 4·seg_3
        pytest.param(8, 0, id="nothing short"),
        pytest.param(6, 0, id="a quarter short: 4·2 = 8, all of it the first quarter"),
        pytest.param(5, 4, id="4·3 = 12: seg_1 = 4"),
        pytest.param(4, 8, id="half: 16: seg_1 = 8"),
        pytest.param(3, 16, id="20: seg_1 = 8, seg_2 = 4: 8 + 2·4"),
        pytest.param(2, 24, id="24: 8 + 2·8"),
        pytest.param(1, 40, id="28: 8 + 2·8 + 4·4"),
        pytest.param(0, 56, id="all: 8 + 2·8 + 4·8"),
    ],
)
def test_quarters(got: int, value: int) -> None:
    p = problem(nodes=[Node("n1")], jobs=[Pending("a", replicas=got)], budgets=[Budget("x", entitled=8)])
    assert TIER.evaluate(p, decide(p, start={"a": "n1"}) if got else status_quo(p)) == (value,)


def test_quarters_of_an_entitlement_that_is_no_multiple_of_four() -> None:
    # e = 3, short 2: 4·2 = 8 = 3 + 3 + 2: seg_1 = 3, seg_2 = 2: 3 + 2·2 = 7.
    p = problem(nodes=[Node("n1")], jobs=[Running("a", at="n1", mode="allocated")], budgets=[Budget("x", entitled=3)])
    assert TIER.evaluate(p, status_quo(p)) == (7,)


def test_leaves_add_up_and_surplus_helps_nobody_else() -> None:
    # x has 8 of 4, y has 0 of 4: 4 + 2·4 + 4·4 = 28; z is entitled to nothing.
    p = problem(
        nodes=[Node("n1")],
        jobs=[Running("a", budget="x", at="n1", gpus=8, mode="allocated")],
        budgets=[Budget("x", entitled=4), Budget("y", entitled=4), Budget("z")],
    )
    assert TIER.evaluate(p, status_quo(p)) == (28,)


def test_borrowed_gpus_do_not_count_until_promoted() -> None:
    p = problem(
        nodes=[Node("n1")],
        jobs=[Running("b", at="n1", gpus=4, funding="any")],
        budgets=[Budget("x", entitled=4, claim=4)],
    )
    assert TIER.evaluate(p, status_quo(p)) == (28,)
    assert TIER.evaluate(p, decide(p, promote=["b"])) == (0,)
