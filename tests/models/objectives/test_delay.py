"""How long the blocked gangs still wait for what they were promised."""

from __future__ import annotations

from dataclasses import replace

from builders import HOUR, Budget, Node, Pending, Running, decide, hold, job_at, problem
from cpalloc.models.objectives import OBJECTIVES
from cpalloc.models.objectives.delay import instants
from cpalloc.problem.problem import US, Problem, status_quo

TIER = OBJECTIVES["delay"]
WEEK = 7 * 24 * HOUR


def two_gangs() -> Problem:
    """Gangs of 8 and 2 × 3 GPUs."""
    return problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[
            Running("old", at="n1", gpus=8, mode="allocated", protected_s=3 * HOUR),
            Pending("a", gpus=8),
            Pending("b", gpus=3, replicas=2),
        ],
        budgets=[Budget("x", claim=16)],
    )


def test_nobody_is_blocked() -> None:
    p = two_gangs()
    assert TIER.evaluate(p, status_quo(p)) == (0,)


def test_gpus_times_seconds_until_the_promise() -> None:
    p = two_gangs()
    a, b = job_at(p, "a"), job_at(p, "b")
    holds = (hold(p, "a", {"n1": 8}, in_s=3 * HOUR), hold(p, "b", {"n2": 6}, in_s=60))
    # 8·10,800 + 6·60
    assert TIER.evaluate(p, replace(status_quo(p), blocked=(a, b), reservations=holds)) == (86_760,)


def test_no_promise_counts_as_the_window() -> None:
    p = two_gangs()
    b = job_at(p, "b")
    assert TIER.evaluate(p, replace(status_quo(p), blocked=(b,))) == (6 * WEEK,)


def test_gpu_microseconds_are_floored_once() -> None:
    # 8 GPUs for 0.2 s are 1.6 GPU-seconds.
    p = two_gangs()
    promise = hold(p, "a", {"n1": 8}, in_s=0)
    promise = replace(promise, starts_us=p.now_us + 200_000)
    assert TIER.evaluate(p, replace(status_quo(p), blocked=(promise.job,), reservations=(promise,))) == (1,)


def test_a_promise_in_the_past_costs_nothing() -> None:
    p = two_gangs()
    promise = hold(p, "a", {"n1": 8}, in_s=-60)
    assert TIER.evaluate(p, replace(status_quo(p), blocked=(promise.job,), reservations=(promise,))) == (0,)


def test_one_that_starts_after_all_waits_no_longer() -> None:
    p = two_gangs()
    b = job_at(p, "b")
    assert TIER.evaluate(p, replace(decide(p, start={"b": "n2"}), blocked=(b,))) == (0,)


def test_timeouts_are_instants_too_where_a_claim_may_keep_a_job_longer_than_its_protection() -> None:
    """Over its share and past protection a job may leave now, or, if its budget keeps its claim back, at its timeout.

    Leaving the timeout out made the bound too high: a promise for that instant was below it.
    """
    p = problem(
        nodes=[Node("n1")],
        jobs=[
            Running("over", budget="x", at="n1", gpus=8, mode="allocated", timeout_s=11 * HOUR, age_s=10 * HOUR),
            Pending("gang", budget="y", gpus=8),
        ],
        budgets=[Budget("x", charged=2000, claim=8), Budget("y", claim=8)],
    )
    assert instants(p) == (p.now_us, p.now_us + HOUR * US)
