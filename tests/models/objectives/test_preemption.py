"""What voluntary preemptions cost, and how ties are broken."""

from __future__ import annotations

from builders import DRAINING, Budget, Node, Pending, Running, decide, problem
from cpalloc.models.objectives import OBJECTIVES
from cpalloc.problem.problem import Problem, status_quo

TIER = OBJECTIVES["preemption"]


def two() -> Problem:
    """v: 2 × 2 GPUs, 100 s lost, 20 s to restart, 500 s old. w: 3 GPUs, 7 s lost, placed 60 s ago and not yet up."""
    return problem(
        nodes=[Node("n1"), Node("n2", state=DRAINING)],
        jobs=[
            Running("v", budget="y", at="n1", gpus=2, replicas=2, lost_s=100, restart_cost_s=20, age_s=500),
            Running("w", budget="y", at="n1", gpus=3, lost_s=7, age_s=60, up=False),
            Running("drained", at="n2", gpus=8, lost_s=1000),
            Running("stops", at="n1", stopping=True, lost_s=1000),
            Pending("a", budget="x"),
        ],
        budgets=[Budget("x"), Budget("y")],
    )


def test_parts() -> None:
    assert [part.name for part in TIER.parts] == ["cost", "jobs", "gpus", "age"]


def test_forced_ends_cost_nothing() -> None:
    p = two()
    assert TIER.evaluate(p, status_quo(p)) == (0, 0, 0, 0)


def test_victims_add_up() -> None:
    p = two()
    # 4·(100 + 20) GPU-seconds; 3·7 GPU-seconds
    assert TIER.evaluate(p, decide(p, start={"a": "n1"}, preempt=["v"])) == (480, 1, 4, 500)
    assert TIER.evaluate(p, decide(p, start={"a": "n1"}, preempt=["w"])) == (21, 1, 3, 60)
    assert TIER.evaluate(p, decide(p, start={"a": "n1"}, preempt=["v", "w"])) == (501, 2, 7, 560)
