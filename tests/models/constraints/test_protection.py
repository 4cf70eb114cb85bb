"""What is protected, or shielded by its budget's ratio, stays."""

from __future__ import annotations

import pytest

from builders import DRAINING, HOUR, Budget, Node, Pending, Running, blamed, decide, problem
from cpalloc.models.constraints.protection import Protection
from cpalloc.problem.problem import Problem, status_quo

RULE = Protection()


def old(*, charged: int = 2000, at: str = "n1", mode: str = "allocated", protected_s: int = 0) -> Problem:
    """One running job; its budget has 2 of 1 charged unless said otherwise."""
    return problem(
        nodes=[Node("n1")],
        jobs=[Running("old", at=at, mode=mode, protected_s=protected_s)],
        budgets=[Budget("x", charged=charged)],
    )


def messages(p: Problem) -> list[str]:
    return [v.message for v in RULE.check(p, decide(p, preempt=["old"]))]


def test_applies_where_anything_must_stay() -> None:
    assert RULE.applies(old(protected_s=1))
    assert not RULE.applies(old())


def test_accepts_the_status_quo() -> None:
    p = old(protected_s=HOUR)
    assert blamed(RULE, p, status_quo(p)) == []


def test_rejects_the_preemption_of_a_protected_job() -> None:
    assert messages(old(protected_s=HOUR)) == ["old is protected for another 3600 s and must stay"]


def test_accepts_it_when_the_protection_has_ended() -> None:
    assert messages(old(protected_s=0)) == []


def test_protects_those_on_draining_nodes() -> None:
    p = problem(nodes=[Node("n1", state=DRAINING)], jobs=[Running("old", at="n1", mode="allocated", protected_s=2)])
    assert messages(p) == ["old is protected for another 2 s and must stay"]


@pytest.mark.parametrize(("charged", "stays"), [(999, True), (1000, True), (1001, False)])
def test_only_budgets_over_their_share_lose_allocated_work(charged: int, stays: bool) -> None:
    # Owed 1,000 GPU-seconds: a ratio of 1 is not over 1.
    why = f"old belongs to a budget within its share (charged {charged} of 1000 GPU-seconds owed) and must stay"
    assert messages(old(charged=charged)) == ([why] if stays else [])


def test_borrowed_work_is_never_protected() -> None:
    assert messages(old(charged=0, mode="borrowed")) == []


def test_keeps_those_on_nodes_that_are_not_listed() -> None:
    assert messages(old(at="n9")) == ["old runs on a node that is not in the snapshot and must stay"]


def test_preempt_under_share_lifts_the_shield_and_not_the_protection() -> None:
    for protected_s, found in ((0, []), (9, [("old",)])):
        p = problem(
            nodes=[Node("n1")],
            jobs=[Running("old", at="n1", mode="allocated", protected_s=protected_s), Pending("new")],
            preempt_under_share=True,
        )
        assert blamed(RULE, p, decide(p, preempt=["old"])) == found
