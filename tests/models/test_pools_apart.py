"""Starts that accept several GPU types are told apart by pool: whom one passes over depends on where it is."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from random import Random

import numpy as np
import pytest

from builders import Budget, Node, Pending, decide, job_at, problem
from cpalloc.models.objectives import OBJECTIVES
from cpalloc.models.partition import Partition
from cpalloc.models.places import eligibility_covers, takes_place_of
from cpalloc.models.round import build
from cpalloc.models.variables import dot
from cpalloc.problem.problem import Decision, Mode, Problem
from cpalloc.solver.outcome import Status
from cpalloc.solver.run import minimise
from cpalloc.solver.values import violations
from models.fixing import ONE_WORKER, any_decision, counted, fixed

TIER = OBJECTIVES["inversion"]


def two_types(*, gang: int = 1, mode: str = "allocated") -> Problem:
    """``better`` accepts a100 only, ``worse`` of the same budget either type; ``other`` may fill the a100 nodes."""
    count = range(gang)
    a100 = [f"a{i}" for i in count]
    return problem(
        nodes=[*(Node(n, pool="a100") for n in a100), *(Node(f"h{i}", pool="h100") for i in count)],
        jobs=[
            Pending("other", budget="y", gpus=8, replicas=gang, nodes=a100),
            Pending("better", gpus=8, replicas=gang, nodes=a100, priority=2, funding=mode),
            Pending("worse", gpus=8, replicas=gang, funding=mode),
        ],
        budgets=[Budget("x"), Budget("y")],
    )


def alike(p: Problem) -> Problem:
    """The round with one eligibility class for all jobs that accept the same nodes."""
    rows = p.eligibility.tolist()
    return replace(p, jobs=replace(p.jobs, eligibility=np.array([rows.index(row) for row in rows], dtype=np.int64)))


def passing(p: Problem, on: str) -> Decision:
    """``worse`` starts on nodes of a type, the a100 ones being full either way."""
    count = int(p.jobs.replicas[job_at(p, "worse")])
    at = {f"{on}{i}": 1 for i in range(count)}
    foreign = {} if on == "a" else {"other": {f"a{i}": 1 for i in range(count)}}
    if p.jobs.may_allocate[job_at(p, "worse")]:
        return decide(p, start={"worse": at, **foreign})
    return decide(p, borrow={"worse": at}, start=foreign)


@pytest.mark.parametrize("mode", ["allocated", "borrowed"])
@pytest.mark.parametrize("gang", [1, 2])
@pytest.mark.parametrize("split", [False, True])
def test_a_start_passes_over_who_accepts_only_the_pool_it_is_on(mode: str, gang: int, split: bool) -> None:
    p = two_types(gang=gang, mode=mode)
    coarse = Partition(split=split)
    for on, value in (("a", 8 * gang * 3), ("h", 0)):
        d = passing(p, on)
        assert violations(p, d) == []
        assert TIER.evaluate(p, d) == (value,)
        assert counted(p, coarse, d) == value


@pytest.mark.parametrize("gang", [1, 2])
def test_a_watched_job_regains_nothing_of_another_pool(gang: int) -> None:
    p = two_types(gang=gang)
    watched = Partition(watched=frozenset({job_at(p, "better")}))
    assert counted(p, watched, passing(p, "h")) == 0
    assert counted(p, watched, passing(p, "a")) == 8 * gang * 3


def test_what_a_watched_job_regains_is_what_starts_of_its_pool_give_back() -> None:
    # Nobody's place is enough for the better gang, those of both on a100 are; on h100 they are of no use to it.
    p = problem(
        nodes=[*(Node(f"a{i}", pool="a100") for i in (1, 2)), *(Node(f"h{i}", pool="h100") for i in (1, 2))],
        jobs=[
            Pending("other", budget="y", gpus=8, replicas=2, nodes=["a1", "a2"]),
            Pending("better", gpus=8, replicas=2, nodes=["a1", "a2"], priority=2),
            Pending("worse", gpus=8),
            Pending("worst", gpus=8),
        ],
        budgets=[Budget("x"), Budget("y")],
    )
    watched = Partition(watched=frozenset({job_at(p, "better")}))
    on_a = decide(p, start={"worse": "a1", "worst": "a2"})
    on_h = decide(p, start={"worse": "h1", "worst": "h2", "other": {"a1": 1, "a2": 1}})
    assert (TIER.evaluate(p, on_a), TIER.evaluate(p, on_h)) == ((48,), (0,))
    assert (counted(p, Partition(), on_a), counted(p, watched, on_a)) == (0, 48)
    assert counted(p, watched, on_h) == 0


def test_a_start_is_of_one_shape_which_says_in_which_pool_its_replicas_are() -> None:
    p = alike(
        problem(
            nodes=[Node("a1", pool="a100"), Node("h1", pool="h100")],
            jobs=[Pending("first", gpus=8), Pending("second", gpus=8), Pending("third", gpus=4, nodes=["h1"])],
        )
    )
    ctx = build(p, Partition())
    pools = {p.pool_names[ctx.kind(ctx.layout.shapes[s].kind).pool]: s for s in ctx.shapes_of(0, Mode.ALLOCATED)}
    assert set(pools) == {"a100", "h100"}
    assert ctx.shapes_of(1, Mode.ALLOCATED) == ctx.shapes_of(0, Mode.ALLOCATED)
    assert (len(ctx.shapes_of(2, Mode.ALLOCATED)), ctx.shapes_of(0, Mode.BORROWED)) == (1, [])
    for first, second in product(pools, pools):
        ctx = build(p, Partition())
        for job, pool in ((0, first), (1, second)):
            ctx.model.add(ctx.in_shape[job, Mode.ALLOCATED, pools[pool]] == 1)
        on_a100 = dot([(1, v) for (k, _), v in ctx.a.items() if p.pool_names[ctx.kind(k).pool] == "a100"])
        for goal in (on_a100, -on_a100):
            run = minimise(ctx.model, goal, options=ONE_WORKER, limit_s=9.0)
            assert run.status is (Status.INFEASIBLE if first == second else Status.OPTIMAL)
            if first != second:
                assert abs(run.objective) == 1
                assert all(run.value(ctx.y[j, Mode.ALLOCATED]) for j in (0, 1))


# -- at random --------------------------------------------------------------------------------------------------------


def mixed(rng: Random) -> Problem:
    """Up to three GPU types, and jobs that accept some of them."""
    pools = ["a100", "h100", "l40"][: rng.randint(2, 3)]
    nodes = [Node(f"{pool}-{i}", pool=pool, gpus=4) for pool in pools for i in range(rng.randint(1, 2))]
    jobs = []
    for i in range(rng.randint(3, 6)):
        accepts = [n.name for pool in rng.sample(pools, rng.randint(1, len(pools))) for n in nodes if n.pool == pool]
        jobs.append(
            Pending(
                f"j{i}",
                gpus=rng.choice([1, 2, 4, 4]),
                replicas=rng.choice([1, 1, 2]),
                nodes=accepts,
                priority=rng.randint(0, 2),
                funding=rng.choice(["allocated", "allocated", "borrowed"]),
            )
        )
    return alike(problem(nodes=nodes, jobs=jobs))


def test_with_several_pools_no_decision_is_worth_less_than_the_model_says() -> None:
    rng = Random("pools")
    seen = positive = exact = several = 0
    for _ in range(45):
        p = mixed(rng)
        for d in filter(None, (any_decision(p, rng) for _ in range(3))):
            ctx = fixed(p, Partition(), d)
            several += any(len(ctx.shapes_of(j, Mode(int(d.mode[j])))) > 1 for j in d.placement)
            value = TIER.evaluate(p, d)[0]
            coarse, watched = (
                counted(p, Partition(watched=frozenset(some)), d) for some in ((), range(len(p.jobs.ids)))
            )
            assert coarse is not None
            assert watched is not None
            assert coarse <= watched <= value
            seen += 1
            positive += coarse > 0
            exact += coarse == value > 0
    assert seen >= 100
    assert min(positive, exact, several) >= 20


def test_covering_is_node_by_node_inside_the_pool() -> None:
    rng, true, by_pool = Random("covers"), 0, 0
    for _ in range(40):
        nodes = [Node(f"n{i}", pool=rng.choice(["a100", "h100", "l40"])) for i in range(rng.randint(1, 7))]
        p = problem(nodes=nodes, jobs=[Pending("j")])
        classes, density = rng.randint(1, 5), rng.random()
        rows = np.array([[rng.random() < density for _ in nodes] for _ in range(classes)], dtype=np.bool_)
        covers = eligibility_covers(replace(p, eligibility=rows))
        assert covers.shape == (classes, classes, len(p.pool_names))
        for e, f in product(range(classes), range(classes)):
            expected = []
            for pool in range(len(p.pool_names)):
                here = [n for n in range(len(nodes)) if p.nodes.pool[n] == pool]
                expected.append(all(rows[e, n] or not rows[f, n] for n in here))
            assert covers[e, f].tolist() == expected
            true += any(expected)
            by_pool += any(expected) and not all(expected)
    assert min(true, by_pool) >= 50


def test_whose_place_one_may_take_depends_on_the_pool() -> None:
    p = two_types()
    covers, better, worse = eligibility_covers(p), job_at(p, "better"), job_at(p, "worse")
    assert [takes_place_of(p, covers, better, worse, pool) for pool in (0, 1)] == [True, False]
    assert [takes_place_of(p, covers, worse, better, pool) for pool in (0, 1)] == [True, True]
