"""Budgets that serve their queues in turn."""

from __future__ import annotations

from collections import defaultdict

import pytest

from builders import Budget, Node, Pending, Running, job_at, problem
from cpalloc.generate import GeneratorConfig, generate
from cpalloc.models.in_turn import serve_in_turn
from cpalloc.models.pooled import Pooled
from cpalloc.problem.compile import compile_round
from cpalloc.problem.problem import Problem
from cpalloc.solver.outcome import Run
from cpalloc.solver.run import minimise
from models.fixing import ONE_WORKER


def solved(pooled: Pooled) -> Run:
    run = minimise(pooled.model, pooled.objective, options=ONE_WORKER, limit_s=60.0)
    assert run.values is not None
    return run


def started(pooled: Pooled) -> list[str]:
    return sorted(pooled.problem.jobs.ids[j] for j in pooled.starts(solved(pooled).values or ()))


def dear_and_cheap(*waiting: Pending) -> Problem:
    """A node on loan in each of two pools, what h100 holds cheaper than what a100 does; x wants both."""
    return problem(
        nodes=[Node("a", pool="a100"), Node("h", pool="h100")],
        jobs=[
            Running("dear", budget="y", at="a", gpus=8, lost_s=600),
            Running("cheap", budget="y", at="h", gpus=8, lost_s=60),
            *waiting,
        ],
        budgets=[Budget("x", entitled=16, claim=16), Budget("y")],
    )


def behind_a_gang(gang: int) -> Problem:
    """16 GPUs on loan, of which 8 cost ten times as much as the other 8. A gang is first in its budget's queue."""
    return problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[
            Running("dear", budget="y", at="n1", gpus=8, lost_s=600),
            Running("cheap", budget="y", at="n2", gpus=8, lost_s=60),
            Pending("gang", budget="x", gpus=4, replicas=gang // 4),
            *(Pending(f"s{i}", budget="x", gpus=4) for i in range(2)),
        ],
        budgets=[Budget("x", entitled=16, claim=16), Budget("y")],
    )


@pytest.mark.parametrize(("gang", "in_turn"), [(12, ["s0", "s1"]), (8, ["gang"]), (4, ["gang", "s0"])])
def test_nobody_is_passed_over_who_would_find_room_in_the_place_of_those_behind(gang: int, in_turn: list[str]) -> None:
    # A gang larger than all that starts behind it waits; any other comes first.
    p = behind_a_gang(gang)
    pooled = Pooled(p, "preemption", {"shortfall": 8})
    serve_in_turn(pooled, {(0, 0): 8})
    assert started(pooled) == in_turn


def test_without_turns_whoever_costs_least_starts() -> None:
    p = dear_and_cheap(
        Pending("first", budget="x", gpus=8, nodes={"a"}),
        Pending("second", budget="x", gpus=8, nodes={"h"}),
    )
    pooled = Pooled(p, "preemption", {"shortfall": 8})
    assert started(pooled) == ["second"]
    serve_in_turn(pooled, {})
    assert started(pooled) == ["first"]
    assert pooled.starts(solved(pooled).values or ()) == {job_at(p, "first"): p.pool_names.index("a100")}
    pooled = Pooled(p, "preemption", {"shortfall": 8})
    serve_in_turn(pooled, {}, by_pool=True)
    assert started(pooled) == ["second"]  # which the first one could not take the place of


def test_in_a_set_of_pools_only_those_who_may_go_there_come_first() -> None:
    # What costs least is the job in the middle, in h100; the first one could go there as well.
    p = dear_and_cheap(
        Pending("either", budget="x", gpus=8),
        Pending("h", budget="x", gpus=8, nodes={"h"}),
    )
    pooled = Pooled(p, "preemption", {"shortfall": 8})
    serve_in_turn(pooled, {}, by_pool=True)
    assert pooled.starts(solved(pooled).values or ()) == {job_at(p, "either"): p.pool_names.index("h100")}


@pytest.mark.parametrize("by_pool", [False, True])
def test_whoever_is_left_out_asks_for_more_than_all_behind_it_have_in_its_pools(by_pool: bool) -> None:
    left_out = 0
    for seed in range(6):
        for family in ("mixed", "gang-heavy"):
            p = compile_round(generate(GeneratorConfig(nodes=32, seed=seed, family=family))).problem
            free, bound = Pooled(p, "shortfall", {}), Pooled(p, "shortfall", {})
            run, about = solved(free), defaultdict[tuple[int, int], int](int)
            for j, pool in free.starts(run.values or ()).items():
                about[int(p.jobs.leaf[j]), pool] += int(p.jobs.size[j])
            serve_in_turn(bound, about, by_pool=by_pool)
            again = solved(bound)
            assert again.objective is not None
            assert run.objective is not None
            assert again.objective >= run.objective
            starts, jobs = bound.starts(again.values or ()), p.jobs
            for members, pools in bound.waiting:
                for j in set(members) - starts.keys():
                    behind = {k for k in starts if jobs.leaf[k] == jobs.leaf[j] and jobs.order[k] > jobs.order[j]}
                    in_its_pools = [int(jobs.size[k]) for k in behind if starts[k] in pools]
                    assert sum(in_its_pools) < int(jobs.size[j])
                    left_out += bool(behind)
    assert left_out >= 5
