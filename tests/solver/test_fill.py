"""What a decision leaves free is given to allocated work beyond the entitlements, and lent."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from builders import Budget, Node, Pending, Running, decide, problem
from cpalloc.generate import GeneratorConfig, generate
from cpalloc.models.objectives import OBJECTIVES
from cpalloc.problem.compile import compile_round
from cpalloc.problem.problem import Action, Decision, Mode, Problem, status_quo
from cpalloc.solver.fill import filled
from cpalloc.solver.values import violations
from models.fixing import any_decision, without_lent


def begun(p: Problem, d: Decision) -> dict[str, Mode]:
    return {p.jobs.ids[j]: Mode(int(d.mode[j])) for j in sorted(d.placement)}


def keeps(p: Problem, before: Decision, after: Decision) -> bool:
    """Whether everything that was decided is still so: starts and their places, preemptions, promotions."""
    decided = before.action != Action.WAIT
    return (
        all(after.placement[j] == places for j, places in before.placement.items())
        and np.array_equal(after.action[decided], before.action[decided])
        and np.array_equal(after.mode[decided], before.mode[decided])
        and np.array_equal(after.promoted, before.promoted)
    )


def test_beyond_the_entitlements_first_and_with_lending_alone_after_that() -> None:
    p = problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[
            Pending("mine", gpus=8),
            Pending("beyond", gpus=8),
            Pending("lent", gpus=8, funding="borrowed"),
        ],
        budgets=[Budget("x", entitled=8, claim=8)],
    )
    d = decide(p, start={"mine": "n1"})
    first, second = filled(p, d)
    assert begun(p, first) == {"mine": Mode.ALLOCATED, "beyond": Mode.ALLOCATED}
    assert begun(p, second) == {"mine": Mode.ALLOCATED, "lent": Mode.BORROWED}
    for after in (first, second):
        assert keeps(p, d, after)
        assert violations(p, after) == []


def test_both_where_there_is_room_for_both() -> None:
    p = problem(
        nodes=[Node("n1")],
        jobs=[Pending("a", gpus=2), Pending("b", gpus=2), Pending("c", gpus=3, funding="borrowed")],
    )
    first, second = filled(p, decide(p, start={"b": "n1"}))
    assert begun(p, first) == {"a": Mode.ALLOCATED, "b": Mode.ALLOCATED, "c": Mode.BORROWED}
    assert begun(p, second) == {"b": Mode.ALLOCATED, "c": Mode.BORROWED}


def test_who_takes_either_mode_is_lent_what_its_claim_does_not_reach() -> None:
    p = problem(nodes=[Node("n1")], jobs=[Pending("a", gpus=8, funding="any")], budgets=[Budget("x", claim=0)])
    assert [begun(p, after) for after in filled(p, status_quo(p))] == [{"a": Mode.BORROWED}] * 2


def test_nothing_is_preempted_for_it() -> None:
    p = problem(
        nodes=[Node("n1")],
        jobs=[Running("v", budget="y", at="n1", gpus=8), Pending("a", gpus=8), Pending("b", funding="borrowed")],
        budgets=[Budget("x", entitled=8, claim=8), Budget("y")],
    )
    quo = status_quo(p)
    for after in filled(p, quo):
        assert begun(p, after) == {}
        assert keeps(p, quo, after)


def test_what_is_left_of_a_victim_is_used() -> None:
    p = problem(
        nodes=[Node("n1")],
        jobs=[
            Running("v", budget="y", at="n1", gpus=8),
            Pending("a", gpus=6),
            Pending("b", gpus=2, funding="borrowed"),
        ],
        budgets=[Budget("x", entitled=6, claim=6), Budget("y")],
    )
    d = decide(p, start={"a": "n1"}, preempt=["v"])
    for after in filled(p, d):
        assert set(begun(p, after)) == {"a", "b"}
        assert keeps(p, d, after)
        assert violations(p, after) == []


@pytest.mark.parametrize("family", ["mixed", "gang-heavy"])
def test_fewer_idle_gpus_and_no_rule_broken(family: str) -> None:
    rng, gained = Random(family), [0, 0]
    for seed in range(10):
        config = GeneratorConfig(nodes=12, seed=seed, family=family, nodes_per_rack=4, fill=0.7, budgets=4)
        p = compile_round(generate(config)).problem
        drawn = any_decision(p, rng)
        if drawn is None:
            continue
        d = without_lent(p, drawn)
        assert violations(p, d) == []
        for i, after in enumerate(filled(p, d)):
            assert violations(p, after) == []
            assert keeps(p, d, after)
            idle = [OBJECTIVES["idle"].evaluate(p, x)[0] for x in (d, after)]
            assert idle[1] <= idle[0]
            gained[i] += idle[0] - idle[1]
            fresh = [j for j in after.placement if j not in d.placement]
            assert i == 0 or all(after.mode[j] == Mode.BORROWED for j in fresh)
    assert min(gained) > 0
