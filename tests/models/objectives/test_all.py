"""What all tiers have in common."""

from __future__ import annotations

import pytest

from builders import Budget, Node, Pending, Running, decide, problem
from cpalloc.models.objectives import OBJECTIVES
from cpalloc.problem.problem import status_quo


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_value_for_each_part_never_below_the_floor(name: str) -> None:
    tier = OBJECTIVES[name]
    assert tier.name == name
    p = problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[
            Running("v", budget="y", at="n1", gpus=8, lost_s=100),
            Pending("a", budget="x", gpus=8, preferred="cluster"),
            Pending("b", budget="x", gpus=8, funding="any"),
        ],
        budgets=[Budget("x", entitled=16, claim=16), Budget("y", entitled=4)],
    )
    for d in (status_quo(p), decide(p, start={"a": "n2"}), decide(p, start={"b": "n1"}, preempt=["v"])):
        values, floors = tier.evaluate(p, d), tier.floor(p)
        assert len(values) == len(floors) == len(tier.parts)
        assert all(type(v) is int and v >= f for v, f in zip(values, floors, strict=True))
