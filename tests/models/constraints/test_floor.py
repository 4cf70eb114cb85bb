"""A budget that loses allocated work keeps what it can claim."""

from __future__ import annotations

import pytest

from builders import DRAINING, Budget, Node, Pending, Running, blamed, decide, problem
from cpalloc.models.constraints.floor import Floor
from cpalloc.problem.grants import borrowed, granted
from cpalloc.problem.problem import Problem, status_quo

RULE = Floor()


def over_share(claim: int) -> Problem:
    """Budget y, over its share, runs 4 + 4 GPUs allocated and 2 borrowed, and queues 2; x queues 4."""
    return problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[
            Running("v", budget="y", at="n1", gpus=4, mode="allocated"),
            Running("w", budget="y", at="n1", gpus=4, mode="allocated"),
            Running("lent", budget="y", at="n2", gpus=2, funding="any"),
            Pending("more", budget="y", gpus=2),
            Pending("a", budget="x", gpus=4),
        ],
        budgets=[Budget("x"), Budget("y", charged=2000, claim=claim)],
    )


def test_applies_where_allocated_work_may_be_lost() -> None:
    assert RULE.applies(over_share(0))
    assert not RULE.applies(problem(nodes=[Node("n1")], jobs=[Running("lent", at="n1")]))


@pytest.mark.parametrize(("claim", "found"), [(4, []), (5, [("v",)])])
def test_what_is_left_reaches_the_claim(claim: int, found: list[tuple[str, ...]]) -> None:
    # 8 - 4 = 4 GPUs are left
    p = over_share(claim)
    assert blamed(RULE, p, decide(p, start={"a": "n1"}, preempt=["v"])) == found


def test_starts_and_promotions_of_the_round_count() -> None:
    # 8 - 4 + 2 started + 2 promoted = 8 GPUs
    p = over_share(8)
    assert blamed(RULE, p, decide(p, start={"a": "n1"}, preempt=["v"])) == [("v",)]
    assert blamed(RULE, p, decide(p, start={"a": "n1", "more": "n2"}, preempt=["v"])) == [("v",)]
    assert blamed(RULE, p, decide(p, start={"a": "n1", "more": "n2"}, preempt=["v"], promote=["lent"])) == []


def test_every_loss_is_blamed() -> None:
    p = over_share(1)
    assert blamed(RULE, p, decide(p, start={"a": "n1"}, preempt=["v", "w"])) == [("v", "w")]


def test_a_budget_that_loses_nothing_may_be_below_its_claim() -> None:
    p = over_share(100)
    assert blamed(RULE, p, status_quo(p)) == []


def test_borrowed_work_has_no_floor() -> None:
    p = over_share(100)
    assert blamed(RULE, p, decide(p, start={"a": "n2"}, preempt=["lent"])) == []


def test_forced_ends_have_no_floor() -> None:
    p = problem(
        nodes=[Node("n1", state=DRAINING), Node("n2")],
        jobs=[Running("drained", at="n1", mode="allocated"), Running("v", at="n2", mode="allocated")],
        budgets=[Budget("x", charged=2000, claim=100)],
    )
    assert blamed(RULE, p, status_quo(p)) == []


def test_granted_and_borrowed() -> None:
    # granted: v 4 kept, more 2 started, lent 2 promoted; borrowed: nothing any more. x: a 4.
    p = over_share(0)
    d = decide(p, start={"a": "n1", "more": "n2"}, preempt=["w"], promote=["lent"])
    assert p.budgets.leaf_names == ("x", "y")
    assert granted(p, d).tolist() == [4, 8]
    assert borrowed(p, d).tolist() == [0, 0]
    assert borrowed(p, status_quo(p)).tolist() == [0, 2]
