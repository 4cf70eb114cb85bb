"""Where a job that takes either mode may be allocated, and who can fund at all."""

from __future__ import annotations

import pytest

from builders import Budget, Node, Pending, Running, blamed, decide, problem
from cpalloc.models.constraints.funding import Funding
from cpalloc.problem.problem import Problem, status_quo

RULE = Funding()


def claiming(claim: int, *, owed: int = 1000, funding: str = "any") -> Problem:
    """The budget runs 4 GPUs allocated and 2 borrowed (promotable); a and b queue 3 GPUs each."""
    return problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[
            Running("kept", at="n1", gpus=4, mode="allocated"),
            Running("lent", at="n1", gpus=2, funding="any"),
            Pending("a", gpus=3, funding=funding),
            Pending("b", gpus=3, funding=funding),
        ],
        budgets=[Budget("x", claim=claim, owed=owed)],
    )


def test_applies_where_a_job_takes_either_mode_or_a_budget_is_owed_nothing() -> None:
    assert RULE.applies(claiming(0))
    only = [Pending("a")]
    assert not RULE.applies(problem(nodes=[Node("n1")], jobs=only))
    assert RULE.applies(problem(nodes=[Node("n1")], jobs=only, budgets=[Budget("x", owed=0)]))


@pytest.mark.parametrize(("claim", "found"), [(5, []), (4, [("a",)])])
def test_the_claim_reaches_the_first_gpu_of_a_start(claim: int, found: list[tuple[str, ...]]) -> None:
    # 4 granted without it: below 5, not below 4.
    p = claiming(claim)
    assert blamed(RULE, p, decide(p, start={"a": "n2"})) == found


@pytest.mark.parametrize(("claim", "found"), [(8, []), (7, [("a",), ("b",)])])
def test_each_start_is_judged_by_all_the_others(claim: int, found: list[tuple[str, ...]]) -> None:
    # 4 + 3 granted without either: below 8, not below 7.
    p = claiming(claim)
    assert blamed(RULE, p, decide(p, start={"a": "n2", "b": "n2"})) == found


@pytest.mark.parametrize(("claim", "found"), [(5, []), (4, [("lent",)])])
def test_promotions(claim: int, found: list[tuple[str, ...]]) -> None:
    p = claiming(claim)
    assert blamed(RULE, p, decide(p, promote=["lent"])) == found


def test_the_claim_does_not_bind_borrowed_starts() -> None:
    p = claiming(0)
    assert blamed(RULE, p, decide(p, borrow={"a": "n2"})) == []


def test_the_claim_does_not_bind_jobs_that_are_allocated_or_nothing() -> None:
    # Budgets order, they do not cap.
    p = claiming(0, funding="allocated")
    assert blamed(RULE, p, decide(p, start={"a": "n2"})) == []


def test_the_claim_does_not_bind_what_is_kept() -> None:
    p = claiming(0)
    assert blamed(RULE, p, status_quo(p)) == []


def test_a_budget_that_is_owed_nothing_funds_nothing_new() -> None:
    for funding in ("allocated", "any"):
        p = claiming(100, owed=0, funding=funding)
        assert blamed(RULE, p, decide(p, start={"a": "n2"})) == [("a",)]
    p = claiming(100, owed=0)
    assert blamed(RULE, p, decide(p, promote=["lent"])) == [("lent",)]
    assert blamed(RULE, p, decide(p, borrow={"a": "n2"})) == []
    assert blamed(RULE, p, status_quo(p)) == []
