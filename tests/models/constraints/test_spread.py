"""At most so many replicas on a node, and nodes that a job wants to itself."""

from __future__ import annotations

from builders import Budget, Node, Pending, Running, blamed, decide, problem
from cpalloc.models.constraints.spread import Spread
from cpalloc.problem.problem import status_quo

RULE = Spread()
TWO = [Budget("x"), Budget("y")]


def test_applies_where_someone_minds() -> None:
    nodes = [Node("n1")]
    assert not RULE.applies(problem(nodes=nodes, jobs=[Pending("a")]))
    assert RULE.applies(problem(nodes=nodes, jobs=[Pending("a", max_per_node=1)]))
    assert RULE.applies(problem(nodes=nodes, jobs=[Pending("a", exclusive=True)]))


def test_replicas_per_node() -> None:
    p = problem(nodes=[Node("n1"), Node("n2")], jobs=[Pending("a", replicas=4, max_per_node=2)])
    assert blamed(RULE, p, decide(p, start={"a": {"n1": 2, "n2": 2}})) == []
    assert blamed(RULE, p, decide(p, start={"a": {"n1": 3, "n2": 1}})) == [("a",)]


def test_the_limit_is_of_each_job() -> None:
    p = problem(nodes=[Node("n1")], jobs=[Pending("a", max_per_node=1), Pending("b", max_per_node=1)])
    assert blamed(RULE, p, decide(p, start={"a": "n1", "b": "n1"})) == []


def test_an_exclusive_start_has_its_nodes_to_itself() -> None:
    p = problem(nodes=[Node("n1"), Node("n2")], jobs=[Pending("alone", replicas=2, exclusive=True), Pending("b")])
    assert blamed(RULE, p, decide(p, start={"alone": {"n1": 2}, "b": "n2"})) == []
    assert blamed(RULE, p, decide(p, start={"alone": {"n1": 1, "n2": 1}, "b": "n2"})) == [("alone", "b")]


def test_two_exclusive_starts_do_not_share() -> None:
    p = problem(nodes=[Node("n1")], jobs=[Pending("a", exclusive=True), Pending("b", exclusive=True)])
    assert blamed(RULE, p, decide(p, start={"a": "n1", "b": "n1"})) == [("a", "b")]


def test_an_exclusive_start_waits_for_those_who_stay() -> None:
    p = problem(
        nodes=[Node("n1")], jobs=[Running("old", budget="y", at="n1"), Pending("alone", exclusive=True)], budgets=TWO
    )
    assert blamed(RULE, p, decide(p, start={"alone": "n1"})) == [("alone", "old")]
    assert blamed(RULE, p, decide(p, start={"alone": "n1"}, preempt=["old"])) == []


def test_an_exclusive_start_waits_for_those_who_stop() -> None:
    p = problem(nodes=[Node("n1")], jobs=[Running("stops", at="n1", stopping=True), Pending("alone", exclusive=True)])
    assert blamed(RULE, p, decide(p, start={"alone": "n1"})) == [("alone", "stops")]


def test_nobody_starts_beside_a_kept_exclusive_job() -> None:
    p = problem(
        nodes=[Node("n1")], jobs=[Running("alone", budget="y", at="n1", exclusive=True), Pending("a")], budgets=TWO
    )
    assert blamed(RULE, p, decide(p, start={"a": "n1"})) == [("a", "alone")]
    assert blamed(RULE, p, decide(p, start={"a": "n1"}, preempt=["alone"])) == []


def test_nobody_starts_beside_a_stopping_exclusive_job() -> None:
    p = problem(nodes=[Node("n1")], jobs=[Running("alone", at="n1", exclusive=True, stopping=True), Pending("a")])
    assert blamed(RULE, p, decide(p, start={"a": "n1"})) == [("a", "alone")]


def test_jobs_that_share_already_may_go_on() -> None:
    p = problem(nodes=[Node("n1")], jobs=[Running("alone", at="n1", exclusive=True), Running("b", at="n1")])
    assert blamed(RULE, p, status_quo(p)) == []


def test_nothing_is_known_of_nodes_that_are_not_listed() -> None:
    # Whether a and alone share a node is a question for `capacity`, which refuses such places.
    p = problem(nodes=[Node("n1")], jobs=[Running("alone", at="n8", exclusive=True), Pending("a")])
    assert blamed(RULE, p, decide(p, start={"a": "n9"})) == []
