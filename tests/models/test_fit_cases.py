"""Whether a waiting job would fit without worse-ranked starts, case by case."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from builders import Budget, Node, Pending, Running, decide, job_at, problem
from cpalloc.models.objectives import OBJECTIVES
from cpalloc.problem.problem import Decision, Problem
from cpalloc.solver.values import violations
from models.fixing import counted, told_apart, without_lent

TIER = OBJECTIVES["inversion"]


def all_of(p: Problem, d: Decision, *gangs: str) -> dict[str, int | None]:
    """What the model says of a decision with every job watched, watched with gangs told apart, exact and firm."""
    told = {how: told_apart(p, how, Random(0)) for how in ("plain", "watched", "exact", "firm")}
    told["gangs"] = replace(told["watched"], single=frozenset(job_at(p, g) for g in gangs))
    return {how: counted(p, told[how], d) for how in told if how != "gangs" or gangs}


def test_room_elsewhere() -> None:
    # second holds half of n1; first takes no place of it, but n2 is free: 8 × 2.
    p = problem(nodes=[Node("n1"), Node("n2")], jobs=[Pending("first", gpus=8), Pending("second", gpus=4)])
    assert all_of(p, decide(p, start={"second": "n1"})) == {"plain": 0, "watched": 16, "exact": 16, "firm": 16}


def test_no_room_is_an_excuse_unless_firmly() -> None:
    # first wants 8 and finds 4 + 4 on two nodes, whether second starts or not.
    old = [Running(f"old{i}", budget="y", at=f"n{i}", gpus=4, mode="allocated", protected_s=60) for i in (1, 2)]
    p = problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[*old, Pending("first", gpus=8), Pending("second", gpus=4)],
        budgets=[Budget("x"), Budget("y")],
    )
    assert all_of(p, decide(p, start={"second": "n1"})) == {"plain": 0, "watched": 0, "exact": 0, "firm": 16}


def test_what_worse_starts_free_only_together_is_seen_where_they_are_told_apart() -> None:
    p = problem(nodes=[Node("n1")], jobs=[Pending("first", gpus=8), Pending("b", gpus=4), Pending("c", gpus=4)])
    d = decide(p, start={"b": "n1", "c": "n1"})
    assert all_of(p, d) == {"plain": 0, "watched": 0, "exact": 16, "firm": 16}
    assert counted(p, told_apart(p, "apart", Random(0)), d) == 16


def test_what_a_worse_gang_gives_back_counts_in_its_domain_once_it_is_told_apart() -> None:
    # 4 free on n2, 8 given back on n1: 3 slots of 4 for first, who takes no place of second's two alone.
    for level, expected in (("cluster", 24), ("rack", 0)):
        p = problem(
            nodes=[Node("n1", within="r"), Node("n2", within="r")],
            levels=["rack"],
            jobs=[
                Running("old", budget="y", at="n2", gpus=4, mode="allocated", protected_s=60),
                Pending("first", gpus=4, replicas=3, required=level),
                Pending("second", gpus=4, replicas=2, required="rack"),
            ],
            budgets=[Budget("x"), Budget("y")],
        )
        told = all_of(p, decide(p, start={"second": "n1"}), "second")
        assert told == {"plain": 0, "watched": expected, "gangs": 24, "exact": 24, "firm": 24}


@pytest.mark.parametrize(("cap", "value"), [(8, 8), (7, 0)])
def test_caps_are_excuses(cap: int, value: int) -> None:
    # kept 4, second 2 taken away, first 4: 8
    p = problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[Running("kept", at="n1", gpus=4, mode="allocated"), Pending("first", gpus=4), Pending("second", gpus=2)],
        budgets=[Budget("p", max_gpus=cap), Budget("x", parent="p")],
    )
    d = decide(p, start={"second": "n2"})
    told = all_of(p, d)
    assert TIER.evaluate(p, d) == (value,)
    assert (told["watched"], told["exact"], told["firm"]) == (value, value, 8)


def test_what_victims_leave_is_room() -> None:
    p = problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[
            Running("v", budget="y", at="n1", gpus=8),
            Running("w", budget="y", at="n2", gpus=8, mode="allocated", protected_s=60),
            Pending("first", gpus=8),
            Pending("second", gpus=2),
            Pending("other", budget="z", gpus=2),
        ],
        budgets=[Budget("x"), Budget("y"), Budget("z")],
    )
    # 8 with second taken away, of which the other budget's start keeps 2; alone it would be 8.
    taken = decide(p, start={"second": "n1", "other": "n1"}, preempt=["v"])
    assert all_of(p, taken) == {"plain": 0, "watched": 0, "exact": 0, "firm": 16}
    alone = decide(p, start={"second": "n1"}, preempt=["v"])
    assert all_of(p, alone)["exact"] == 16


def test_borrowed_starts_are_no_excuse_for_allocated_ones() -> None:
    # n1 is lent; first wants it whole, second starts on n2, which first may not use.
    p = problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[
            Pending("first", gpus=8, nodes=["n1"]),
            Pending("second", gpus=4, nodes=["n2"]),
            Pending("lent", gpus=8, funding="borrowed", nodes=["n1"]),
        ],
    )
    d = decide(p, start={"second": "n2"}, borrow={"lent": "n1"})
    assert all_of(p, d) == {"plain": 0, "watched": 16, "exact": 16, "firm": 16}


def test_allocated_starts_are_an_excuse_for_borrowed_ones() -> None:
    p = problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[
            Pending("first", gpus=8, nodes=["n1"], funding="borrowed"),
            Pending("second", gpus=4, nodes=["n2"], funding="borrowed"),
            Pending("owned", gpus=8, nodes=["n1"]),
        ],
    )
    d = decide(p, start={"owned": "n1"}, borrow={"second": "n2"})
    assert all_of(p, d) == {"plain": 0, "watched": 0, "exact": 0, "firm": 16}
    assert all_of(p, decide(p, borrow={"second": "n2"}))["watched"] == 16


def test_borrowed_starts_are_an_excuse_for_borrowed_ones() -> None:
    p = problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[
            Pending("first", gpus=8, nodes=["n1"], funding="borrowed"),
            Pending("second", gpus=4, nodes=["n2"], funding="borrowed"),
            Pending("lent", budget="y", gpus=8, nodes=["n1"], funding="borrowed"),
        ],
        budgets=[Budget("x"), Budget("y")],
    )
    d = decide(p, borrow={"lent": "n1", "second": "n2"})
    assert all_of(p, d) == {"plain": 0, "watched": 0, "exact": 0, "firm": 16}


def test_gpus_left_between_odd_sizes_count() -> None:
    # 3 + 3 of 8 GPUs are taken: 2 are left for first, although each of the two might cost it two slots of 2.
    p = problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[
            Pending("first", gpus=2, nodes=["n1"]),
            Pending("second", nodes=["n2"]),
            Pending("odd", budget="y", gpus=3, replicas=2, nodes=["n1"]),
        ],
        budgets=[Budget("x"), Budget("y")],
    )
    d = decide(p, start={"second": "n2", "odd": "n1"})
    assert all_of(p, d) == {"plain": 0, "watched": 4, "exact": 4, "firm": 4}


def held(p_nodes: list[Node], first: dict[str, Any], second: dict[str, Any]) -> Problem:
    """first and the worse-ranked second of budget x; of n1 and n2 another budget holds 4 GPUs each, 0, 1, 4 and 5."""
    four = [0, 1, 4, 5]
    return problem(
        nodes=p_nodes,
        levels=["rack"],
        jobs=[
            *(
                Running(f"old{i}", budget="y", at=[(f"n{i}", four)], gpus=4, mode="allocated", protected_s=60)
                for i in (1, 2)
            ),
            Pending("first", **first),
            Pending("second", **second),
        ],
        budgets=[Budget("x"), Budget("y")],
    )


NO_PLACE: dict[str, tuple[list[dict[str, Any]], dict[str, Any], dict[str, Any]]] = {
    # 4 GPUs on n1; what second gives back lies where first may not go.
    "not eligible": ([{}, {}, {}], {"gpus": 4, "replicas": 2, "nodes": ["n1"]}, {"gpus": 4, "nodes": ["n3"]}),
    # One slot in either pool, and a gang lies in one.
    "two pools": (
        [{}, {"pool": "a"}, {"pool": "a", "gpus": 1}],
        {"gpus": 4, "replicas": 2},
        {"gpus": 4, "nodes": ["n2"]},
    ),
    # 4 + 4 GPUs on two nodes.
    "one node": ([{}, {}, {"gpus": 1}], {"gpus": 4, "replicas": 2, "required": "node"}, {"nodes": ["n3"]}),
    # 4 GPUs, 2 in either group.
    "one group": (
        [{"groups": [range(4), range(4, 8)]}, {}, {}],
        {"gpus": 4, "same_gpu_group": True, "nodes": ["n1"]},
        {"nodes": ["n3"]},
    ),
    "so many a node": ([{}, {}, {}], {"replicas": 2, "max_per_node": 1, "nodes": ["n1"]}, {"nodes": ["n3"]}),
    "alone": ([{}, {}, {}], {"exclusive": True, "nodes": ["n1"]}, {"nodes": ["n3"]}),
    "resources": (
        [{"resources": {"cpu": 4}}, {}, {"resources": {"cpu": 9}}],
        {"resources": {"cpu": 8}, "nodes": ["n1"]},
        {"nodes": ["n3"]},
    ),
}


@pytest.mark.parametrize("why", NO_PLACE)
def test_it_does_not_fit(why: str) -> None:
    nodes, first, second = NO_PLACE[why]
    p = held([Node(f"n{i}", within="r", **terms) for i, terms in enumerate(nodes, 1)], first, second)
    where = second["nodes"][0]
    told = all_of(p, decide(p, start={"second": where}), "second")
    assert (told.pop("firm") or 0) > 0
    assert set(told.values()) == {0}


def test_a_gang_that_is_told_apart_gives_back_once() -> None:
    # 1 slot on n2 and 2 of second's, 4 wanted.
    p = held(
        [Node("n1", within="r"), Node("n2", within="r"), Node("n3", within="r")],
        {"gpus": 4, "replicas": 4, "nodes": ["n2", "n3"]},
        {"gpus": 4, "replicas": 2, "nodes": ["n3"]},
    )
    assert all_of(p, decide(p, start={"second": "n3"}), "second")["gangs"] == 0
    p = held(
        [Node("n1", within="r"), Node("n2", within="r"), Node("n3", within="r")],
        {"gpus": 4, "replicas": 3, "nodes": ["n2", "n3"]},
        {"gpus": 4, "replicas": 2, "nodes": ["n3"]},
    )
    assert all_of(p, decide(p, start={"second": "n3"}), "second")["gangs"] == 24


def shut() -> tuple[Problem, Decision]:
    """first may use n1 alone, which other has to itself: 7 GPUs are free there, and nobody may take them."""
    p = problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[
            Pending("other", budget="y", exclusive=True),
            Pending("first", gpus=4, nodes=["n1"]),
            Pending("second", gpus=2, nodes=["n2"]),
        ],
        budgets=[Budget("x"), Budget("y")],
    )
    return p, decide(p, start={"other": "n1", "second": "n2"})


def test_a_node_that_a_start_has_to_itself_is_no_room() -> None:
    assert all_of(*shut())["watched"] == 0


def test_a_node_that_a_start_has_to_itself_is_no_room_when_stated_exactly() -> None:
    assert all_of(*shut())["exact"] == 0


# -- where nothing is lent --------------------------------------------------------------------------------------------


def test_without_borrowing_room_to_borrow_is_not_known() -> None:
    # holder has n1, but a model without what can only borrow does not see it; first is not passed over.
    p = problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[
            Pending("first", gpus=8, funding="any", nodes=["n1"]),
            Pending("second", gpus=4, funding="any", nodes=["n2"]),
            Pending("holder", budget="y", gpus=8, funding="borrowed", nodes=["n1"]),
        ],
        budgets=[Budget("x"), Budget("y")],
    )
    d = decide(p, borrow={"second": "n2", "holder": "n1"})
    assert TIER.evaluate(p, d) == (0,)
    for how in ("watched", "exact"):
        assert counted(p, replace(told_apart(p, how, Random(0)), lend=False), without_lent(p, d)) == 0


@pytest.mark.parametrize("how", ["watched", "exact", "firm"])
def test_who_may_have_borrowed_is_not_passed_over_where_nothing_is_lent(how: str) -> None:
    p = problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[Pending("first", gpus=8, funding="borrowed"), Pending("second", gpus=8, funding="any")],
    )
    d = decide(p, borrow={"first": "n1", "second": "n2"})
    assert violations(p, d) == []
    assert TIER.evaluate(p, d) == (0,)
    told = replace(told_apart(p, how, Random(0)), lend=False)
    assert counted(p, told, without_lent(p, d)) == 0
