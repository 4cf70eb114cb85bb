"""Whom a model watches once a decision passes somebody over, and where nothing calls for a finer one."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from builders import Budget, Node, Pending, Running, decide, job_at, problem
from cpalloc.models.objectives.inversion import inverted, weight
from cpalloc.models.partition import Partition
from cpalloc.problem.problem import Action, Decision, JobState, Problem, Tier, status_quo
from cpalloc.solver.refine import tell_apart
from models.fixing import any_decision

ORDER = ("shortfall", "inversion", "preemption", "delay", "idle", "fragmentation", "locality")
LATER = ORDER[2:]


def tiered(p: Problem, *names: str) -> Problem:
    return replace(p, policy=replace(p.policy, tiers=tuple(Tier(name) for name in names or ORDER)))


def told(
    p: Problem, tier: str, d: Decision, known: Partition | None = None, *, inversion: int = 0, firmly: bool = False
) -> Partition:
    return tell_apart(
        p,
        known or Partition(),
        tier,
        d,
        [],
        incumbent=status_quo(p),
        affordable=lambda jobs: jobs,
        inversion=inversion,
        firmly=firmly,
    )


def ids(p: Problem, jobs: frozenset[int]) -> set[str]:
    return {p.jobs.ids[j] for j in jobs}


def queues() -> tuple[Problem, Decision]:
    """x starts the fifth of its queue on n1, where only the third would fit; y and z pass nobody over."""
    p = tiered(
        problem(
            nodes=[Node("n1"), Node("n2"), Node("n3")],
            jobs=[
                Running("lent", budget="y", at="n3", gpus=8),
                Pending("x1", gpus=8, replicas=4),
                Pending("x2", gpus=8, nodes=["n2"]),
                Pending("x3", gpus=8, priority=1),
                Pending("x4", gpus=8, nodes=[], refused=True),
                Pending("x5", gpus=4, replicas=2, nodes=["n1"]),
                Pending("x6", gpus=2, nodes=["n1"]),
                Pending("y1", budget="y", gpus=8, nodes=["n1"]),
                Pending("y2", budget="y", gpus=8, nodes=["n2"]),
                Pending("z1", budget="z", gpus=8, nodes=["n1"]),
            ],
            budgets=[Budget("x"), Budget("y"), Budget("z")],
        )
    )
    d = decide(p, start={"x5": "n1", "y2": "n2"})
    assert ids(p, frozenset(inverted(p, d))) == {"x3"}
    return p, d


def test_all_that_wait_ahead_of_a_start_of_the_budget_are_watched_at_once() -> None:
    # Not x4, which never starts, nor x6, which waits behind; y1 waits ahead of y2, but y passes nobody over.
    p, d = queues()
    assert told(p, "inversion", d) == Partition(watched=frozenset(job_at(p, name) for name in ("x1", "x2", "x3")))


def test_all_budgets_that_pass_somebody_over_are_looked_at_together() -> None:
    big = [Pending(f"{b}-big", budget=b, gpus=8, replicas=2, nodes=[n]) for b, n in (("x", "n1"), ("y", "n2"))]
    p = tiered(
        problem(
            nodes=[Node("n1"), Node("n2")],
            jobs=[
                *big,
                *(Pending(f"{b}-first", budget=b, gpus=8, nodes=[n]) for b, n in (("x", "n1"), ("y", "n2"))),
                *(Pending(f"{b}-last", budget=b, gpus=4, nodes=[n]) for b, n in (("x", "n1"), ("y", "n2"))),
            ],
            budgets=[Budget("x"), Budget("y")],
        )
    )
    one, both = decide(p, start={"x-last": "n1"}), decide(p, start={"x-last": "n1", "y-last": "n2"})
    assert ids(p, told(p, "inversion", one).watched) == {"x-big", "x-first"}
    assert ids(p, told(p, "inversion", both).watched) == {"x-big", "x-first", "y-big", "y-first"}


def test_borrowed_starts_count_as_well() -> None:
    p = tiered(
        problem(
            nodes=[Node("n1")],
            jobs=[
                Pending("never", gpus=8, replicas=2, funding="borrowed"),
                Pending("first", gpus=8, funding="borrowed"),
                Pending("last", gpus=8, funding="borrowed"),
            ],
        )
    )
    assert ids(p, told(p, "inversion", decide(p, borrow={"last": "n1"})).watched) == {"first", "never"}


def test_whoever_is_watched_already_stays_watched() -> None:
    p, d = queues()
    # From the second look on those whom starts of other budgets pass are looked at as well: y1 waits ahead of y2.
    for known in ("x1", "z1"):
        more = told(p, "inversion", d, Partition(watched=frozenset({job_at(p, known)})))
        assert ids(p, more.watched) == {"x1", "x2", "x3", "y1", known}
    # Who waits ahead but is not passed over calls for nothing: once x3 is watched something finer is told apart.
    for names in (["x3"], ["x1", "x2", "x3"]):
        watched = Partition(watched=frozenset(job_at(p, name) for name in names))
        finer = told(p, "inversion", d, watched)
        assert finer.watched == watched.watched
        assert finer != watched


@pytest.mark.parametrize("firmly", [False, True])
@pytest.mark.parametrize("tier", LATER)
def test_within_the_limit_later_tiers_call_for_no_finer_model(tier: str, firmly: bool) -> None:
    p, d = queues()
    value = weight(p, job_at(p, "x3"))
    assert value == 16
    plain = told(p, tier, status_quo(p))
    for limit in (value, value + 1):
        assert told(p, tier, d, inversion=limit, firmly=firmly) == plain
    finer = told(p, tier, d, inversion=value - 1, firmly=firmly)
    expected = replace(plain, firm=frozenset(inverted(p, d)))
    assert finer == (expected if firmly else replace(plain, watched=told(p, "inversion", d).watched))


@pytest.mark.parametrize("limit", [0, 16, 10**9])
def test_for_inversion_itself_no_limit_is_fine_enough(limit: int) -> None:
    p, d = queues()
    assert ids(p, told(p, "inversion", d, inversion=limit).watched) == {"x1", "x2", "x3"}
    assert ids(p, told(p, "inversion", d, inversion=limit, firmly=True).firm) == {"x3"}
    assert told(p, "shortfall", d, inversion=limit) == Partition()


def test_the_limit_is_on_all_that_are_passed_over() -> None:
    p = tiered(
        problem(
            nodes=[Node("n1"), Node("n2")],
            jobs=[Pending("a", gpus=4, priority=2), Pending("b", gpus=4), *(Pending(c, gpus=8) for c in "cd")],
        )
    )
    d = decide(p, start={"c": "n1", "d": "n2"})
    assert ids(p, frozenset(inverted(p, d))) == {"a", "b"}
    for limit, seen in ((12 + 8, set()), (12 + 7, {"a", "b"}), (12, {"a", "b"})):
        assert ids(p, told(p, "preemption", d, inversion=limit).watched) == seen


def test_at_random_all_ahead_of_the_last_start_are_watched() -> None:
    rng, more, none = Random("watch"), 0, 0
    for _ in range(150):
        jobs = [
            Pending(
                f"j{i}",
                budget=rng.choice("xy"),
                gpus=rng.choice([1, 2, 4]),
                replicas=rng.choice([1, 1, 2, 4]),
                priority=rng.randint(0, 2),
                funding=rng.choice(["allocated", "allocated", "borrowed"]),
            )
            for i in range(8)
        ]
        p = tiered(problem(nodes=[Node("n1", gpus=4), Node("n2", gpus=4)], jobs=jobs, budgets=[*map(Budget, "xy")]))
        d = any_decision(p, rng)
        if d is None:
            continue
        passed = set(inverted(p, d))
        expected = set()
        for j in waiting_in(p, d):
            rivals = [i for i in d.placement if p.jobs.leaf[i] == p.jobs.leaf[j]]
            hurt = any(p.jobs.leaf[i] == p.jobs.leaf[j] for i in passed)
            if hurt and any(p.jobs.order[i] > p.jobs.order[j] for i in rivals):
                expected.add(j)
        assert passed <= expected
        assert told(p, "inversion", d).watched == expected
        more += passed < expected
        none += not expected
    assert min(more, none) >= 20


def waiting_in(p: Problem, d: Decision) -> list[int]:
    every = range(len(p.jobs.ids))
    return [j for j in every if d.action[j] == Action.WAIT and p.jobs.state[j] == JobState.PENDING]
