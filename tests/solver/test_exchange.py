"""Replicas that change places so that victims make room for other budgets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from builders import HOUR, Budget, Node, Pending, Running, Where, decide, hold, job_at, problem
from cpalloc.models.constraints.preemption import victims
from cpalloc.problem.problem import Decision, Problem
from cpalloc.solver.exchange import give_to_others
from cpalloc.solver.values import violations
from models.fixing import any_start
from reference.beneficiaries import beneficiaries

BUDGETS = [Budget("x"), Budget("y"), Budget("z")]


def contest(own: Mapping[str, Any], other: Mapping[str, Any], n2: Mapping[str, Any] | None = None) -> Problem:
    """Budget y loses v on n1, where its own job starts; other, of budget x, starts on n2 in another rack."""
    cpu: dict[str, Any] = {"resources": {"cpu": 8}}
    return problem(
        nodes=[Node("n1", within="r1", **cpu), Node("n2", within="r2", **cpu, **(n2 or {}))],
        levels=["rack"],
        jobs=[
            Running("v", budget="y", at="n1", gpus=8),
            Pending("own", **{"budget": "y", "gpus": 8, **own}),
            Pending("other", **{"budget": "x", "gpus": 8, **other}),
        ],
        budgets=BUDGETS,
    )


def start(p: Problem, **where: Where) -> Decision:
    return decide(p, start=where, preempt=["v"])


def nodes(p: Problem, d: Decision, job: str) -> list[str]:
    return [p.nodes.names[rep.node] for rep in d.placement[job_at(p, job)]]


@pytest.mark.parametrize(
    ("own", "other"),
    [
        ({}, {}),
        ({}, {"gpus": 4, "replicas": 2}),
        ({}, {"gpus": 2, "replicas": 4}),
        ({"gpus": 4, "replicas": 2}, {}),
        ({"gpus": 1, "replicas": 8}, {}),
        ({"gpus": 4}, {"gpus": 2, "replicas": 3}),
        ({"gpus": 2, "replicas": 3}, {"gpus": 4}),
    ],
)
def test_as_many_replicas_of_one_job_as_hold_the_same_gpus(own: dict[str, Any], other: dict[str, Any]) -> None:
    p = contest(own, other)
    before = start(p, own="n1", other="n2")
    assert [v.constraint for v in violations(p, before)] == ["preemption"]
    after = give_to_others(p, before)
    assert violations(p, after) == []
    assert "n1" in nodes(p, after, "other")
    for n in range(2):
        reps = [rep for reps in after.placement.values() for rep in reps if rep.node == n]
        union = 0
        for rep in reps:
            assert rep.devices.bit_count() == rep.gpus
            assert not union & rep.devices
            union |= rep.devices
        then = [rep.devices for reps in before.placement.values() for rep in reps if rep.node == n]
        assert union == sum(then)  # whoever comes takes the devices of whoever goes
    assert all(list(reps) == sorted(reps, key=lambda r: (r.node, r.devices)) for reps in after.placement.values())
    assert (after.action == before.action).all()
    assert (after.mode == before.mode).all()


@pytest.mark.parametrize("own", [{"gpus": 4}, {"gpus": 3}, {"gpus": 6}])
def test_not_where_sizes_do_not_add_up(own: dict[str, Any]) -> None:
    p = contest(own, {"gpus": 8} if own["gpus"] != 6 else {"gpus": 4})
    d = start(p, own="n1", other="n2")
    assert give_to_others(p, d) is d


def test_the_several_are_of_one_job() -> None:
    # 8 GPUs against 4 of other and 2 + 2 of third: together as many, but of two jobs.
    p = problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[
            Running("v", budget="y", at="n1", gpus=8),
            Pending("own", budget="y", gpus=8),
            Pending("other", budget="x", gpus=4),
            Pending("third", budget="z", gpus=2, replicas=2),
        ],
        budgets=BUDGETS,
    )
    d = start(p, own="n1", other="n2", third="n2")
    assert give_to_others(p, d) is d


def test_one_of_a_gang_will_do() -> None:
    p = contest({"gpus": 4, "replicas": 2}, {"gpus": 4, "replicas": 2})
    after = give_to_others(p, start(p, own="n1", other="n2"))
    assert violations(p, after) == []
    assert nodes(p, after, "own") == nodes(p, after, "other") == ["n1", "n2"]


BOUND = [
    {"nodes": ["{here}"]},
    {"required": "rack"},
    {"required": "node"},
    {"exclusive": True},
    {"max_per_node": 1},
    {"same_gpu_group": True},
    {"resources": {"cpu": 1}},
]


@pytest.mark.parametrize("terms", BOUND, ids=lambda terms: next(iter(terms)))
@pytest.mark.parametrize("who", ["own", "other"])
def test_who_may_not_go_there_stays(who: str, terms: dict[str, Any]) -> None:
    if "nodes" in terms:
        terms = {"nodes": ["n1" if who == "own" else "n2"]}
    p = contest(terms if who == "own" else {}, terms if who == "other" else {})
    d = start(p, own="n1", other="n2")
    assert give_to_others(p, d) is d


def test_another_pool_is_no_place_to_go() -> None:
    p = contest({}, {}, n2={"pool": "a100"})
    d = start(p, own="n1", other="n2")
    assert give_to_others(p, d) is d


@pytest.mark.parametrize(
    ("terms", "moves"), [({}, False), ({"timeout_s": 2 * HOUR}, True), ({"priority": 2}, True)], ids=str
)
def test_nobody_goes_where_a_promise_is_in_the_way(terms: dict[str, Any], moves: bool) -> None:
    # n1 is kept for a gang from 2 h on: for who leaves by then, or ranks higher, it is a place to go.
    p = problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[
            Running("v", budget="y", at="n1", gpus=8),
            Pending("gang", budget="z", gpus=8),
            Pending("own", budget="y", gpus=8, timeout_s=HOUR),
            Pending("other", **{"budget": "x", "gpus": 8, **terms}),
        ],
        budgets=BUDGETS,
    )
    p = replace(p, holds=(hold(p, "gang", {"n1": 8}, in_s=2 * HOUR),))
    d = start(p, own="n1", other="n2")
    after = give_to_others(p, d)
    assert nodes(p, after, "other") == ["n1" if moves else "n2"]
    assert [v.constraint for v in violations(p, after)] == ([] if moves else ["preemption"])


def test_inside_the_required_domain_they_change_places() -> None:
    p = problem(
        nodes=[Node(f"n{i}", within="r1" if i < 3 else "r2") for i in (1, 2, 3)],
        levels=["rack"],
        jobs=[
            Running("v", budget="y", at="n1", gpus=8),
            Pending("own", budget="y", gpus=8),
            Pending("other", budget="x", gpus=8, replicas=1, required="rack"),
        ],
        budgets=BUDGETS,
    )
    near, far = start(p, own="n1", other="n2"), start(p, own="n1", other="n3")
    assert nodes(p, give_to_others(p, near), "other") == ["n1"]
    assert give_to_others(p, far) is far


def test_borrowed_work_serves_nobody() -> None:
    p = contest({}, {"funding": "borrowed"})
    d = decide(p, start={"own": "n1"}, borrow={"other": "n2"}, preempt=["v"])
    assert give_to_others(p, d) is d


def test_borrowed_work_may_make_room() -> None:
    p = contest({"funding": "borrowed"}, {})
    d = decide(p, start={"other": "n2"}, borrow={"own": "n1"}, preempt=["v"])
    after = give_to_others(p, d)
    assert violations(p, after) == []
    assert nodes(p, after, "other") == ["n1"]


def test_a_victim_that_is_served_stays_served_as_it_is() -> None:
    p = contest({}, {})
    d = start(p, own="n2", other="n1")
    assert give_to_others(p, d) is d
    nobody = decide(p, start={"own": "n2"})
    assert give_to_others(p, nobody) is nobody


def two_victims(*more: Pending) -> Problem:
    """v and w of budget y run on n1 and n2; n3 is free."""
    return problem(
        nodes=[Node("n1"), Node("n2"), Node("n3")],
        jobs=[
            Running("v", budget="y", at="n1", gpus=8),
            Running("w", budget="y", at="n2", gpus=8),
            Pending("own", budget="y", gpus=8),
            Pending("other", budget="x", gpus=8),
            *more,
        ],
        budgets=BUDGETS,
    )


def test_no_other_victim_loses_by_it() -> None:
    p = two_victims()
    d = decide(p, start={"own": "n1", "other": "n2"}, preempt=["v", "w"])
    assert beneficiaries(p, d, job_at(p, "w"))
    assert give_to_others(p, d) is d


def test_another_replica_is_found_where_none_loses() -> None:
    p = two_victims(Pending("third", budget="z", gpus=8))
    d = decide(p, start={"own": "n1", "other": "n2", "third": "n3"}, preempt=["v", "w"])
    after = give_to_others(p, d)
    assert violations(p, after) == []
    assert (nodes(p, after, "third"), nodes(p, after, "other"), nodes(p, after, "own")) == (["n1"], ["n2"], ["n3"])


def test_a_victim_of_another_budget_is_served_by_who_comes() -> None:
    # w is of budget z: own, of y, serves it as well as other did.
    p = problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[
            Running("v", budget="y", at="n1", gpus=8),
            Running("w", budget="z", at="n2", gpus=8),
            Pending("own", budget="y", gpus=8),
            Pending("other", budget="x", gpus=8),
        ],
        budgets=BUDGETS,
    )
    after = give_to_others(p, decide(p, start={"own": "n1", "other": "n2"}, preempt=["v", "w"]))
    assert violations(p, after) == []
    assert nodes(p, after, "other") == ["n1"]


@pytest.mark.parametrize("unknown", ["n1", "n2", "both"])
def test_devices_are_named_where_they_are_known(unknown: str) -> None:
    p = problem(
        nodes=[Node("n1", unknown=unknown != "n2"), Node("n2", unknown=unknown != "n1")],
        jobs=[
            Running("v", budget="y", at="n1", gpus=4),
            Running("on1", budget="z", at="n1", gpus=1, mode="allocated", protected_s=60),
            Running("on2", budget="z", at="n2", gpus=1, mode="allocated", protected_s=60),
            Pending("own", budget="y", gpus=6),
            Pending("other", budget="x", gpus=3, replicas=2),
        ],
        budgets=BUDGETS,
    )
    d = start(p, own="n1", other="n2")
    assert [v.constraint for v in violations(p, d)] == ["preemption"]
    after = give_to_others(p, d)
    assert violations(p, after) == []
    for reps in after.placement.values():
        assert all((rep.devices < 0) == (p.nodes.free_devices[rep.node] < 0) for rep in reps)


def drawn(rng: Random) -> Problem:
    """Six nodes full of what x, y and z borrow, in two racks and two pools, and a queue of theirs."""
    running = [Running(f"v{i}", budget=rng.choice("xyz"), at=f"n{i // 2}", gpus=4) for i in range(12)]
    waiting = []
    for i in range(12):
        gpus = rng.choice([1, 2, 2, 4, 4, 8])
        terms: dict[str, Any] = {
            "required": rng.choice(["cluster", "cluster", "rack", "node"]),
            "nodes": rng.choice([None, None, None, ["n0", "n1", "n2"]]),
            "exclusive": rng.random() < 0.05,
            "max_per_node": rng.choice([0, 0, 0, 2]),
            "funding": rng.choice(["allocated", "allocated", "any"]),
        }
        replicas = rng.choice([1, 2, 3]) if gpus < 8 else 1
        waiting.append(Pending(f"p{i:02}", budget=rng.choice("xyz"), gpus=gpus, replicas=replicas, **terms))
    return problem(
        nodes=[Node(f"n{i}", within=f"r{i % 2}", pool="ab"[i == 5], unknown=i == 4) for i in range(6)],
        levels=["rack"],
        jobs=[*running, *waiting],
        budgets=[Budget(name, claim=99) for name in "xyz"],
    )


def test_it_breaks_no_rule_and_serves_no_victim_less() -> None:
    """On decisions drawn at random that may preempt for nobody's good."""
    rng, mended = Random(0), 0
    for _ in range(250):
        p = drawn(rng)
        d = any_start(p, rng)
        after = give_to_others(p, d)
        rules = [[v for v in violations(p, x) if v.constraint != "preemption"] for x in (d, after)]
        assert rules[0] == rules[1] == []
        served = [{v for v in victims(p, x) if beneficiaries(p, x, v)} for x in (d, after)]
        assert served[0] <= served[1]
        assert (after is d) == (served[0] == served[1])
        mended += after is not d
    assert mended >= 20
