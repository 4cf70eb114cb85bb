"""Whatever is ruled out of a round no decision has, and models are worth the same without it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest

import cpalloc.solver.models as models
from builders import Budget, Node, Pending, Running, decide, problem
from cpalloc.generate import GeneratorConfig, generate_doc
from cpalloc.models.constraints.preemption import victims
from cpalloc.models.objectives.inversion import inverted
from cpalloc.models.partition import Possible
from cpalloc.models.possible import possible
from cpalloc.problem.compile import compile_round
from cpalloc.problem.grants import granted
from cpalloc.problem.problem import Action, Decision, JobState, Mode, Options, Problem, Tier
from cpalloc.schema import parse_round
from cpalloc.solver.greedy import greedy
from cpalloc.solver.results import Clock
from cpalloc.solver.solve import solve_problem
from cpalloc.solver.strict import StrictOrder
from cpalloc.solver.values import Values
from models.fixing import any_decision
from models.possible_rounds import Every, Tally, drawn, everything, examine, strained
from reference.tiny_rounds import TIERS

ORDERS = (
    TIERS,
    ["starvation", "preemption", "shortfall", "inversion", "lend", "idle", "locality"],
    ["starvation", "shortfall", "inversion", "preemption", "delay", "idle"],
    ["preemption", "shortfall", "idle", "lend", "inversion"],
)

CHUNKS, ROUNDS = 4, 3600

SEEN = {
    "promise in force": 120,
    "promise, its job may start": 80,
    **{f"{cap} at depth {depth}": 30 for cap in ("max_gpus", "max_borrowed") for depth in range(3)},
    "any, with a claim": 200,
    "promotable": 150,
    "bound on preemptions": 150,
    "rack": 70,
    "several levels": 90,
    "several pools": 60,
    "max_per_node": 70,
    "exclusive": 50,
    "exclusive, running": 25,
    "same_gpu_group": 25,
    "cpu": 60,
    "draining": 25,
    "down": 30,
    "unhealthy": 120,
    "unknown devices": 40,
    "outlines ruled out": 1200,
    "decisions asked who is passed over": 250,
}
"""Rounds of a chunk that have something, at least, and what was asked of them."""


# -- every decision of tiny rounds ------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_no_decision_has_what_is_ruled_out(chunk: int) -> None:
    tally = Tally()
    for seed in range(chunk * ROUNDS // CHUNKS, (chunk + 1) * ROUNDS // CHUNKS):
        examine(seed, tally)
    counts = tally.counts
    assert tally.failures == []
    assert {name: counts[name] for name, least in SEEN.items() if counts[name] < least} == {}
    for what in ("starts", "promotions", "goes"):
        assert counts[what] // 4 <= counts[f"{what} ruled out"] <= counts[what] * 9 // 10


def test_little_else_is_left_than_what_some_decision_has() -> None:
    had = left = 0
    for seed in range(300):
        p = drawn(seed)
        found = possible(p)
        starts, promotes, goes = Every(p).had()
        assert starts <= found.starts, seed
        assert promotes <= found.promotes, seed
        assert goes <= found.goes, seed
        had += len(starts) + len(promotes) + len(goes)
        left += len(found.starts) + len(found.promotes) + len(found.goes)
    assert had >= 300
    assert left <= 1.3 * had


def test_who_starts_in_no_decision_and_is_passed_over_in_some_is_known() -> None:
    over: list[int] = []
    for seed in range(900):
        p = drawn(seed)
        found = possible(p)
        if found.passed:  # where it is not, it is asked of every round above
            passed = Every(p).passed(found)
            assert passed <= found.passed, seed
            over += passed
    assert len(over) >= 3


# -- decisions of larger rounds ---------------------------------------------------------------------------------------


def full(nodes: int, seed: int, **more: Any) -> Problem:
    """A generated round with hardly anything free, most of it protected, and numbers near where they begin to bind."""
    config = GeneratorConfig(
        nodes=nodes,
        seed=seed,
        family=("mixed", "gang-heavy")[seed % 2],
        nodes_per_rack=4,
        racks_per_block=2,
        budgets=6,
        fill=(0.98, 0.9)[seed % 3 == 0],
        protected=0.85,
        borrowed=0.4,
        required_topology=0.5,
        any_funding=0.3,
        odd_sizes=(0.0, 0.3)[seed % 4 == 0],
        cpu_bound=(0.0, 0.3)[seed % 5 == 0],
        unhealthy=0.02,
        draining=0.05,
        **more,
    )
    document = generate_doc(config)
    document["policy"] = {**document.get("policy", {}), "tiers": ORDERS[seed % len(ORDERS)]}
    options = Options(workers=1, deterministic=True, deterministic_limit=20.0)
    p = replace(compile_round(parse_round(document)).problem, options=options)
    return strained(p, Random(seed)) if seed % 3 else p


def missing(p: Problem, found: Possible, decision: Decision) -> list[str]:
    """What of a decision is ruled out."""
    jobs, chosen = p.jobs, np.flatnonzero(decision.action == Action.PREEMPT).tolist()
    starts = {(j, Mode(int(decision.mode[j]))) for j in decision.placement}
    goes = {j for j in chosen if jobs.state[j] == JobState.EVICTABLE}
    promotes = set(np.flatnonzero(decision.promoted).tolist())
    over = set(inverted(p, decision)) - {j for j, _ in found.starts}
    rich = (granted(p, decision) > np.array(found.most_granted)).any()
    wrong = [starts - found.starts, goes - found.goes, promotes - found.promotes, over - found.passed]
    return [str(some) for some in wrong if some] + (["too much is granted"] if rich else [])


def test_nor_has_any_that_is_drawn_of_a_larger_round() -> None:
    asked = preempting = promoting = over = 0
    for seed in range(24):
        p, rng = full(24, seed), Random(seed)
        found = possible(p)
        for decision in (greedy(p), *(any_decision(p, rng) for _ in range(30))):
            if decision is not None:
                assert missing(p, found, decision) == [], seed
                asked += 1
                preempting += bool(victims(p, decision))
                promoting += bool(decision.promoted.any())
                over += bool(inverted(p, decision))
    assert asked >= 70
    assert min(preempting, promoting, over) >= 10


# -- what models are worth --------------------------------------------------------------------------------------------


Part = tuple[str, str, int, int | None, int]


def solved(p: Problem, monkeypatch: pytest.MonkeyPatch, rule: Callable[..., Possible]) -> list[Part]:
    """Values, bounds and limits of all parts of all tiers, where nothing else can happen than a rule says."""
    monkeypatch.setattr(models, "possible", rule)
    tiers = solve_problem(p).tiers
    return [(t.name, part.name, part.best, part.bound, part.limit) for t in tiers for part in t.parts]


def alike(mine: list[Part], theirs: list[Part]) -> Iterator[tuple[Part, Part]]:
    """Parts of tiers that have the same limits to respect: until one is not proved, or speaks of its own decision."""
    for one, other in zip(mine, theirs, strict=True):
        if one[0] == "delay":  # of those who are blocked in the decision that was reached
            return
        yield one, other
        if not one[2] == one[3] == other[2] == other[3]:
            return


@pytest.mark.parametrize("nodes", [8, 12, 16, 24])
def test_tiers_have_the_same_optimum_without_what_is_ruled_out(
    nodes: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked = proved = above = out = 0
    for seed in range(16):
        p = full(nodes, seed)
        few, every = possible(p), everything(p)
        without, whole = solved(p, monkeypatch, possible), solved(p, monkeypatch, everything)
        for mine, theirs in alike(without, whole):
            (_, _, best, bound, _), (_, _, least, lower, _) = mine, theirs
            assert (bound or 0) <= min(best, least), (seed, mine, theirs)
            assert (lower or 0) <= min(best, least), (seed, mine, theirs)
            asked += 1
            if best == bound and least == lower:
                assert mine == theirs, seed
                proved += 1
                above += best > 0
        out += len(every.starts) - len(few.starts) + len(every.goes) - len(few.goes)
    assert caplog.text == ""
    assert proved >= 0.9 * asked
    assert above >= 20
    assert out >= 40


def test_bounds_hold_where_the_whole_model_is_too_big(monkeypatch: pytest.MonkeyPatch) -> None:
    """There preemptions are taken for settled that are not; no bound of a later tier may rest on that."""
    asked = assumed = 0
    for seed in range(16):
        p = full(16, seed)
        whole = solved(p, monkeypatch, everything)
        with monkeypatch.context() as small:
            small.setattr(models, "MOST_NODES", 8)
            parts = solved(p, small, possible)
        limits = {(name, part): (best, limit) for name, part, best, _, limit in whole}
        same = True
        for name, part, best, bound, limit in parts:
            if not same or name == "delay":
                break
            assert (bound or 0) <= limits[name, part][0], (seed, name, part)
            asked += 1
            assumed += bound != best
            same = limit == limits[name, part][1]
    assert asked >= 40
    assert assumed >= 10


def test_nothing_rests_on_preemptions_that_are_only_taken_for_settled() -> None:
    """Half of what is entitled is enough. "one" starts for the price of "two", which later tiers would like better."""
    p = problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[
            Running("old", budget="z", at="n1", gpus=8, lost_s=60),
            Running("older", budget="z", at="n2", gpus=4, lost_s=120),
            Pending("one", budget="x", gpus=8, nodes={"n1"}),
            Pending("two", budget="y", gpus=8, nodes={"n2"}),
        ],
        budgets=[Budget("x", entitled=8, claim=8), Budget("y", entitled=9, claim=9), Budget("z")],
    )
    order = (Tier("shortfall", Fraction(1, 2)), Tier("preemption"), Tier("starvation"), Tier("idle"))
    p = replace(p, policy=replace(p.policy, tiers=order))
    first, second = decide(p, start={"one": "n1"}, preempt=["old"]), decide(p, start={"two": "n2"}, preempt=["older"])
    solution = StrictOrder(p, Clock(0.0), [first]).solve()  # no time to prove anything, nor to find the second
    assert solution.decision.placement == first.placement
    better = Values(p, second)
    for tier in solution.tiers:
        for part, value in zip(tier.parts, better[tier.name], strict=True):
            assert value <= part.limit or tier.name == "idle", tier.name
            assert (part.bound or 0) <= value, tier.name
    assert [tier.parts[0].best for tier in solution.tiers] == [9, 480, 63, 4]
    assert [better[tier.name][0] for tier in solution.tiers] == [9, 480, 56, 0]


def in_order(p: Problem, first: Decision, *tiers: str) -> dict[str, list[tuple[int, int | None]]]:
    """Values and bounds of the parts of some tiers, for a solver that begins with a decision."""
    options = Options(workers=1, deterministic=True, deterministic_limit=5.0)
    p = replace(p, policy=replace(p.policy, tiers=tuple(map(Tier, tiers))), options=options)
    return {t.name: [(x.best, x.bound) for x in t.parts] for t in StrictOrder(p, Clock(5.0), [first]).solve().tiers}


def test_a_round_is_not_decided_where_somebody_may_be_promoted() -> None:
    p = problem(
        nodes=[Node("n1")],
        jobs=[Running("loan", at="n1", gpus=8, funding="any")],
        budgets=[Budget("x", entitled=8, claim=8)],
    )
    assert possible(p).starts == frozenset()
    assert in_order(p, decide(p), "shortfall", "preemption")["shortfall"] == [(0, 0)]


def test_nor_where_everybody_starts_but_in_one_mode_or_the_other() -> None:
    p = problem(
        nodes=[Node("n1")],
        jobs=[Pending("either", gpus=8, funding="any")],
        budgets=[Budget("x", claim=8)],
    )
    assert in_order(p, decide(p, borrow={"either": "n1"}), "preemption", "idle")["idle"] == [(0, 0), (0, 0)]
