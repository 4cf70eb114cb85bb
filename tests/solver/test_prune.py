"""Preemptions that nothing uses are taken back, unless a budget could not have what it starts."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from builders import Budget, Node, Pending, Running, decide, job_at, problem
from cpalloc.models.constraints.funding import Funding
from cpalloc.models.constraints.limits import Limits
from cpalloc.problem.compile import compile_round
from cpalloc.problem.grants import borrowed, granted
from cpalloc.problem.problem import Action, Decision, JobState, Mode, Problem
from cpalloc.problem.usage import Usage
from cpalloc.schema import parse_round
from cpalloc.solver.prune import prune
from models.fixing import any_start
from reference.tiny_rounds import tiny_doc

RULES = (Funding(), Limits())


def runs(
    name: str, at: str, *, mode: str = "borrowed", gpus: int = 8, budget: str = "x", lost_s: int = 0
) -> list[Running]:
    return [Running(name, at=at, gpus=gpus, mode=mode, budget=budget, lost_s=lost_s)]


def preempted(p: Problem, d: Decision) -> set[str]:
    return {p.jobs.ids[j] for j in np.flatnonzero(d.action == Action.PREEMPT).tolist()}


def pruned(p: Problem, d: Decision) -> set[str]:
    """Who is still preempted; the others run as they did, and nothing else has changed."""
    out = prune(p, d)
    back = np.array([job_at(p, name) for name in sorted(preempted(p, d) - preempted(p, out))], dtype=np.int64)
    assert (out.action[back] == Action.KEEP).all()
    assert (out.mode[back] == p.jobs.mode[back]).all()
    others = np.setdiff1d(np.arange(len(p.jobs)), back)
    assert (out.action[others] == d.action[others]).all()
    assert (out.mode[others] == d.mode[others]).all()
    assert out.placement == d.placement
    return preempted(p, out)


# -- GPUs that nothing uses -------------------------------------------------------------------------------------------


def test_without_a_preemption_there_is_nothing_to_take_back() -> None:
    p = problem(nodes=[Node("n1")], jobs=[Running("v", at="n1", gpus=8)])
    d = decide(p)
    assert prune(p, d) is d


def test_whose_gpus_nobody_uses_comes_back() -> None:
    # new takes n1; n2 is left as it was.
    p = problem(nodes=[Node("n1"), Node("n2")], jobs=[*runs("v", "n1"), *runs("w", "n2"), Pending("new", gpus=8)])
    assert pruned(p, decide(p, preempt=["v", "w"], start={"new": "n1"})) == {"v"}
    assert pruned(p, decide(p, preempt=["v", "w"])) == set()


@pytest.mark.parametrize("dear", ["v", "w"])
def test_the_dearest_comes_back_first(dear: str) -> None:
    # Nobody knows which GPUs v and w have: of 8, new takes 4, and either may have the others.
    lost = {name: 600 if name == dear else 60 for name in ("v", "w")}
    p = problem(
        nodes=[Node("n1", unknown=True)],
        jobs=[*(j for n in lost for j in runs(n, "n1", gpus=4, lost_s=lost[n])), Pending("new", gpus=4)],
    )
    assert pruned(p, decide(p, preempt=["v", "w"], start={"new": "n1"})) == {"v", "w"} - {dear}


def test_of_those_that_cost_the_same_the_largest_comes_back_first() -> None:
    p = problem(
        nodes=[Node("n1", unknown=True)],
        jobs=[*runs("a", "n1", gpus=3), *runs("b", "n1", gpus=5), Pending("new", gpus=3)],
    )
    assert pruned(p, decide(p, preempt=["a", "b"], start={"new": "n1"})) == {"a"}


def test_its_very_devices_must_be_free() -> None:
    # v has GPUs 0-3, of which new takes the first; w has 4-7.
    p = problem(
        nodes=[Node("n1")], jobs=[*runs("v", "n1", gpus=4, lost_s=600), *runs("w", "n1", gpus=4), Pending("new")]
    )
    assert pruned(p, decide(p, preempt=["v", "w"], start={"new": "n1"})) == {"v"}


# -- what budgets may have --------------------------------------------------------------------------------------------


def capped(*caps: Budget, mode: str, victims: Collection[tuple[str, str]] = (("v", "x"),)) -> tuple[Problem, Decision]:
    """Every victim has a node, and ``new`` of budget x starts in the same mode on another."""
    p = problem(
        nodes=[Node("n0"), *(Node(f"n-{name}") for name, _ in victims)],
        jobs=[
            *(j for name, budget in victims for j in runs(name, f"n-{name}", mode=mode, budget=budget)),
            Pending("new", gpus=8, funding=mode),
        ],
        budgets=caps,
    )
    start = {"start" if mode == "allocated" else "borrow": {"new": "n0"}}
    return p, decide(p, preempt=[name for name, _ in victims], **start)


@pytest.mark.parametrize(("cap", "gone"), [(8, {"v"}), (15, {"v"}), (16, set[str]()), (-1, set[str]())])
@pytest.mark.parametrize("mode", ["allocated", "borrowed"])
def test_who_would_exceed_a_cap_stays_away(mode: str, cap: int, gone: set[str]) -> None:
    # new has 8 GPUs, v would have 8 more of its budget.
    if mode == "allocated":
        budget = Budget("x", charged=2000, max_gpus=cap)
    else:
        budget = Budget("x", charged=2000, max_borrowed=cap)
    assert pruned(*capped(budget, mode=mode)) == gone


def test_a_cap_on_one_mode_is_none_on_the_other() -> None:
    assert pruned(*capped(Budget("x", charged=2000, max_borrowed=8), mode="allocated")) == set()
    assert pruned(*capped(Budget("x", charged=2000, max_gpus=8), mode="borrowed")) == set()


def test_a_cap_further_up_counts_and_budgets_beside_it_do_not() -> None:
    # v and new lie below p, which may have 8; w does not, and comes back.
    budgets = [
        *(Budget("p", max_gpus=8), Budget("x", parent="p"), Budget("y", parent="p", charged=2000)),
        Budget("z", charged=2000),
    ]
    assert pruned(*capped(*budgets, mode="allocated", victims=[("v", "y"), ("w", "z")])) == {"v"}


def test_as_many_come_back_as_the_cap_admits() -> None:
    # 24 - 8 started leaves room for two; all cost the same, so the first two.
    budget = Budget("x", charged=2000, max_gpus=24)
    victims = [("u", "x"), ("v", "x"), ("w", "x")]
    assert pruned(*capped(budget, mode="allocated", victims=victims)) == {"w"}


def test_caps_bind_what_is_new_alone() -> None:
    # y starts nothing: that it has more than it may is no reason to preempt v.
    budgets = [Budget("x"), Budget("y", charged=2000, max_gpus=0)]
    assert pruned(*capped(*budgets, mode="allocated", victims=[("v", "y")])) == set()


@pytest.mark.parametrize(("claim", "gone"), [(8, {"v"}), (9, set[str]())])
def test_who_would_leave_nothing_to_fund_a_start_with_stays_away(claim: int, gone: set[str]) -> None:
    # new may take either mode: allocated only where its budget has less than its claim without it, 8 with v.
    p = problem(
        nodes=[Node("n1"), Node("n2"), Node("n3")],
        jobs=[
            *runs("v", "n1", mode="allocated"),
            *runs("other", "n3", mode="allocated", budget="y"),
            Pending("new", gpus=8, funding="any"),
        ],
        budgets=[Budget("x", charged=2000, claim=claim), Budget("y", charged=2000)],
        preempt_under_share=True,
    )
    assert pruned(p, decide(p, preempt=["v", "other"], start={"new": "n2"})) == gone


def test_a_promotion_needs_funding_as_a_start_does() -> None:
    # up is promoted, which x's claim of 8 admits only without the 8 of v; w borrows, which counts nothing.
    p = problem(
        nodes=[Node(f"n{i}") for i in range(3)],
        jobs=[
            *runs("v", "n0", mode="allocated"),
            *runs("w", "n1"),
            Running("up", at="n2", gpus=8, mode="borrowed", funding="any"),
        ],
        budgets=[Budget("x", charged=2000, claim=8)],
        preempt_under_share=True,
    )
    assert pruned(p, decide(p, preempt=["v", "w"], promote=["up"])) == {"v"}


# -- at random --------------------------------------------------------------------------------------------------------


def counted(p: Problem, d: Decision) -> bool:
    """Whether budgets have what they may."""
    return not any(True for rule in RULES if rule.applies(p) for _ in rule.check(p, d))


def at_its_caps(p: Problem, d: Decision) -> Problem:
    """The round with caps that admit what a decision has, and no more."""
    below = [list(leaves) for leaves in p.budgets.leaves_below]
    most = {
        name: np.array([int(have[leaves].sum()) for leaves in below], dtype=np.int64)
        for name, have in (("max_gpus", granted(p, d)), ("max_borrowed", borrowed(p, d)))
    }
    return replace(p, budgets=replace(p.budgets, **most))


def test_nobody_who_could_come_back_is_left_away() -> None:
    rng, back, away, barred = Random("prune"), 0, 0, 0
    for seed in range(500):
        p = compile_round(parse_round(tiny_doc(seed))).problem
        d = any_start(p, rng)
        if seed % 2:
            p = at_its_caps(p, d)
        if not counted(p, d):
            continue
        out = prune(p, d)
        assert counted(p, out), seed
        usage = Usage.of(p, out)
        for name in preempted(p, out):
            j = job_at(p, name)
            if p.jobs.state[j] == JobState.EVICTABLE:
                away += 1
                action, mode = out.action.copy(), out.mode.copy()
                action[j], mode[j] = Action.KEEP, Mode(int(p.jobs.mode[j]))
                kept = Decision(action, mode, out.promoted, out.placement)
                assert not usage.can_restore(j) or not counted(p, kept), (seed, name)
                barred += usage.can_restore(j)
        back += len(preempted(p, d) - preempted(p, out))
    assert min(back, away) >= 50
    assert barred >= 3
