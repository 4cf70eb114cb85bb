"""Every voluntary preemption serves an allocated start of another budget on a node of the victim."""

from __future__ import annotations

from builders import DRAINING, Budget, Node, Pending, Running, blamed, decide, job_at, problem
from cpalloc.models.constraints.preemption import Preemption, victims
from cpalloc.problem.problem import JobState, Problem, status_quo
from reference.beneficiaries import beneficiaries

RULE = Preemption()


def contest(max_preempted_gpus: int = -1) -> Problem:
    """Budget y borrows n1 (8 GPUs) and, as a gang, half of n2 and n3; x and y queue."""
    return problem(
        nodes=[Node("n1"), Node("n2"), Node("n3")],
        jobs=[
            Running("v", budget="y", at="n1", gpus=8),
            Running("w", budget="y", at={"n2": 1, "n3": 1}, gpus=4, replicas=2),
            Pending("a", budget="x", gpus=8),
            Pending("b", budget="x", gpus=2, funding="any"),
            Pending("own", budget="y", gpus=8),
        ],
        budgets=[Budget("x"), Budget("y")],
        max_preempted_gpus=max_preempted_gpus,
    )


def test_applies_where_anything_may_be_preempted() -> None:
    assert RULE.applies(contest())
    assert not RULE.applies(problem(nodes=[Node("n1")], jobs=[Pending("a")]))


def test_accepts_a_preemption_for_an_allocated_start_in_its_place() -> None:
    p = contest()
    assert blamed(RULE, p, decide(p, start={"a": "n1"}, preempt=["v"])) == []


def test_a_start_on_one_node_of_a_gang_will_do() -> None:
    p = contest()
    assert blamed(RULE, p, decide(p, start={"b": "n3"}, preempt=["w"])) == []


def test_accepts_the_status_quo() -> None:
    p = contest()
    assert blamed(RULE, p, status_quo(p)) == []


def test_rejects_a_preemption_for_nothing() -> None:
    p = contest()
    assert blamed(RULE, p, decide(p, preempt=["v"])) == [("v",)]


def test_rejects_a_preemption_for_a_start_elsewhere() -> None:
    p = contest()
    assert blamed(RULE, p, decide(p, start={"b": "n2"}, preempt=["v"])) == [("v",)]


def test_rejects_a_preemption_for_borrowed_work() -> None:
    p = contest()
    assert blamed(RULE, p, decide(p, borrow={"b": "n1"}, preempt=["v"])) == [("v",)]


def test_rejects_a_preemption_for_its_own_budget() -> None:
    p = contest()
    assert blamed(RULE, p, decide(p, start={"own": "n1"}, preempt=["v"])) == [("v",)]


def test_each_victim_needs_its_own_reason() -> None:
    p = contest()
    assert blamed(RULE, p, decide(p, start={"a": "n1"}, preempt=["v", "w"])) == [("w",)]


def test_forced_ends_need_no_reason() -> None:
    p = problem(
        nodes=[Node("n1", state=DRAINING), Node("n2")],
        jobs=[
            Running("drained", at="n1", gpus=8),
            Running("stops", at="n2", gpus=4, stopping=True),
            Running("v", at="n2"),
        ],
        max_preempted_gpus=0,
    )
    assert blamed(RULE, p, status_quo(p)) == []


def test_the_bound_on_preempted_gpus() -> None:
    # v and w hold 8 + 8 GPUs.
    for bound, found in ((16, []), (15, [("v", "w")]), (-1, [])):
        p = contest(bound)
        d = decide(p, start={"a": "n1", "b": "n2"}, preempt=["v", "w"])
        assert blamed(RULE, p, d) == found


def test_a_bound_of_nothing() -> None:
    p = contest(0)
    assert blamed(RULE, p, status_quo(p)) == []
    assert blamed(RULE, p, decide(p, start={"a": "n1"}, preempt=["v"])) == [("v",)]


def test_victims_and_beneficiaries() -> None:
    p = contest()
    d = decide(p, start={"a": "n1", "own": "n2"}, borrow={"b": "n3"}, preempt=["v", "w"])
    assert [p.jobs.ids[j] for j in victims(p, d)] == ["v", "w"]
    assert beneficiaries(p, d, job_at(p, "v")) == (job_at(p, "a"),)
    assert beneficiaries(p, d, job_at(p, "w")) == ()  # own is of the same budget, b is borrowed


def test_nodes_that_are_not_listed_are_no_place_to_share() -> None:
    # Both v and a are on a node "n9" that nobody knows: that makes a no beneficiary.
    p = problem(
        nodes=[Node("n1")],
        jobs=[Running("v", budget="y", at={"n1": 1, "n9": 1}, replicas=2), Pending("a")],
        budgets=[Budget("x"), Budget("y")],
    )
    p.jobs.state[job_at(p, "v")] = JobState.EVICTABLE  # evictable, which compile never says of such a job
    assert blamed(RULE, p, decide(p, start={"a": "n9"}, preempt=["v"])) == [("v",)]
