"""The relaxation without nodes: no decision is worth less, and mostly none is worth much more."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from random import Random

import pytest

from builders import HOUR, Budget, Node, Pending, Running, job_at, problem
from cpalloc.generate import GeneratorConfig, generate_doc
from cpalloc.models.pooled import TIERS, Pooled
from cpalloc.problem.compile import compile_round
from cpalloc.problem.problem import Action, Decision, Problem
from cpalloc.schema import parse_round
from cpalloc.solver.following import sparing
from cpalloc.solver.greedy import greedy
from cpalloc.solver.highs import relaxed
from cpalloc.solver.outcome import Status
from cpalloc.solver.run import minimise
from cpalloc.solver.values import Values, violations
from models.fixing import ONE_WORKER, any_decision
from reference.tiny_rounds import tiny_doc


def bound(p: Problem, tier: str, limits: Mapping[str, int] | None = None) -> int:
    found = relaxed(Pooled(p, tier, limits or {}).model, 60.0)
    assert found is not None
    return found[0]


def whole(p: Problem, tier: str, limits: Mapping[str, int] | None = None) -> int:
    """The bound in whole numbers."""
    pooled = Pooled(p, tier, limits or {})
    run = minimise(pooled.model, pooled.objective, options=ONE_WORKER, limit_s=60.0)
    assert run.status is Status.OPTIMAL
    assert run.bound is not None
    return run.bound


def staying(p: Problem, limits: Mapping[str, int]) -> frozenset[int]:
    model = Pooled(p, "preemption", limits)
    found = relaxed(model.model, 60.0)
    assert found is not None
    return model.stays(found[1])


# -- what it knows ----------------------------------------------------------------------------------------------------


def test_entitlements_are_met_as_far_as_there_are_gpus() -> None:
    # 16 GPUs, 8 of them protected for y; x is entitled to 16 and can have 8 at most. Starvation: of 4·8 − 16 quarters
    # beyond the first, one of each 16: min(16, 16) · 1, and nothing beyond half of it.
    p = problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[
            Running("old", budget="y", at="n1", gpus=8, mode="allocated", protected_s=HOUR),
            *(Pending(f"p{i}", budget="x", gpus=8) for i in range(2)),
        ],
        budgets=[Budget("x", entitled=16), Budget("y")],
    )
    assert (bound(p, "shortfall"), bound(p, "starvation"), bound(p, "preemption")) == (8, 16, 0)


@pytest.mark.parametrize(("gpus", "short"), [(8, 8), (4, 0)])
def test_gpus_on_different_nodes_are_no_slot_together(gpus: int, short: int) -> None:
    halves = [Running(f"old{i}", budget="y", at=f"n{i}", gpus=4, mode="allocated", protected_s=HOUR) for i in (1, 2)]
    waiting = [Pending(f"p{i}", budget="x", gpus=gpus) for i in range(8 // gpus)]
    p = problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[*halves, *waiting],
        budgets=[Budget("x", entitled=8), Budget("y")],
    )
    assert bound(p, "shortfall") == short


def test_a_job_goes_where_it_may() -> None:
    p = problem(
        nodes=[Node("a1", pool="a100"), Node("h1", pool="h100")],
        jobs=[Pending(f"p{i}", budget="x", gpus=8, nodes={"h1"}) for i in range(2)],
        budgets=[Budget("x", entitled=16)],
    )
    assert bound(p, "shortfall") == 8
    either = [Pending(f"p{i}", budget="x", gpus=8) for i in range(3)]
    p = problem(
        nodes=[Node("a1", pool="a100"), Node("h1", pool="h100")], jobs=either, budgets=[Budget("x", entitled=24)]
    )
    assert bound(p, "shortfall") == 8  # three jobs, a node of each kind


def test_what_is_borrowed_may_be_promoted_where_it_is() -> None:
    p = problem(
        nodes=[Node("n1")],
        jobs=[Running("lent", budget="x", at="n1", gpus=8, funding="any")],
        budgets=[Budget("x", entitled=8, claim=8)],
    )
    assert bound(p, "shortfall") == 0


def test_the_cheapest_work_that_makes_room_goes() -> None:
    # Two nodes are lent and one is needed: 8 · 60 s cost less than 8 · 600 s. For half of the entitlement half of it.
    p = problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[
            Running("dear", budget="y", at="n1", gpus=8, lost_s=600),
            Running("cheap", budget="y", at="n2", gpus=8, lost_s=60),
            Pending("new", budget="x", gpus=8),
        ],
        budgets=[Budget("x", entitled=8, claim=8), Budget("y")],
    )
    assert bound(p, "preemption", {"shortfall": 0}) == 8 * 60
    assert bound(p, "preemption", {"shortfall": 4}) == 8 * 30  # a fraction of the job, and of what it takes
    assert bound(p, "preemption", {"shortfall": 8}) == 0
    assert staying(p, {"shortfall": 0}) == {job_at(p, "dear")}
    assert staying(p, {"shortfall": 8}) == {job_at(p, "dear"), job_at(p, "cheap")}


def on_one_node(*gpus: int, free: int = 0) -> Problem:
    """A node of work on loan, what its GPUs lose a minute each, and a job that wants all of the node."""
    return problem(
        nodes=[Node("n1", gpus=sum(gpus) + free)],
        jobs=[
            *(Running(f"r{i}", budget="y", at="n1", gpus=g, lost_s=60) for i, g in enumerate(gpus)),
            Pending("new", budget="x", gpus=sum(gpus)),
        ],
        budgets=[Budget("x", entitled=8, claim=8), Budget("y")],
    )


@pytest.mark.parametrize(("gpus", "free", "lost"), [((4, 4), 0, 8), ((7, 1), 0, 8), ((2, 2, 4), 1, 8), ((4, 4), 4, 4)])
def test_whoever_stays_on_a_node_may_cost_a_slot_that_it_does_not_have(
    gpus: tuple[int, ...], free: int, lost: int
) -> None:
    # A job of less than the node has no slot of its size, and yet there is none beside it.
    assert bound(on_one_node(*gpus, free=free), "preemption", {"shortfall": 0}) == lost * 60


def test_several_that_stay_may_cost_a_slot_together() -> None:
    # Of three jobs of 2 GPUs and 2 free ones two have to go for one of 6, and none costs a slot alone.
    p = problem(
        nodes=[Node("n1")],
        jobs=[
            *(Running(f"r{i}", budget="y", at="n1", gpus=2, lost_s=60) for i in range(3)),
            Pending("new", budget="x", gpus=6),
        ],
        budgets=[Budget("x", entitled=6, claim=6), Budget("y")],
    )
    assert whole(p, "preemption", {"shortfall": 0}) == 4 * 60


def over_share(*, claim: int) -> Problem:
    """x holds two nodes, one of them past its protection, and borrows two more; y waits for two."""
    return problem(
        nodes=[Node(f"n{i}") for i in range(1, 5)],
        jobs=[
            Running("fixed", budget="x", at="n1", gpus=8, mode="allocated", protected_s=HOUR),
            Running("yields", budget="x", at="n2", gpus=8, mode="allocated"),
            *(Running(f"lent{i}", budget="x", at=f"n{i}", gpus=8, funding="any") for i in (3, 4)),
            *(Pending(f"p{i}", budget="y", gpus=8) for i in range(3)),
        ],
        budgets=[Budget("x", claim=claim, charged=2_000), Budget("y", entitled=24, claim=24)],
    )


def test_who_loses_allocated_work_keeps_its_claim() -> None:
    # y could have n2, n3 and n4; n2 only if x keeps what it can claim: its 8 protected GPUs, and loans if promoted.
    assert whole(over_share(claim=8), "shortfall") == 0
    assert whole(over_share(claim=16), "shortfall") == 8
    assert bound(over_share(claim=16), "shortfall") < 8  # fractions of a loss may leave less


def test_what_is_lent_is_taken_back_whatever_its_budget_can_claim() -> None:
    # Taking n3 and n4 back leaves x with 16 GPUs of the 24 it can claim, and is no loss of allocated work.
    assert whole(over_share(claim=24), "shortfall") == 8


@pytest.mark.parametrize("replicas", [1, 2])
def test_own_work_makes_no_room_where_it_is_kept_apart(replicas: int) -> None:
    # x borrows n1 for next to nothing, and y n2 dearly.
    p = problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[
            Running("own", budget="x", at="n1", gpus=8, lost_s=60),
            Running("other", budget="y", at="n2", gpus=8, lost_s=600),
            Pending("new", budget="x", gpus=8 // replicas, replicas=replicas),
            Pending("somebody else's", budget="z", gpus=8),
        ],
        budgets=[Budget("x", entitled=8, claim=8), Budget("y"), Budget("z")],
    )
    for apart, lost in (([], 60), ([p.jobs.leaf[job_at(p, "new")]], 600)):
        pooled = Pooled(p, "preemption", {"shortfall": 0})
        pooled.apart(apart)
        run = minimise(pooled.model, pooled.objective, options=ONE_WORKER, limit_s=60.0)
        assert (run.objective, pooled.starts(run.values or ())) == (8 * lost, {job_at(p, "new"): 0})


# -- never above any decision -----------------------------------------------------------------------------------------


def tiny() -> Iterator[Problem]:
    for seed in range(150):
        yield compile_round(parse_round(tiny_doc(seed))).problem


def generated() -> Iterator[Problem]:
    for family in ("mixed", "gang-heavy"):
        for seed in range(6):
            yield compile_round(parse_round(generate_doc(GeneratorConfig(nodes=24, seed=seed, family=family)))).problem


def odd() -> Iterator[Problem]:
    usual = GeneratorConfig(nodes=16)
    for knobs in ({"odd_sizes": 0.5}, {"cpu_bound": 0.5}, {"misfits": 0.2, "unhealthy": 0.1, "draining": 0.2}):
        for seed in range(4):
            yield compile_round(parse_round(generate_doc(replace(usual, seed=seed, **knobs)))).problem


@pytest.mark.parametrize("rounds", [tiny, generated, odd])
def test_no_decision_is_worth_less(rounds: Callable[[], Iterator[Problem]]) -> None:
    rng, asked, positive, tight = Random(3), 0, 0, 0
    for p in rounds():
        drawn: list[Decision | None] = [greedy(p), *(any_decision(p, rng) for _ in range(3))]
        for decision in drawn:
            if decision is None:
                continue
            values = Values(p, decision)
            for tier in TIERS:
                others = {name: values[name][0] for name in TIERS if name != tier}
                for limits in ({}, others):
                    least = bound(p, tier, limits)
                    assert 0 <= least <= whole(p, tier, limits) <= values[tier][0], (tier, limits)
                    asked += 1
                    positive += least > 0
                    tight += 0 < least == values[tier][0]
    assert asked >= 100
    assert positive >= asked // 20
    assert tight >= 3


# -- what it is good for ----------------------------------------------------------------------------------------------


def test_whoever_stays_is_preempted_only_where_the_limits_ask_for_it() -> None:
    cheaper = 0
    for p in generated():
        first = Values(p, greedy(p))
        limits = {"starvation": first["starvation"][0], "shortfall": first["shortfall"][0] + 12}
        stays = staying(p, limits)
        decision = sparing(p, stays, limits)
        assert violations(p, decision) == []
        values = Values(p, decision)
        within = all(values[tier][0] <= most for tier, most in limits.items())
        cheaper += within and values["preemption"][0] < first["preemption"][0]
        generous = sparing(p, stays, {"starvation": 10**9, "shortfall": 10**9})
        assert violations(p, generous) == []
        assert not any(generous.action[j] == Action.PREEMPT for j in stays)
    assert cheaper >= 6
