"""Budgets that passed somebody over start their jobs anew, one by one in order."""

from __future__ import annotations

import numpy as np
import pytest

from builders import HOUR, Budget, Node, Pending, Running, decide, job_at, problem
from cpalloc.generate import GeneratorConfig, generate
from cpalloc.models.objectives import OBJECTIVES
from cpalloc.models.objectives.inversion import inverted
from cpalloc.problem.compile import compile_round
from cpalloc.problem.problem import Action, Decision, JobState, Mode, Problem, status_quo
from cpalloc.solver.greedy import in_order, start
from cpalloc.solver.placing import GreedyState
from cpalloc.solver.prune import prune
from cpalloc.solver.values import violations

NOTHING = {"starvation": 0, "shortfall": 0}
ANYTHING = {"starvation": 10**9, "shortfall": 10**9}


def names(p: Problem, d: Decision, action: Action = Action.START) -> set[str]:
    return {p.jobs.ids[j] for j in np.flatnonzero(d.action == action).tolist()}


def spoilt(p: Problem, *, borrow: bool) -> Decision:
    """Every budget up to its entitlement, worst-ranked jobs first; then, where asked for, as much borrowed as fits."""
    state, jobs = GreedyState.after(p, status_quo(p)), p.jobs
    waiting = np.flatnonzero(jobs.state == JobState.PENDING).tolist()
    waiting.sort(key=lambda j: (-int(jobs.order[j]), j))
    for j in waiting:
        if jobs.may_allocate[j] and state.granted[jobs.leaf[j]] < p.budgets.entitled[jobs.leaf[j]]:
            start(state, j, Mode.ALLOCATED, may_preempt=False)
    for j in waiting if borrow else ():
        if jobs.may_borrow[j] and state.decision.action[j] == Action.WAIT:
            start(state, j, Mode.BORROWED, may_preempt=False)
    return prune(p, state.result())


def value(p: Problem, d: Decision, tier: str) -> int:
    return OBJECTIVES[tier].evaluate(p, d)[0]


@pytest.mark.parametrize("borrow", [False, True])
def test_nobody_is_passed_over_any_more(borrow: bool) -> None:
    """One budget at a time: what others start anew may leave room that nobody asks for again."""
    seen = 0
    for seed in range(24):
        config = GeneratorConfig(
            nodes=(12, 16, 24)[seed % 3],
            seed=seed,
            nodes_per_rack=4,
            racks_per_block=2,
            budgets=(3, 6, 9)[seed % 3],
            fill=(0.5, 0.8, 0.9, 0.95)[seed % 4],
            family=("mixed", "gang-heavy")[seed % 2],
        )
        p = compile_round(generate(config)).problem
        d = spoilt(p, borrow=borrow)
        assert violations(p, d) == []
        most = {tier: value(p, d, tier) for tier in ("starvation", "shortfall")}
        for leaf in sorted({int(p.jobs.leaf[j]) for j in inverted(p, d)}):
            passed = [j for j in inverted(p, d) if p.jobs.leaf[j] == leaf]
            after = in_order(p, d, passed, most)
            assert violations(p, after) == []
            for tier, limit in most.items():
                assert value(p, after, tier) <= limit, (seed, tier)
            if (after.action == Action.PREEMPT).sum() > (d.action == Action.PREEMPT).sum():
                continue  # what victims leave may make room as well
            assert [j for j in inverted(p, after) if p.jobs.leaf[j] == leaf] == [], seed
            others = [j for j in d.placement if p.jobs.leaf[j] != leaf and d.mode[j] == Mode.ALLOCATED]
            assert all(after.placement[j] == d.placement[j] for j in others)
            seen += 1
    assert seen >= 20


def test_the_better_job_starts_and_the_worse_one_waits() -> None:
    p = problem(nodes=[Node("n1")], jobs=[Pending("first", gpus=8), Pending("second", gpus=8)])
    d = decide(p, start={"second": "n1"})
    after = in_order(p, d, inverted(p, d), NOTHING)
    assert names(p, after) == {"first"}
    assert inverted(p, after) == []
    assert violations(p, after) == []


def test_jobs_start_again_where_they_were() -> None:
    # third lies on the last GPUs of n2, where nobody would put it; first takes n1 and third stays where it is.
    p = problem(
        nodes=[Node("n1"), Node("n2"), Node("n3")],
        jobs=[Pending("first", gpus=8), Pending("third", gpus=2), Pending("second", gpus=8)],
        budgets=[Budget("x", entitled=99, claim=99)],
    )
    d = decide(p, start={"second": "n1", "third": [("n2", [5, 7])]})
    after = in_order(p, d, inverted(p, d), ANYTHING)
    assert names(p, after) == {"first", "second", "third"}
    assert after.placement[job_at(p, "third")] == d.placement[job_at(p, "third")]


def test_who_cannot_stay_moves() -> None:
    # first may use n1 alone; second, which was there, fits n2 as well.
    p = problem(
        nodes=[Node("n1"), Node("n2")], jobs=[Pending("first", gpus=8, nodes=["n1"]), Pending("second", gpus=8)]
    )
    d = decide(p, start={"second": "n1"})
    # As many GPUs as before: then second is one too many, unless its budget is short.
    assert names(p, in_order(p, d, inverted(p, d), ANYTHING)) == {"first"}
    short = problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[Pending("first", gpus=8, nodes=["n1"]), Pending("second", gpus=8)],
        budgets=[Budget("x", entitled=16, claim=16)],
    )
    assert names(short, in_order(short, d, inverted(short, d), ANYTHING)) == {"first", "second"}


def test_other_budgets_stay_as_they_are() -> None:
    p = problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[
            Pending("first", gpus=8),
            Pending("second", gpus=8),
            Pending("a", budget="y", gpus=4),
            Pending("b", budget="y", gpus=4, priority=3),
        ],
        budgets=[Budget("x"), Budget("y")],
    )
    d = decide(p, start={"second": "n1", "a": "n2"})
    both = inverted(p, d)
    assert [p.jobs.ids[j] for j in both] == ["b", "first"]
    assert names(p, in_order(p, d, [job_at(p, "first")], NOTHING)) == {"first", "a"}
    assert names(p, in_order(p, d, both, NOTHING)) == {"first", "b"}


def test_each_mode_for_itself() -> None:
    p = problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[
            Pending("first", gpus=8, funding="borrowed"),
            Pending("second", gpus=8, funding="borrowed"),
            Pending("owned", gpus=8),
        ],
    )
    d = decide(p, start={"owned": "n2"}, borrow={"second": "n1"})
    after = in_order(p, d, inverted(p, d), NOTHING)
    assert {p.jobs.ids[j]: Mode(int(after.mode[j])) for j in after.placement} == {
        "first": Mode.BORROWED,
        "owned": Mode.ALLOCATED,
    }
    assert after.placement[job_at(p, "owned")] == d.placement[job_at(p, "owned")]


def contest(entitled: int, claim: int = 0) -> Problem:
    """x started second on n1 and passed first over, which fits n2 only once v of budget y has left it."""
    return problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[
            Running("v", budget="y", at="n2", gpus=8),
            Pending("first", gpus=6, nodes=["n1"]),
            Pending("second", gpus=8, nodes=["n1"]),
            Pending("third", gpus=8),
        ],
        budgets=[Budget("x", entitled=entitled, claim=claim), Budget("y")],
    )


@pytest.mark.parametrize(("shortfall", "gone"), [(0, {"v"}), (1, {"v"}), (2, set()), (8, set())])
def test_further_work_is_preempted_only_where_too_much_is_short(shortfall: int, gone: set[str]) -> None:
    # Entitled 8, second had them; first alone has 6: 2 are short.
    p = contest(entitled=8, claim=8)
    d = decide(p, start={"second": "n1"})
    assert value(p, d, "shortfall") == 0
    after = in_order(p, d, inverted(p, d), {"starvation": 0, "shortfall": shortfall})
    assert violations(p, after) == []
    assert names(p, after, Action.PREEMPT) == gone
    assert value(p, after, "shortfall") <= shortfall


def test_starvation_asks_for_preemptions_as_well() -> None:
    # Entitled 16 and granted 6: 10 short, 4 × 10 − 16 = 24 quarters, 16 + 2 × 8 = 32.
    p = contest(entitled=16, claim=16)
    d = decide(p, start={"second": "n1"})
    passed = inverted(p, d)
    assert names(p, in_order(p, d, passed, {"starvation": 32, "shortfall": 99}), Action.PREEMPT) == set()
    assert names(p, in_order(p, d, passed, {"starvation": 31, "shortfall": 99}), Action.PREEMPT) == {"v"}


@pytest.mark.parametrize(("shortfall", "number"), [(18, 0), (17, 1), (10, 1), (9, 2), (2, 2)])
def test_no_more_is_preempted_than_it_takes(shortfall: int, number: int) -> None:
    # Entitled 24, first has 6: 18 are short, 10 with one node taken back, 2 with both.
    p = problem(
        nodes=[Node("n1"), Node("n2"), Node("n3")],
        jobs=[
            *(Running(f"v{i}", budget="y", at=f"n{i}", gpus=8) for i in (2, 3)),
            Pending("first", gpus=6, nodes=["n1"]),
            Pending("second", gpus=8, nodes=["n1"]),
            Pending("third", gpus=8),
            Pending("fourth", gpus=8),
        ],
        budgets=[Budget("x", entitled=24, claim=24), Budget("y")],
    )
    d = decide(p, start={"second": "n1"})
    after = in_order(p, d, inverted(p, d), {"starvation": 999, "shortfall": shortfall})
    assert len(names(p, after, Action.PREEMPT)) == number


def test_a_budget_that_loses_work_gets_its_claim_back() -> None:
    # y has 8 of a claim of 8 and loses them to other; what it started instead must make up for that (rule 4).
    p = problem(
        nodes=[Node("n1"), Node("n2"), Node("n3")],
        jobs=[
            Running("old", budget="y", at="n1", gpus=8, mode="allocated"),
            Running("lent", budget="z", at="n3", gpus=8),
            Pending("other", budget="x", gpus=8),
            Pending("first", budget="y", gpus=6, nodes=["n2"]),
            Pending("second", budget="y", gpus=8, nodes=["n2"]),
            Pending("third", budget="y", gpus=2, nodes=["n3"]),
        ],
        budgets=[Budget("x", entitled=8, claim=8), Budget("y", charged=1500, claim=8), Budget("z")],
    )
    d = decide(p, start={"other": "n1", "second": "n2"}, preempt=["old"])
    assert violations(p, d) == []
    assert [p.jobs.ids[j] for j in inverted(p, d)] == ["first"]
    after = in_order(p, d, inverted(p, d), NOTHING)
    # first has 6 of the 8; third makes them up in the place of lent.
    assert violations(p, after) == []
    assert names(p, after) == {"other", "first", "third"}
    assert names(p, after, Action.PREEMPT) == {"old", "lent"}


def test_preemptions_that_serve_nobody_any_more_are_taken_back() -> None:
    # second made room on n2 and n1; first, better and smaller, needs n1 alone.
    p = problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[
            Running("v", budget="y", at="n1", gpus=8),
            Running("w", budget="y", at="n2", gpus=8),
            Pending("first", gpus=8, nodes=["n1"]),
            Pending("second", gpus=8, replicas=2, min_runtime_s=2 * HOUR),
        ],
        budgets=[Budget("x", entitled=8, claim=16), Budget("y")],
    )
    d = decide(p, start={"second": {"n1": 1, "n2": 1}}, preempt=["v", "w"])
    after = in_order(p, d, inverted(p, d), NOTHING)
    assert names(p, after) == {"first"}
    assert names(p, after, Action.PREEMPT) == {"v"}


def test_room_that_another_budget_gives_up_is_taken_in_order_too() -> None:
    # b2 leaves n1, as b1 has all the GPUs that b2 and b3 had; beside it a1 did not fit, and a2 keeps its place there.
    p = problem(
        nodes=[Node("n1"), Node("n2"), Node("n3")],
        jobs=[
            Pending("a0", budget="a", gpus=4, nodes=["n3"]),
            Pending("a1", budget="a", gpus=8, nodes=["n1"]),
            Pending("a2", budget="a", gpus=4, nodes=["n1"]),
            Pending("a3", budget="a", gpus=4, nodes=["n3"]),
            Pending("b1", budget="b", gpus=8, nodes=["n2"]),
            Pending("b2", budget="b", gpus=4, nodes=["n1"]),
            Pending("b3", budget="b", gpus=4, nodes=["n2"]),
        ],
        budgets=[Budget("a"), Budget("b")],
    )
    d = decide(p, start={"a2": "n1", "a3": "n3", "b2": "n1", "b3": "n2"})
    assert [p.jobs.ids[j] for j in inverted(p, d)] == ["a0", "b1"]
    after = in_order(p, d, inverted(p, d), NOTHING)
    assert [p.jobs.ids[j] for j in inverted(p, after)] == []


def test_what_is_lent_this_round_makes_room() -> None:
    p = problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[
            Pending("first", gpus=8, nodes=["n1"]),
            Pending("second", gpus=8, nodes=["n2"]),
            Pending("lent", gpus=8, nodes=["n1"], funding="borrowed"),
        ],
    )
    d = decide(p, start={"second": "n2"}, borrow={"lent": "n1"})
    after = in_order(p, d, inverted(p, d), NOTHING)
    assert inverted(p, after) == []
