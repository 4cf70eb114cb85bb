"""Borrowed GPUs by share."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import DRAINING, Budget, Node, Pending, Running, decide, problem
from cpalloc.models.objectives import OBJECTIVES
from cpalloc.models.objectives.lend import borrow_demand, split
from cpalloc.problem.problem import status_quo

TIER = OBJECTIVES["lend"]
HALF, THIRD, QUARTER = Fraction(1, 2), Fraction(1, 3), Fraction(1, 4)


@pytest.mark.parametrize(
    ("total", "share", "demand", "parts"),
    [
        pytest.param(8, [3 * QUARTER, QUARTER], [9, 9], [6, 2], id="by share"),
        pytest.param(8, [HALF, HALF], [3, 9], [3, 5], id="nobody over its demand, the rest to others"),
        pytest.param(8, [HALF, QUARTER, QUARTER], [1, 9, 9], [1, 4, 3], id="7 / 2 each: the odd one by name"),
        pytest.param(10, [THIRD, THIRD, THIRD], [9, 9, 9], [4, 3, 3], id="10 / 3 each: by name"),
        pytest.param(7, [Fraction(3, 5), Fraction(2, 5)], [9, 9], [4, 3], id="4.2 and 2.8: largest remainder"),
        pytest.param(9, [HALF, HALF], [2, 3], [2, 3], id="more than is wanted"),
        pytest.param(5, [Fraction(1), Fraction(0)], [3, 9], [3, 2], id="what is left to those without a share"),
        pytest.param(5, [Fraction(0), Fraction(0)], [9, 9], [3, 2], id="nobody has a share"),
        pytest.param(0, [HALF, HALF], [4, 4], [0, 0], id="nothing lent"),
        pytest.param(0, [], [], [], id="no budgets"),
    ],
)
def test_split(total: int, share: list[Fraction], demand: list[int], parts: list[int]) -> None:
    assert split(total, share, demand) == parts


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 12)), min_size=1, max_size=5),
    st.integers(0, 40),
)
def test_splits_are_max_min_fair(leaves: list[tuple[int, int]], total: int) -> None:
    """Everything is given that is wanted; who gets a GPU less than wanted has no less per share than others, ±1 GPU."""
    weights, demand = [w for w, _ in leaves], [d for _, d in leaves]
    share = [Fraction(w, max(1, sum(weights))) for w in weights]
    parts = split(total, share, demand)
    assert sum(parts) == min(total, sum(demand))
    assert all(0 <= part <= want for part, want in zip(parts, demand, strict=True))
    for i, low in enumerate(parts):
        for j, high in enumerate(parts):
            if low < demand[i] and share[i] > 0:
                # i wants more: j is above it by no more than one GPU of rounding on either side.
                assert (high - 1) * share[i] <= (low + 1) * share[j] or high == 0


def test_demand() -> None:
    # x: 2 running borrowed + 3 pending; y: 4 that take either mode. Not: allocated, stopping, drained, refused work.
    p = problem(
        nodes=[Node("n1"), Node("n2", state=DRAINING)],
        jobs=[
            Running("lent", budget="x", at="n1", gpus=2),
            Running("own", budget="x", at="n1", mode="allocated"),
            Running("stops", budget="x", at="n1", stopping=True),
            Running("drained", budget="x", at="n2"),
            Pending("a", budget="x", gpus=3, funding="borrowed"),
            Pending("b", budget="y", gpus=4, funding="any"),
            Pending("c", budget="y", gpus=8),
            Pending("refused", budget="y", gpus=8, funding="any", refused=True),
        ],
        budgets=[Budget("x"), Budget("y")],
    )
    assert borrow_demand(p) == [5, 4]


def test_deficits_of_those_below_their_part() -> None:
    p = problem(
        nodes=[Node("n1")],
        jobs=[
            Running("lent", budget="x", at="n1", gpus=4, funding="any"),
            Pending("a", budget="y", gpus=2, funding="borrowed"),
            Pending("b", budget="y", gpus=2, funding="borrowed"),
        ],
        budgets=[Budget("x", claim=8), Budget("y")],
    )
    # 4 lent, 2 + 2 by share: y is 2 of 2 short, four quarters of 2: 2·(1 + 2 + 4 + 8) = 30
    assert TIER.evaluate(p, status_quo(p)) == (30,)
    # 6 lent, 3 + 3: y is 1 of 3 short: 4 quarter GPUs = 3 + 1: 1·3 + 2·1 = 5
    assert TIER.evaluate(p, decide(p, borrow={"a": "n1"})) == (5,)
    # 8 lent, 4 + 4
    assert TIER.evaluate(p, decide(p, borrow={"a": "n1", "b": "n1"})) == (0,)
    # x's 4 are promoted and no longer lent; 2 lent, 1 + 1: x is 1 of 1 short: 1 + 2 + 4 + 8 = 15
    assert TIER.evaluate(p, decide(p, borrow={"a": "n1"}, promote=["lent"])) == (15,)


def test_nothing_lent_costs_nothing() -> None:
    p = problem(nodes=[Node("n1")], jobs=[Pending("a", funding="borrowed")])
    assert TIER.evaluate(p, status_quo(p)) == (0,)
