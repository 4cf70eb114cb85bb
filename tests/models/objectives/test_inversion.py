"""Jobs passed over by worse-ranked starts of their own budget."""

from __future__ import annotations

import pytest

from builders import Budget, Node, Pending, Running, decide, problem
from cpalloc.models.objectives import OBJECTIVES
from cpalloc.models.objectives.inversion import inverted
from cpalloc.problem.problem import Decision, Problem, status_quo

TIER = OBJECTIVES["inversion"]


def names(p: Problem, d: Decision) -> list[str]:
    return [p.jobs.ids[j] for j in inverted(p, d)]


def node_for_one(priority: int) -> Problem:
    """Two jobs of 8 GPUs and one node; ``first``, of the priority given, was submitted first."""
    return problem(nodes=[Node("n1")], jobs=[Pending("first", gpus=8, priority=priority), Pending("second", gpus=8)])


@pytest.mark.parametrize(("priority", "value"), [(1, 16), (2, 24), (4, 40)])
def test_gpus_times_class(priority: int, value: int) -> None:
    # 8 GPUs × (priority + 1)
    p = node_for_one(priority=priority)
    assert TIER.evaluate(p, decide(p, start={"second": "n1"})) == (value,)
    assert TIER.evaluate(p, decide(p, start={"first": "n1"})) == (0,)
    assert TIER.evaluate(p, status_quo(p)) == (0,)


def test_priority_comes_before_submission() -> None:
    p = node_for_one(priority=0)
    assert names(p, decide(p, start={"first": "n1"})) == ["second"]
    assert TIER.evaluate(p, decide(p, start={"second": "n1"})) == (0,)


def test_backfill_that_takes_nothing_from_its_better_is_free() -> None:
    # first needs 8 GPUs of one node and there are 4: with or without second it does not fit.
    p = problem(
        nodes=[Node("n1")], jobs=[Running("old", at="n1", gpus=4), Pending("first", gpus=8), Pending("second", gpus=4)]
    )
    assert names(p, decide(p, start={"second": "n1"})) == []


def test_all_worse_starts_are_taken_away_together() -> None:
    # Neither start of 4 alone makes room for 8, both do.
    p = problem(nodes=[Node("n1")], jobs=[Pending("first", gpus=8), Pending("b", gpus=4), Pending("c", gpus=4)])
    assert names(p, decide(p, start={"b": "n1", "c": "n1"})) == ["first"]


def test_better_starts_stay() -> None:
    # better holds 4 of 8 GPUs: first does not fit without second either.
    p = problem(
        nodes=[Node("n1")], jobs=[Pending("better", gpus=4), Pending("first", gpus=8), Pending("second", gpus=4)]
    )
    assert names(p, decide(p, start={"better": "n1", "second": "n1"})) == []


def test_only_where_there_is_such_a_start() -> None:
    # first would fit on what is free, but nobody worse has started: a matter for other tiers.
    p = problem(nodes=[Node("n1"), Node("n2")], jobs=[Pending("better", gpus=8), Pending("first", gpus=8)])
    assert names(p, decide(p, start={"better": "n1"})) == []


def test_starts_of_other_budgets_do_not_count() -> None:
    p = problem(
        nodes=[Node("n1")],
        jobs=[Pending("first", budget="x", gpus=8), Pending("second", budget="y", gpus=8)],
        budgets=[Budget("x"), Budget("y")],
    )
    assert names(p, decide(p, start={"second": "n1"})) == []


def test_victims_of_the_round_stay_preempted() -> None:
    # Everything else as decided: v is gone, and its node is what first would have.
    p = problem(
        nodes=[Node("n1")],
        jobs=[Running("v", budget="y", at="n1", gpus=8), Pending("first", gpus=8), Pending("second", gpus=8)],
        budgets=[Budget("x"), Budget("y")],
    )
    assert names(p, decide(p, start={"second": "n1"}, preempt=["v"])) == ["first"]


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        ("allocated", "allocated", True),
        ("allocated", "borrowed", False),
        ("borrowed", "allocated", False),
        ("borrowed", "borrowed", True),
        ("any", "allocated", True),
        ("any", "borrowed", True),
    ],
)
def test_of_the_same_mode(first: str, second: str, found: bool) -> None:
    p = problem(
        nodes=[Node("n1")], jobs=[Pending("first", gpus=8, funding=first), Pending("second", gpus=8, funding=second)]
    )
    there = {"second": "n1"}
    d = decide(p, start=there) if second == "allocated" else decide(p, borrow=there)
    assert names(p, d) == (["first"] if found else [])


def test_a_job_inverted_in_both_modes_counts_once() -> None:
    p = problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[
            Pending("first", gpus=8, funding="any"),
            Pending("b", gpus=8),
            Pending("c", gpus=8, funding="borrowed"),
        ],
    )
    assert TIER.evaluate(p, decide(p, start={"b": "n1"}, borrow={"c": "n2"})) == (16,)


def test_the_required_domain() -> None:
    # second has n2 in rack r2; first needs 16 GPUs of one rack, and r2 has 8 + 4.
    for held, found in ((4, []), (0, ["first"])):
        old = [Running("old", at="n3", gpus=held)] if held else []
        p = problem(
            nodes=[Node("n1", within="r1"), Node("n2", within="r2"), Node("n3", within="r2")],
            levels=["rack"],
            jobs=[*old, Pending("first", gpus=4, replicas=4, required="rack"), Pending("second", gpus=8)],
        )
        assert names(p, decide(p, start={"second": "n2"})) == found


def test_one_pool() -> None:
    # 8 + 8 GPUs once second is gone, but of two types.
    for pools, found in ((("a100", "h100"), []), (("h100", "h100"), ["first"])):
        p = problem(
            nodes=[Node("n1", pool=pools[0]), Node("n2", pool=pools[1])],
            jobs=[Pending("first", gpus=8, replicas=2), Pending("second", gpus=8)],
        )
        assert names(p, decide(p, start={"second": "n2"})) == found


def test_eligible_nodes() -> None:
    p = problem(
        nodes=[Node("n1"), Node("n2")], jobs=[Pending("first", gpus=8, nodes=["n1"]), Pending("second", gpus=8)]
    )
    assert names(p, decide(p, start={"second": "n2"})) == ["first"]  # n1 is free; second started all the same
    p = problem(nodes=[Node("n2")], jobs=[Pending("first", gpus=8, nodes=["n1"]), Pending("second", gpus=8)])
    assert names(p, decide(p, start={"second": "n2"})) == []


@pytest.mark.parametrize(("cap", "found"), [(8, ["first"]), (7, [])])
def test_caps_on_allocated_gpus(cap: int, found: list[str]) -> None:
    # kept 4, second 2 taken away, first 4: 8
    p = problem(
        nodes=[Node("n1")],
        jobs=[
            Running("kept", at="n1", gpus=4, mode="allocated"),
            Pending("first", gpus=4),
            Pending("second", gpus=2),
        ],
        budgets=[Budget("p", max_gpus=cap), Budget("x", parent="p")],
    )
    assert names(p, decide(p, start={"second": "n1"})) == found


@pytest.mark.parametrize(("cap", "found"), [(8, ["first"]), (7, [])])
def test_caps_on_borrowed_gpus(cap: int, found: list[str]) -> None:
    p = problem(
        nodes=[Node("n1")],
        jobs=[
            Running("kept", at="n1", gpus=4),
            Pending("first", gpus=4, funding="borrowed"),
            Pending("second", gpus=2, funding="borrowed"),
        ],
        budgets=[Budget("x", max_borrowed=cap)],
    )
    assert names(p, decide(p, borrow={"second": "n1"})) == found


def lent_away(first: str, second: str, holder: str) -> tuple[Problem, Decision]:
    """first wants n1, which holder has this round; second, worse-ranked, starts on n2, which first may not use."""
    p = problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[
            Pending("first", gpus=8, funding=first, nodes=["n1"]),
            Pending("second", gpus=8, funding=second, nodes=["n2"]),
            Pending("holder", budget="y", gpus=8, funding=holder, nodes=["n1"]),
        ],
        budgets=[Budget("x"), Budget("y")],
    )
    modes: dict[str, dict[str, str]] = {"allocated": {}, "borrowed": {}}
    modes[second]["second"], modes[holder]["holder"] = "n2", "n1"
    return p, decide(p, start=modes["allocated"], borrow=modes["borrowed"])


@pytest.mark.parametrize(
    ("mode", "holder", "found"),
    [
        ("allocated", "borrowed", ["first"]),
        ("allocated", "allocated", []),
        ("borrowed", "borrowed", []),
        ("borrowed", "allocated", []),
    ],
)
def test_what_is_lent_this_round_is_no_excuse_for_allocated_work(mode: str, holder: str, found: list[str]) -> None:
    assert names(*lent_away(mode, mode, holder)) == found


def test_who_takes_either_mode_is_asked_mode_by_mode() -> None:
    # Among what is allocated, the lent n1 counts as free; among what is borrowed it does not.
    assert names(*lent_away("any", "allocated", "borrowed")) == ["first"]
    assert names(*lent_away("any", "borrowed", "borrowed")) == []


def test_what_was_lent_before_this_round_is_an_excuse() -> None:
    # Borrowed work that runs is there until somebody decides to preempt it: everything else as decided.
    p = problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[
            Running("lent", budget="y", at="n1", gpus=8),
            Pending("first", gpus=8, nodes=["n1"]),
            Pending("second", gpus=8, nodes=["n2"]),
        ],
        budgets=[Budget("x"), Budget("y")],
    )
    assert names(p, decide(p, start={"second": "n2"})) == []


def test_without_a_worse_allocated_start_what_is_lent_passes_nobody_over() -> None:
    p, d = lent_away("allocated", "borrowed", "borrowed")
    assert names(p, d) == []


def test_part_of_a_node_that_is_lent() -> None:
    # 8 GPUs: 4 lent, 2 of another budget; 6 for first once the lent ones yield, 2 otherwise.
    for wanted, found in ((6, ["first"]), (7, [])):
        p = problem(
            nodes=[Node("n1"), Node("n2")],
            jobs=[
                Pending("first", gpus=wanted, nodes=["n1"]),
                Pending("second", nodes=["n2"]),
                Pending("lent", gpus=4, funding="borrowed", nodes=["n1"]),
                Pending("other", budget="y", gpus=2, nodes=["n1"]),
            ],
            budgets=[Budget("x"), Budget("y")],
        )
        assert names(p, decide(p, start={"second": "n2", "other": "n1"}, borrow={"lent": "n1"})) == found


def test_refused_jobs_are_not_passed_over() -> None:
    p = problem(nodes=[Node("n1")], jobs=[Pending("first", gpus=8, refused=True), Pending("second", gpus=8)])
    assert names(p, decide(p, start={"second": "n1"})) == []


def test_each_waiting_job_is_asked_by_itself() -> None:
    # 8 GPUs: either of the two would fit without c, and both count.
    p = problem(
        nodes=[Node("n1")], jobs=[Pending("a", gpus=8), Pending("b", gpus=8, priority=0), Pending("c", priority=0)]
    )
    assert TIER.evaluate(p, decide(p, start={"c": "n1"})) == (8 * 2 + 8 * 1,)
