"""A gang with a required level lies in one domain of it."""

from __future__ import annotations

import pytest

from builders import Node, Pending, Running, blamed, decide, problem
from cpalloc.models.constraints.domain import Domain
from cpalloc.problem.problem import Problem, status_quo

RULE = Domain()


def tree(required: str) -> Problem:
    """Block b1 with racks r1 (n1, n2) and r2 (n3), block b2 with rack r3 (n4)."""
    return problem(
        nodes=[
            Node("n1", within="b1/r1"),
            Node("n2", within="b1/r1"),
            Node("n3", within="b1/r2"),
            Node("n4", within="b2/r3"),
        ],
        levels=["block", "rack"],
        jobs=[Pending("a", replicas=2, required=required)],
    )


def test_applies_where_a_level_is_required() -> None:
    assert RULE.applies(tree("block"))
    assert not RULE.applies(tree("cluster"))


@pytest.mark.parametrize(
    ("required", "accepted"),
    [
        ("node", ["n1 n1"]),
        ("rack", ["n1 n1", "n1 n2"]),
        ("block", ["n1 n1", "n1 n2", "n1 n3"]),
        ("cluster", ["n1 n1", "n1 n2", "n1 n3", "n1 n4"]),
    ],
)
@pytest.mark.parametrize("places", ["n1 n1", "n1 n2", "n1 n3", "n1 n4"])
def test_one_domain_of_the_level(required: str, accepted: list[str], places: str) -> None:
    p = tree(required)
    first, second = places.split()
    d = decide(p, start={"a": [(first, [0]), (second, [1])]})
    assert blamed(RULE, p, d) == ([] if places in accepted else [("a",)])


def test_the_message_names_the_domains() -> None:
    p = tree("rack")
    d = decide(p, start={"a": {"n1": 1, "n4": 1}})
    assert [v.message for v in RULE.check(p, d)] == ["a must lie in one rack and spans r1, r3"]


def test_those_who_run_may_stay() -> None:
    p = problem(
        nodes=[Node("n1", within="r1"), Node("n2", within="r2")],
        levels=["rack"],
        jobs=[Running("old", at={"n1": 1, "n2": 1}, replicas=2, required="rack")],
    )
    assert blamed(RULE, p, status_quo(p)) == []
