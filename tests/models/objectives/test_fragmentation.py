"""The tier is the measure of ``metrics.fragmentation``; its own tests are there."""

from __future__ import annotations

from builders import HOUR, Node, Pending, Running, decide, problem
from cpalloc.metrics.fragmentation import tier_value
from cpalloc.models.objectives import OBJECTIVES
from cpalloc.problem.problem import Shape

TIER = OBJECTIVES["fragmentation"]


def test_worked_decision_8() -> None:
    # 1 and 8 GPUs free, gangs of a whole node in the mix. In the hole: 8 - 8 = 0 stranded and one fits now.
    # On the empty node: 1 + 7 stranded, and the next whole node after min_runtime, 1 h.
    p = problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[Running("old", at="n1", gpus=7, mode="allocated", protected_s=8 * HOUR), Pending("a")],
        mix=[Shape(replicas=1, gpus_per_replica=8, level=0, weight=1)],
    )
    hole, empty = decide(p, start={"a": "n1"}), decide(p, start={"a": "n2"})
    assert TIER.evaluate(p, hole) == (0,)
    assert TIER.evaluate(p, empty) == (8 * HOUR + 8 * HOUR,)
    assert TIER.evaluate(p, empty) == (tier_value(p, empty),)
