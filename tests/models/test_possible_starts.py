"""Which starts are ruled out of a round, rule by rule: on rounds small enough to see why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from builders import HOUR, Budget, Node, Pending, decide, hold, job_at, problem
from cpalloc.models.objectives.inversion import inverted, weight
from cpalloc.models.partition import Partition
from cpalloc.models.possible import possible
from cpalloc.problem.problem import Problem
from cpalloc.solver.values import violations
from models.fixing import counted
from models.ruled_out import RICH, kept, lent, names, past, promised, starts, told

# -- room -------------------------------------------------------------------------------------------------------------


def test_a_gang_needs_room_for_all_of_it_in_one_domain() -> None:
    p = problem(
        nodes=[Node("a1", within="a"), Node("a2", within="a"), Node("b1", within="b"), Node("b2", within="b")],
        jobs=[
            kept("there", "a1", 1),
            Pending("in a rack", replicas=2, gpus=8, required="rack", nodes={"a2", "b1"}),
            Pending("in the other", replicas=2, gpus=8, required="rack"),
            Pending("anywhere", replicas=3, gpus=8),
            Pending("too wide", replicas=4, gpus=8),
        ],
        budgets=[Budget("x"), Budget("y")],
        levels=["rack"],
    )
    assert told(p) == (["anywhere", "in the other"], [])


def test_a_gang_needs_room_in_one_pool() -> None:
    waits = [Pending("pair", replicas=2, gpus=8), Pending("single", gpus=8)]
    assert told(problem(nodes=[Node("n1", pool="a100"), Node("n2")], jobs=waits)) == (["single"], [])
    assert told(problem(nodes=[Node("n1"), Node("n2")], jobs=waits)) == (["pair", "single"], [])


@pytest.mark.parametrize(
    ("gpus", "most", "terms"),
    [
        (4, 2, {"same_gpu_group": True}),  # one group of five a node
        (1, 4, {"max_per_node": 2}),
        (1, 8, {"exclusive": True}),
        (1, 4, {"resources": {"cpu": 4}}),
        (1, 8, {"nodes": {"n2"}}),
        (1, 8, {"required": "node"}),
    ],
)
@pytest.mark.parametrize("first", ["plain", "with terms"])
def test_terms_take_room(gpus: int, most: int, terms: dict[str, Any], first: str) -> None:
    groups = [range(3), range(3, 8)]
    nodes = [Node(name, groups=groups, resources={"cpu": 8}) for name in ("n1", "n2")]
    second = {"plain": "with terms", "with terms": "plain"}[first]
    for replicas in (most, most + 1):
        like: dict[str, Any] = {"gpus": gpus, "replicas": replicas}
        jobs = [
            Pending(f"{i} {name}", **like, **(terms if "with" in name else {}))
            for i, name in enumerate((first, second))
        ]
        p = in_classes(problem(nodes=nodes, jobs=[kept("there", "n1", 1), *jobs], budgets=[Budget("x"), Budget("y")]))
        fits = [name.split(" ", 1)[1] for name in told(p)[0]]
        assert sorted(fits) == ["plain", "with terms"][: 2 if replicas <= most else 1], replicas


def in_classes(p: Problem) -> Problem:
    """The round with jobs that may use the same nodes in one class, as compiled ones have them."""
    rows, of = np.unique(p.eligibility, axis=0, return_inverse=True)
    return replace(p, eligibility=rows, jobs=replace(p.jobs, eligibility=of.reshape(-1)[p.jobs.eligibility]))


def test_each_is_judged_by_its_own_size() -> None:
    waits = [Pending("1 of four", gpus=4), Pending("2 of five", gpus=5), Pending("3 fours", gpus=4, replicas=2)]
    for jobs in (waits, [replace(job, name=f"{9 - int(job.name[0])}{job.name[1:]}") for job in waits]):
        p = in_classes(problem(nodes=[Node("n1", gpus=4)], jobs=jobs))
        assert [name[2:] for name in told(p)[0]] == ["of four"]


@pytest.mark.parametrize(("gpus", "fits"), [(5, True), (6, False)])
def test_everything_goes_that_may(gpus: int, fits: bool) -> None:
    p = problem(
        nodes=[Node("n1")],
        jobs=[kept("there", "n1", 3), lent("old", "n1", 4), Pending("new", gpus=gpus)],
        budgets=[Budget("x"), Budget("y")],
    )
    assert told(p) == ((["new"], ["old"]) if fits else ([], []))
    assert told(p, may_go=[]) == ([], [])
    assert told(p, may_go=["there"]) == ([], [])  # which nobody may preempt


# -- promises ---------------------------------------------------------------------------------------------------------


def test_a_promise_binds_allocated_starts_that_rank_below_and_may_stay() -> None:
    p = promised(
        Pending("late"),
        Pending("short", timeout_s=HOUR),
        Pending("too long", timeout_s=HOUR + 1),
        Pending("borrows", funding="borrowed"),
        Pending("either", funding="any"),
        Pending("urgent", priority=4),
    )
    assert told(p) == (["borrows lent", "either lent", "short", "urgent"], [])
    assert told(replace(p, holds=()))[0] == [
        *("borrows lent", "either", "either lent", "late", "short", "too long", "urgent")
    ]


def test_a_promise_leaves_what_it_does_not_keep() -> None:
    waits = [Pending("one"), Pending("two", gpus=2), Pending("ones", replicas=2), Pending("three", gpus=3)]
    assert told(promised(*waits, gpus=6)) == (["one", "ones", "two"], [])


def test_a_promise_binds_nobody_where_its_job_may_start() -> None:
    assert told(promised(Pending("late"), first=1))[0] == ["first", "late"]
    # Nor where it may only borrow: then it runs, and its promise has served its purpose.
    p = promised(Pending("late"), first=1)
    at_first = np.arange(len(p.jobs)) == job_at(p, "first")
    jobs = replace(p.jobs, may_allocate=p.jobs.may_allocate & ~at_first, may_borrow=p.jobs.may_borrow | at_first)
    assert told(replace(p, jobs=jobs))[0] == ["first lent", "late"]


def test_what_stays_beyond_a_promise_leaves_more_beside_it_once_it_goes() -> None:
    p = problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[
            kept("there", "n2"),
            past("old", "n1", 4),
            Pending("first", replicas=2, gpus=8),
            Pending("late", gpus=4),
            Pending("later", gpus=5),
        ],
        budgets=[Budget("x"), Budget("y")],
        preempt_under_share=True,
    )
    p = replace(p, holds=(hold(p, "first", {"n1": 4, "n2": 4}, in_s=HOUR),))
    assert told(p) == (["late"], ["old"])
    assert told(p, may_go=[]) == ([], [])


# -- caps and claims --------------------------------------------------------------------------------------------------


Caps = dict[str, Any]


def capped(*jobs: Pending, x: Caps | None = None, y: Caps | None = None, top: Caps | None = None) -> Problem:
    """x and y below one budget, on two nodes."""
    return problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=jobs,
        budgets=[
            Budget("top", **top or {}),
            Budget("x", parent="top", claim=64, **x or {}),
            Budget("y", parent="top", **{**RICH, **(y or {})}),
        ],
    )


def test_caps_admit_a_start_up_to_the_last_gpu() -> None:
    waits = [Pending("four", gpus=4), Pending("five", gpus=5), Pending("lends five", gpus=5, funding="any")]
    mine, other = kept("mine", "n1", 4, budget="x"), kept("other", "n1", 4)
    assert told(capped(mine, *waits, x={"max_gpus": 8})) == (["four", "lends five lent"], [])
    assert told(capped(mine, *waits, x={"max_gpus": 9})) == (["five", "four", "lends five", "lends five lent"], [])
    assert told(capped(other, *waits, x={"max_gpus": 4})) == (["four", "lends five lent"], [])
    assert told(capped(other, *waits, top={"max_gpus": 8})) == (["four", "lends five lent"], [])
    assert told(capped(other, *waits, x={"max_gpus": 64}, top={"max_gpus": 8})) == (["four", "lends five lent"], [])
    assert told(capped(other, *waits, top={"max_gpus": 9}))[0] == ["five", "four", "lends five", "lends five lent"]


def test_caps_on_what_is_borrowed() -> None:
    waits = [Pending("four", gpus=4, funding="borrowed"), Pending("five", gpus=5, funding="any")]
    old = lent("old", "n1", 4)
    assert told(capped(old, waits[0], top={"max_borrowed": 7})) == ([], [])
    assert told(capped(old, waits[0], top={"max_borrowed": 8})) == (["four lent"], [])
    # "five" may start where old is, which then leaves its part of the cap.
    assert told(capped(old, *waits, top={"max_borrowed": 4})) == (["five", "four lent"], ["old"])
    assert told(capped(old, *waits, x={"max_borrowed": 4})) == (["five", "four lent"], ["old"])
    # What is promoted is borrowed no more.
    promotable = lent("old", "n1", 4, funding="any")
    assert told(capped(promotable, waits[0], top={"max_borrowed": 7})) == ([], [])
    assert told(capped(promotable, waits[0], top={"max_borrowed": 7}, y={"claim": 1})) == (["four lent"], [])


def test_what_goes_leaves_the_caps_above_it() -> None:
    old, new = past("old", "n1"), Pending("new", gpus=8)
    assert told(capped(old, new, top={"max_gpus": 8})) == (["new"], ["old"])
    assert told(capped(old, new, top={"max_gpus": 8}), may_go=[]) == ([], [])


@pytest.mark.parametrize(("claim", "reached"), [(3, True), (4, True), (5, False)])
def test_who_takes_either_mode_is_allocated_only_below_the_claim(claim: int, reached: bool) -> None:
    p = problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[
            kept("mine", "n1", 4, budget="x"),
            Pending("either", gpus=8, funding="any"),
            Pending("allocated", gpus=8),
        ],
        budgets=[Budget("x", claim=claim)],
    )
    assert told(p)[0] == ["allocated", *([] if reached else ["either"]), "either lent"]


def test_the_claim_is_reached_again_once_work_of_the_budget_goes() -> None:
    # x has 8 of a claim of 8. If old goes, x must have its claim all the same: "either" gives it that.
    p = problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[
            past("old", "n1", budget="x"),
            Pending("either", gpus=8, funding="any"),
            Pending("other", gpus=8, budget="y"),
        ],
        budgets=[Budget("x", claim=8, **RICH), Budget("y")],
    )
    assert told(p) == (["either", "either lent", "other"], ["old"])
    assert told(p, may_go=[]) == (["either lent", "other"], [])


# -- who may be passed over -------------------------------------------------------------------------------------------


def by_promise() -> Problem:
    """ "long" would stay beyond a promise that "short", ranked below it, does not mind."""
    return promised(Pending("long"), Pending("short", timeout_s=HOUR))


def by_claim() -> Problem:
    """ "long" takes either mode and has neither; x is granted its claim already."""
    return problem(
        nodes=[Node("n1")],
        jobs=[
            kept("mine", "n1", 1, budget="x"),
            Pending("long", funding="any"),
            Pending("short"),
            Pending("large", gpus=8),
        ],
        budgets=[Budget("x", claim=1, max_borrowed=0)],
    )


@pytest.mark.parametrize("rounds", [by_promise, by_claim])
def test_who_cannot_start_may_be_passed_over(rounds: Callable[[], Problem]) -> None:
    p = rounds()
    found, long = possible(p), job_at(p, "long")
    assert starts(p, found) == ["short"]
    assert names(p, found.passed) == ["long"]
    decision = decide(p, start={"short": "n1"})
    assert violations(p, decision) == []
    assert inverted(p, decision) == [long]
    model = Partition(holds=p.holds, hard=len(p.holds), possible=found)
    assert counted(p, model, decision) == weight(p, long)
    forgotten = replace(model, possible=replace(found, passed=frozenset()))
    assert counted(p, forgotten, decision) == 0  # a bound all the same, but a worse one


def test_who_has_no_room_or_meets_a_cap_is_not_passed_over() -> None:
    p = problem(
        nodes=[Node("n1", gpus=4)],
        jobs=[Pending("no room", gpus=5), Pending("capped", gpus=3), Pending("short", gpus=2)],
        budgets=[Budget("x", max_gpus=2)],
    )
    found = possible(p)
    assert (starts(p, found), names(p, found.passed)) == (["short"], [])
