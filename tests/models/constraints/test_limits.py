"""Caps bind starts and promotions, at any level of the tree, and never preempt."""

from __future__ import annotations

import pytest

from builders import Budget, Node, Pending, Running, blamed, decide, problem
from cpalloc.models.constraints.limits import Limits
from cpalloc.problem.problem import Problem, status_quo

RULE = Limits()


def capped(*, leaf: int = -1, parent: int = -1, leaf_borrowed: int = -1, parent_borrowed: int = -1) -> Problem:
    """Project p has x and y. x runs 3 allocated and 2 borrowed (promotable), y runs 1 of each; both queue."""
    return problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[
            Running("kept", budget="x", at="n1", gpus=3, mode="allocated"),
            Running("lent", budget="x", at="n1", gpus=2, funding="any"),
            Running("other", budget="y", at="n1", gpus=1, mode="allocated"),
            Running("other lent", budget="y", at="n1", gpus=1),
            Pending("a", budget="x", gpus=2, funding="any"),
            Pending("b", budget="y", gpus=2, funding="any"),
            Pending("c", budget="z", gpus=2, funding="any"),
        ],
        budgets=[
            Budget("p", max_gpus=parent, max_borrowed=parent_borrowed),
            Budget("x", parent="p", max_gpus=leaf, max_borrowed=leaf_borrowed),
            Budget("y", parent="p"),
            Budget("z"),
        ],
    )


def test_applies_where_there_is_a_cap() -> None:
    assert not RULE.applies(capped())
    assert RULE.applies(capped(parent=0))
    assert RULE.applies(capped(leaf_borrowed=0))


@pytest.mark.parametrize(("cap", "found"), [(5, []), (4, [("a",)])])
def test_allocated_starts(cap: int, found: list[tuple[str, ...]]) -> None:
    # 3 kept + 2 started = 5
    p = capped(leaf=cap)
    assert blamed(RULE, p, decide(p, start={"a": "n2"})) == found


@pytest.mark.parametrize(("cap", "found"), [(4, []), (3, [("a",)])])
def test_borrowed_starts(cap: int, found: list[tuple[str, ...]]) -> None:
    # 2 kept + 2 started = 4
    p = capped(leaf_borrowed=cap)
    assert blamed(RULE, p, decide(p, borrow={"a": "n2"})) == found


@pytest.mark.parametrize(("cap", "found"), [(5, []), (4, [("lent",)])])
def test_promotions(cap: int, found: list[tuple[str, ...]]) -> None:
    # 3 kept + 2 promoted = 5
    p = capped(leaf=cap)
    assert blamed(RULE, p, decide(p, promote=["lent"])) == found


def test_a_promotion_makes_room_for_borrowed_work() -> None:
    # borrowed: 2 - 2 promoted + 2 started = 2
    p = capped(leaf_borrowed=2)
    assert blamed(RULE, p, decide(p, borrow={"a": "n2"})) == [("a",)]
    assert blamed(RULE, p, decide(p, borrow={"a": "n2"}, promote=["lent"])) == []


@pytest.mark.parametrize(("cap", "found"), [(8, []), (7, [("a", "b")])])
def test_the_cap_of_a_project_binds_all_below(cap: int, found: list[tuple[str, ...]]) -> None:
    # 3 + 1 kept, 2 + 2 started = 8
    p = capped(parent=cap)
    assert blamed(RULE, p, decide(p, start={"a": "n2", "b": "n2"})) == found


def test_the_borrowed_cap_of_a_project() -> None:
    # 2 + 1 kept + 2 started = 5
    p, q = capped(parent_borrowed=5), capped(parent_borrowed=4)
    assert blamed(RULE, p, decide(p, borrow={"b": "n2"})) == []
    assert blamed(RULE, q, decide(q, borrow={"b": "n2"})) == [("b",)]


def test_a_cap_of_nothing() -> None:
    p, q = capped(leaf=0), capped(leaf_borrowed=0)
    assert blamed(RULE, p, decide(p, start={"a": "n2"})) == [("a",)]
    assert blamed(RULE, q, decide(q, borrow={"a": "n2"})) == [("a",)]


def test_a_cap_of_one_mode_does_not_bind_the_other() -> None:
    p, q = capped(leaf=0), capped(leaf_borrowed=0)
    assert blamed(RULE, p, decide(p, borrow={"a": "n2"})) == []
    assert blamed(RULE, q, decide(q, start={"a": "n2"})) == []


def test_others_are_not_bound() -> None:
    p = capped(parent=0, parent_borrowed=0)
    assert blamed(RULE, p, decide(p, start={"c": "n2"})) == []


def test_a_cap_never_preempts() -> None:
    # 3 allocated and 2 borrowed run under caps of 0.
    p = capped(leaf=0, parent=0, leaf_borrowed=0, parent_borrowed=0)
    assert blamed(RULE, p, status_quo(p)) == []


def test_a_borrowed_start_is_nothing_new_under_the_allocated_cap() -> None:
    # 3 allocated run under a cap of 2; a borrowed start does not make that worse.
    p = capped(leaf=2)
    assert blamed(RULE, p, decide(p, borrow={"a": "n2"})) == []
