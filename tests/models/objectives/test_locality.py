"""Gangs that would like one domain span few, and leave few cut."""

from __future__ import annotations

from builders import Node, Pending, Running, decide, problem
from cpalloc.models.objectives import OBJECTIVES
from cpalloc.problem.problem import Problem, status_quo

TIER = OBJECTIVES["locality"]


def racks() -> Problem:
    """Racks r1 (n1, n2), r2 (n3) and r3 (n4) of 8-GPU nodes; 1 GPU of n2 is held."""
    return problem(
        nodes=[
            Node("n1", within="b1/r1"),
            Node("n2", within="b1/r1"),
            Node("n3", within="b1/r2"),
            Node("n4", within="b2/r3"),
        ],
        levels=["block", "rack"],
        jobs=[
            Running("old", at="n2"),
            Pending("a", gpus=4, replicas=3, preferred="rack"),
            Pending("b", gpus=2, replicas=2, preferred="rack"),
            Pending("c", gpus=4, replicas=2, preferred="block"),
            Pending("d", gpus=8),
        ],
    )


def test_nothing_started() -> None:
    p = racks()
    assert TIER.evaluate(p, status_quo(p)) == (0, 0)


def test_starts_without_a_preference_do_not_count() -> None:
    p = racks()
    assert TIER.evaluate(p, decide(p, start={"d": "n1"})) == (0, 0)


def test_domains_spanned_and_gpus_left_in_them() -> None:
    p = racks()
    # One rack: 15 free - 12 = 3 left in r1.
    assert TIER.evaluate(p, decide(p, start={"a": {"n1": 2, "n2": 1}})) == (0, 3)
    # r1 and r2: one too many; 15 - 8 = 7 and 8 - 4 = 4 are left.
    assert TIER.evaluate(p, decide(p, start={"a": {"n1": 2, "n3": 1}})) == (1, 11)
    # r1, r2 and r3: two too many; 15 - 4, 8 - 4 and 8 - 4 are left.
    assert TIER.evaluate(p, decide(p, start={"a": {"n1": 1, "n3": 1, "n4": 1}})) == (2, 19)


def test_a_domain_touched_by_two_starts_counts_once() -> None:
    p = racks()
    # r2 holds a replica of each: 8 - 4 - 4 = 0 left; r1: 15 - 8 = 7.
    d = decide(p, start={"a": {"n1": 2, "n3": 1}, "b": {"n3": 2}})
    assert TIER.evaluate(p, d) == (1, 7)


def test_each_start_by_its_own_level() -> None:
    p = racks()
    # c lies in one block: b1 has 23 free, 15 left after it.
    assert TIER.evaluate(p, decide(p, start={"c": {"n1": 1, "n3": 1}})) == (0, 15)
    # c over two blocks: 23 - 4 and 8 - 4 left.
    assert TIER.evaluate(p, decide(p, start={"c": {"n1": 1, "n4": 1}})) == (1, 23)
    # b in rack r2 (8 - 4 - 4 = 0 left) and c in block b1 (23 - 8 - 4 = 11 left, r2 among it): 11.
    assert TIER.evaluate(p, decide(p, start={"b": "n3", "c": {"n1": 1, "n3": 1}})) == (0, 11)


def test_borrowed_starts_count_as_well() -> None:
    p = problem(
        nodes=[Node("n1", within="r1"), Node("n2", within="r2")],
        levels=["rack"],
        jobs=[Pending("a", replicas=2, preferred="rack", funding="borrowed")],
    )
    assert TIER.evaluate(p, decide(p, borrow={"a": {"n1": 1, "n2": 1}})) == (1, 14)
