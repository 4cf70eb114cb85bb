"""Which promotions and preemptions are ruled out of a round, rule by rule, and what that rules out in turn."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import HOUR, Budget, Node, Pending, Running, hold, problem
from cpalloc.models.partition import Possible
from cpalloc.models.possible import possible
from models.ruled_out import RICH, kept, lent, names, past, told

# -- promotions -------------------------------------------------------------------------------------------------------


def promotes(*jobs: Pending, claim: int = 4, **y: int) -> tuple[list[str], Possible]:
    """Who may be promoted where y borrows half of n1, and may claim so much."""
    p = problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[lent("loan", "n1", 4, funding="any"), *jobs],
        budgets=[Budget("x", claim=64), Budget("y", claim=claim, **{**RICH, **y})],
    )
    found = possible(p)
    return names(p, found.promotes), found


def test_who_is_promoted_needs_a_claim_and_caps_that_admit_it() -> None:
    assert promotes()[0] == ["loan"]
    assert promotes(claim=1)[0] == ["loan"]
    assert promotes(claim=0)[0] == []
    assert promotes(kept("mine", "n2", 4), claim=5)[0] == ["loan"]
    assert promotes(kept("mine", "n2", 4))[0] == []
    assert promotes(max_gpus=4)[0] == ["loan"]
    assert promotes(max_gpus=3)[0] == []
    assert promotes(kept("mine", "n2", 4), claim=8, max_gpus=7)[0] == []
    # Where mine goes, for a start of x on n2, the claim and the cap have room again.
    mine, new = past("mine", "n2", 4), Pending("new", nodes={"n2"}, gpus=8)
    assert promotes(mine, new)[0] == ["loan"]
    assert promotes(mine, new, max_gpus=7)[0] == ["loan"]
    assert promotes(mine)[0] == []


def test_promotions_of_what_goes_are_possible_too() -> None:
    names, found = promotes(Pending("new", nodes={"n1"}, gpus=8))
    assert (names, len(found.goes)) == (["loan"], 1)


@pytest.mark.parametrize(
    ("kept_gpus", "first", "claim", "timeout_s", "promoted"),
    [
        (4, 2, 64, -1, True),
        (5, 2, 64, -1, False),
        (5, 1, 64, -1, True),  # its job may start
        (5, 2, 64, 11 * HOUR, True),  # it began ten hours ago: it leaves in time
        (5, 2, 64, 11 * HOUR + 1, False),
    ],
)
def test_no_promise_may_be_in_the_way_of_a_promotion(
    kept_gpus: int, first: int, claim: int, timeout_s: int, promoted: bool
) -> None:
    p = problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[
            lent("loan", "n1", 4, funding="any", timeout_s=timeout_s),
            kept("there", "n2", 1, budget="z"),
            Pending("first", replicas=first, gpus=4 if first == 1 else 8),
        ],
        budgets=[Budget("x", claim=64), Budget("y", claim=claim, **RICH), Budget("z")],
    )
    p = replace(p, holds=(hold(p, "first", {"n1": kept_gpus, "n2": 8}, in_s=HOUR),))
    assert names(p, possible(p).promotes) == (["loan"] if promoted else [])


# -- preemptions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("new", "goes"),
    [
        (Pending("new", budget="x"), True),
        (Pending("new", budget="x", nodes={"n1"}), True),
        (Pending("new", budget="x", nodes={"n2"}), False),
        (Pending("new", budget="y"), False),
        (Pending("new", budget="x", funding="borrowed"), False),
        (Pending("new", budget="x", funding="any"), True),
    ],
)
def test_nobody_goes_but_for_an_allocated_start_of_another_budget_on_its_nodes(new: Pending, goes: bool) -> None:
    p = problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[lent("old", "n1", 4), new],
        budgets=[Budget("x", claim=8), Budget("y", claim=8)],
    )
    assert told(p)[1] == (["old"] if goes else [])


def test_a_gang_goes_for_a_start_on_any_of_its_nodes() -> None:
    p = problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[
            Running("old", budget="y", at={"n1": 1, "n2": 1}, replicas=2, gpus=4),
            Pending("new", nodes={"n2"}, gpus=8),
        ],
        budgets=[Budget("x"), Budget("y")],
    )
    assert told(p) == (["new"], ["old"])


def test_starts_of_several_budgets_are_foreign_to_each_other() -> None:
    old = [lent("old x", "n1", 2, budget="x"), lent("old y", "n1", 2), lent("old z", "n1", 2, budget="z")]
    budgets = [Budget("x"), Budget("y"), Budget("z")]
    new = {name: Pending(f"new {name}", budget=name) for name in "xyz"}
    for among, goes in (("x", "yz"), ("y", "xz"), ("xy", "xyz"), ("yx", "xyz"), ("xyz", "xyz"), ("zy", "xyz")):
        p = problem(nodes=[Node("n1")], jobs=[*old, *(new[name] for name in among)], budgets=budgets)
        assert told(p)[1] == [f"old {name}" for name in goes], among


def test_starts_take_only_nodes_of_domains_with_room_for_the_gang() -> None:
    # Rack a holds no pair: a1 is protected. So nothing on a2 goes for it, and what is on b1 may.
    p = problem(
        nodes=[Node("a1", within="a"), Node("a2", within="a"), Node("b1", within="b"), Node("b2", within="b")],
        jobs=[
            kept("there", "a1"),
            lent("old a", "a2", 4),
            lent("old b", "b1", 4),
            Pending("pair", replicas=2, gpus=8, required="rack"),
        ],
        budgets=[Budget("x"), Budget("y")],
        levels=["rack"],
    )
    assert told(p) == (["pair"], ["old b"])


def test_a_budget_keeps_what_it_can_claim() -> None:
    def goes(*more: Pending, claim: int = 8, gpus: int = 8) -> list[str]:
        jobs = [past("old", "n1", gpus), Pending("new", gpus=gpus, nodes={"n1"}), *more]
        budgets = [Budget("x"), Budget("y", claim=claim, **RICH)]
        p = problem(nodes=[Node("n1"), Node("n2"), Node("n3")], jobs=jobs, budgets=budgets)
        return told(p)[1]

    assert goes() == []
    assert goes(claim=0) == ["old"]
    assert goes(kept("more", "n2", 7)) == []
    assert goes(kept("more", "n2", 8)) == ["old"]
    assert goes(Pending("more", budget="y", gpus=8, nodes={"n2"})) == ["old"]
    assert goes(Pending("more", budget="y", gpus=7, nodes={"n2"})) == []
    assert goes(Pending("more", budget="y", gpus=8, nodes={"n2"}, funding="borrowed")) == []
    assert goes(lent("more", "n2", funding="any")) == ["old"]
    assert goes(lent("more", "n2")) == []
    assert goes(lent("borrowed", "n1", 4), gpus=4) == ["borrowed"]  # it is no part of what can be claimed


@pytest.mark.parametrize(("bound", "goes"), [(-1, True), (8, True), (7, False), (0, False)])
def test_no_more_goes_than_the_policy_says(bound: int, goes: bool) -> None:
    p = problem(
        nodes=[Node("n1")],
        jobs=[lent("old", "n1"), Pending("new", gpus=8)],
        budgets=[Budget("x"), Budget("y")],
        max_preempted_gpus=bound,
    )
    assert told(p) == ((["new"], ["old"]) if goes else ([], []))


def test_one_start_that_is_ruled_out_rules_out_others() -> None:
    # "first" cannot have n2. So nothing foreign to x starts on n1, old stays there, and "second", whose budget it is
    # that has n1 now, finds no room; whereas it would where "first" could start, and old had to go.
    def found(there: int) -> tuple[list[str], list[str]]:
        p = problem(
            nodes=[Node("n1"), Node("n2")],
            jobs=[
                kept("there", "n2", there, budget="z"),
                lent("old", "n1", budget="x"),
                Pending("first", budget="y", replicas=2, gpus=6),
                Pending("second", budget="x", gpus=7),
            ],
            budgets=[Budget("x"), Budget("y"), Budget("z")],
        )
        return told(p)

    assert found(2) == (["first", "second"], ["old"])
    assert found(3) == ([], [])


# -- what is left -----------------------------------------------------------------------------------------------------


def test_the_most_that_budgets_are_granted() -> None:
    p = problem(
        nodes=[Node("n1"), Node("n2"), Node("n3")],
        jobs=[
            kept("there", "n1", 8),
            lent("may be promoted", "n2", 2, funding="any"),
            lent("may not", "n2", 2),
            lent("may only borrow", "n2", 2, budget="z", funding="any"),
            Pending("new", budget="y", gpus=8),
            Pending("too big", budget="y", gpus=8, replicas=3),
            Pending("borrows", budget="y", gpus=4, funding="borrowed"),
            Pending("other", budget="x", gpus=4),
        ],
        budgets=[Budget("x"), Budget("y", claim=9), Budget("z")],
    )
    assert dict(zip(p.budgets.leaf_names, possible(p).most_granted, strict=True)) == {"x": 4, "y": 18, "z": 0}
