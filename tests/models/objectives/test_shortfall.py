"""Entitled GPUs that are not granted."""

from __future__ import annotations

from builders import Budget, Node, Pending, Running, decide, problem
from cpalloc.models.objectives import OBJECTIVES
from cpalloc.problem.problem import Problem, status_quo

TIER = OBJECTIVES["shortfall"]


def three() -> Problem:
    """x is entitled to 6 and runs 2 allocated and 1 borrowed; y to 2 and runs 3; z to 5 and runs nothing."""
    return problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[
            Running("old", budget="x", at="n1", gpus=2, mode="allocated"),
            Running("lent", budget="x", at="n1", funding="any"),
            Running("much", budget="y", at="n1", gpus=3, mode="allocated"),
            Pending("a", budget="x", gpus=3),
            Pending("b", budget="z", gpus=8, funding="any"),
        ],
        budgets=[Budget("x", entitled=6), Budget("y", entitled=2, charged=2000), Budget("z", entitled=5)],
    )


def test_each_leaf_counts_down_to_nothing() -> None:
    # (6 - 2) + 0 + 5 = 9: what y has too much does not help the others.
    p = three()
    assert TIER.evaluate(p, status_quo(p)) == (9,)


def test_starts_promotions_and_losses() -> None:
    p = three()
    assert TIER.evaluate(p, decide(p, start={"a": "n2"})) == (6,)  # (6 - 5) + 0 + 5
    assert TIER.evaluate(p, decide(p, promote=["lent"])) == (8,)  # (6 - 3) + 0 + 5
    assert TIER.evaluate(p, decide(p, start={"b": "n2"})) == (4,)  # (6 - 2) + 0 + max(0, 5 - 8)
    assert TIER.evaluate(p, decide(p, borrow={"b": "n2"})) == (9,)
    assert TIER.evaluate(p, decide(p, preempt=["much"])) == (11,)  # (6 - 2) + (2 - 0) + 5
