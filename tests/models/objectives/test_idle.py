"""GPUs left free, then GPUs lent that could be allocated."""

from __future__ import annotations

from builders import DOWN, DRAINING, Budget, Node, Pending, Running, decide, problem
from cpalloc.models.objectives import OBJECTIVES
from cpalloc.problem.problem import status_quo

TIER = OBJECTIVES["idle"]


def test_free_in_service_gpus_and_borrowed_starts() -> None:
    # n1: 8 - 1 unhealthy - 3 kept = 4 free; n2 and n3 are not in service.
    p = problem(
        nodes=[Node("n1", unhealthy=[7]), Node("n2", state=DRAINING), Node("n3", state=DOWN)],
        jobs=[Running("lent", at="n1", gpus=3), Pending("a", gpus=2, funding="any"), Pending("b", funding="any")],
    )
    assert TIER.evaluate(p, status_quo(p)) == (4, 0)
    assert TIER.evaluate(p, decide(p, start={"a": "n1"})) == (2, 0)
    assert TIER.evaluate(p, decide(p, borrow={"a": "n1"})) == (2, 2)
    assert TIER.evaluate(p, decide(p, start={"a": "n1"}, borrow={"b": "n1"})) == (1, 1)


def test_gpus_of_stopping_jobs_are_not_free() -> None:
    p = problem(nodes=[Node("n1")], jobs=[Running("stops", at="n1", gpus=3, stopping=True)])
    assert TIER.evaluate(p, status_quo(p)) == (5, 0)


def test_what_victims_leave_is_free() -> None:
    # 8 - 6 kept = 2; then 8 - 4 started = 4
    p = problem(
        nodes=[Node("n1")],
        jobs=[Running("v", budget="y", at="n1", gpus=6), Pending("a", gpus=4)],
        budgets=[Budget("x"), Budget("y")],
    )
    assert TIER.evaluate(p, status_quo(p)) == (2, 0)
    assert TIER.evaluate(p, decide(p, start={"a": "n1"}, preempt=["v"])) == (4, 0)


def test_an_exclusive_job_keeps_others_out_and_still_leaves_gpus_free() -> None:
    p = problem(nodes=[Node("n1", unhealthy=[0])], jobs=[Running("alone", at="n1", gpus=2, exclusive=True)])
    assert TIER.evaluate(p, status_quo(p)) == (6, 0)  # 7 healthy, 1 of them held: GPU 0 is broken
    assert TIER.evaluate(p, decide(p, preempt=["alone"])) == (7, 0)
