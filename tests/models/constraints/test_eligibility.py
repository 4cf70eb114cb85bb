"""Starts go where their terms allow, and replicas bound to a GPU group lie in one."""

from __future__ import annotations

from builders import DRAINING, Node, Pending, Running, blamed, decide, problem
from cpalloc.models.constraints.eligibility import Eligibility
from cpalloc.problem.problem import status_quo

RULE = Eligibility()
GROUPS = [range(2), range(2, 4), range(4, 8)]


def test_always_applies() -> None:
    assert RULE.applies(problem(nodes=[]))


def test_eligible_nodes() -> None:
    p = problem(nodes=[Node("n1"), Node("n2")], jobs=[Pending("a", replicas=2, nodes=["n2"])])
    assert blamed(RULE, p, decide(p, start={"a": "n2"})) == []
    assert blamed(RULE, p, decide(p, start={"a": {"n1": 1, "n2": 1}})) == [("a",)]


def test_rejects_nodes_that_are_not_ready() -> None:
    p = problem(nodes=[Node("n1", state=DRAINING)], jobs=[Pending("a")])
    assert blamed(RULE, p, decide(p, start={"a": "n1"})) == [("a",)]


def test_those_who_run_may_stay() -> None:
    p = problem(nodes=[Node("n1", state=DRAINING)], jobs=[Running("old", at="n1", mode="allocated", protected_s=60)])
    assert blamed(RULE, p, status_quo(p)) == []


def test_one_gpu_group() -> None:
    p = problem(nodes=[Node("n1", groups=GROUPS)], jobs=[Pending("a", gpus=2, replicas=2, same_gpu_group=True)])
    assert blamed(RULE, p, decide(p, start={"a": [("n1", [2, 3]), ("n1", [6, 7])]})) == []
    assert blamed(RULE, p, decide(p, start={"a": [("n1", [3, 4]), ("n1", [6, 7])]})) == [("a",)]


def test_any_gpus_for_those_who_do_not_mind() -> None:
    p = problem(nodes=[Node("n1", groups=GROUPS)], jobs=[Pending("a", gpus=2)])
    assert blamed(RULE, p, decide(p, start={"a": [("n1", [3, 4])]})) == []


def test_rejects_gpus_whose_group_nobody_knows() -> None:
    p = problem(
        nodes=[Node("n1", unknown=True)], jobs=[Running("old", at="n1"), Pending("a", gpus=2, same_gpu_group=True)]
    )
    assert blamed(RULE, p, decide(p, start={"a": "n1"})) == [("a",)]
