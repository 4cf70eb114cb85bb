"""Decisions that follow the relaxation without nodes."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from builders import HOUR, Budget, Node, Pending, Running, job_at, problem
from cpalloc.engine import solve_round
from cpalloc.generate import GeneratorConfig, generate_doc
from cpalloc.models.in_turn import serve_in_turn
from cpalloc.models.objectives import OBJECTIVES
from cpalloc.models.objectives.inversion import inverted
from cpalloc.models.pooled import Pooled
from cpalloc.problem.compile import compile_round
from cpalloc.problem.problem import Action, Decision, Mode, Problem, status_quo
from cpalloc.schema import parse_round
from cpalloc.solver import models as models_
from cpalloc.solver import relaxations, search
from cpalloc.solver.following import as_wanted
from cpalloc.solver.greedy import greedy
from cpalloc.solver.highs import relaxed
from cpalloc.solver.outcome import Run
from cpalloc.solver.relaxations import NOTHING
from cpalloc.solver.results import PartResult
from cpalloc.solver.run import minimise
from cpalloc.solver.values import violations
from models.fixing import ONE_WORKER, any_decision
from reference.tiny_rounds import tiny_doc


def solved(pooled: Pooled) -> Run:
    run = minimise(pooled.model, pooled.objective, options=ONE_WORKER, limit_s=60.0)
    assert run.values is not None
    return run


def names(p: Problem, jobs: Any) -> set[str]:
    return {p.jobs.ids[j] for j in jobs}


def worth(p: Problem, d: Decision, tier: str) -> int:
    return OBJECTIVES[tier].evaluate(p, d)[0]


def without_models(monkeypatch: pytest.MonkeyPatch, family: str, seeds: range) -> list[dict[str, PartResult]]:
    """The first part of every tier of big rounds (48 nodes will do) in which there is no time for models."""
    for module in (search, relaxations):
        monkeypatch.setattr(module, "FEW_NODES", 0)
    monkeypatch.setattr(search, "MAX_ROUNDS", 0)
    monkeypatch.setattr(search.Search, "_by_regions", lambda *_: None)
    found = []
    for seed in seeds:
        document = generate_doc(GeneratorConfig(nodes=48, seed=seed, family=family))
        document["options"] = {"deterministic": True, "deterministic_limit": 5, "workers": 1}
        found.append({t.name: t.parts[0] for t in solve_round(parse_round(document)).solution.tiers})
    return found


def beyond_entitlement() -> Problem:
    """16 GPUs for two budgets entitled to 8 each: x goes first, and by its order with a job of 12; two of 4 fit it."""
    return problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[
            Pending("large", budget="x", gpus=4, replicas=3),
            Pending("s1", budget="x", gpus=4),
            Pending("s2", budget="x", gpus=4),
            Pending("y1", budget="y", gpus=8),
        ],
        budgets=[Budget("x", entitled=8), Budget("y", entitled=8, charged=1)],
    )


def test_who_starts_in_the_relaxation_starts() -> None:
    p = beyond_entitlement()
    assert worth(p, greedy(p), "shortfall") == 8  # x has 12, and y's job finds no node
    pooled = Pooled(p, "shortfall", {})
    run = solved(pooled)
    assert run.objective == 0
    wanted = pooled.starts(run.values or ())
    assert names(p, wanted) == {"s1", "s2", "y1"}
    found, missed = as_wanted(p, pooled.stays(run.values or ()), wanted, NOTHING)
    assert violations(p, found) == []
    assert (worth(p, found, "shortfall"), missed) == (0, frozenset())


def test_of_those_alike_the_first_of_their_budget_start() -> None:
    p = problem(
        nodes=[Node("n1")],
        jobs=[Pending(f"p{i}", budget="x", gpus=4, priority=i) for i in range(4)],
        budgets=[Budget("x", entitled=8)],
    )
    p = replace(p, jobs=replace(p.jobs, eligibility=np.zeros_like(p.jobs.eligibility)))  # one kind
    pooled = Pooled(p, "shortfall", {})
    run = solved(pooled)
    assert names(p, pooled.starts(run.values or ())) == {"p2", "p3"}
    pooled.without([job_at(p, "p2")], run.values or ())
    again = solved(pooled)
    assert names(p, pooled.starts(again.values or ())) == {"p3"}


def test_without_those_that_found_no_room_others_start() -> None:
    # By GPUs both gangs fit; but only one rack has two nodes.
    p = problem(
        nodes=[Node("n1", within="r1"), Node("n2", within="r1"), Node("n3", within="r2"), Node("n4", within="r3")],
        levels=["rack"],
        jobs=[
            *(Pending(f"g{i}", budget="x", gpus=8, replicas=2, required="rack") for i in (1, 2)),
            *(Pending(f"s{i}", budget="x", gpus=6) for i in (1, 2)),
        ],
        budgets=[Budget("x", entitled=32)],
    )
    pooled = Pooled(p, "shortfall", {})
    run = solved(pooled)
    wanted = pooled.starts(run.values or ())
    assert (run.objective, names(p, wanted)) == (0, {"g1", "g2"})
    found, missed = as_wanted(p, frozenset(), wanted, NOTHING)
    assert len(missed) == 1
    assert worth(p, found, "shortfall") == 4  # entitlements are served as ever after that
    pooled.without(missed, run.values or ())
    again = solved(pooled)
    assert again.objective == 4
    assert {"s1", "s2"} < names(p, pooled.starts(again.values or ()))


def test_whoever_is_wanted_starts_in_the_pool_where_it_is() -> None:
    p = problem(
        nodes=[Node("a1", pool="a100"), Node("h1", pool="h100")],
        jobs=[Pending("either"), Pending("other")],
        budgets=[Budget("x", entitled=2)],
    )
    either, other = job_at(p, "either"), job_at(p, "other")
    for pools in ({either: 0, other: 1}, {either: 1, other: 0}):
        found, missed = as_wanted(p, frozenset(), pools, NOTHING)
        assert {j: int(p.nodes.pool[places[0].node]) for j, places in found.placement.items()} == pools
        assert not missed


def test_whoever_is_wanted_where_there_is_no_room_starts_elsewhere() -> None:
    p = problem(
        nodes=[Node("a1", pool="a100", gpus=1), Node("h1", pool="h100")],
        jobs=[Pending("a"), Pending("b")],
        budgets=[Budget("x", entitled=2)],
    )
    found, missed = as_wanted(p, frozenset(), {0: 0, 1: 0}, NOTHING)
    assert (len(found.placement), missed) == (2, {1})


def two_loans() -> Problem:
    """x borrows n1 and y, for less, n2; z and x want a node each."""
    return problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[
            Running("of x", budget="x", at="n1", gpus=8, lost_s=600),
            Running("of y", budget="y", at="n2", gpus=8, lost_s=60),
            Pending("z1", budget="z", gpus=8),
            Pending("x1", budget="x", gpus=8),
        ],
        budgets=[Budget("x", entitled=8), Budget("y"), Budget("z", entitled=8)],
    )


def test_who_chooses_first_leaves_the_room_that_its_own_work_makes_to_others() -> None:
    # z takes the cheaper node, and x, whose own loan is on the other one, may not take that back for itself.
    p = two_loans()
    wanted = {job_at(p, "z1"): 0, job_at(p, "x1"): 0}
    found, missed = as_wanted(p, frozenset(), wanted, NOTHING)
    assert (worth(p, found, "shortfall"), names(p, missed)) == (8, {"x1"})
    found, missed = as_wanted(p, frozenset(), wanted, NOTHING, first=[int(p.jobs.leaf[job_at(p, "x1")])])
    assert (worth(p, found, "shortfall"), missed) == (0, frozenset())
    assert violations(p, found) == []


def test_work_of_who_chooses_first_goes_before_any_other() -> None:
    # The gang of z comes before single jobs whoever chooses first, but takes the room of the one that others cannot.
    p = problem(
        nodes=[Node(f"n{i}") for i in range(3)],
        jobs=[
            Running("of x", budget="x", at="n0", gpus=8, lost_s=600),
            *(Running(f"of y{i}", budget="y", at=f"n{i}", gpus=8, lost_s=60) for i in (1, 2)),
            Pending("z1", budget="z", gpus=8, replicas=2),
            Pending("x1", budget="x", gpus=8),
        ],
        budgets=[Budget("x", entitled=8), Budget("y"), Budget("z", entitled=16)],
    )
    wanted = {job_at(p, "z1"): 0, job_at(p, "x1"): 0}
    assert names(p, as_wanted(p, frozenset(), wanted, NOTHING)[1]) == {"x1"}
    _, missed = as_wanted(p, frozenset(), wanted, NOTHING, first=[int(p.jobs.leaf[job_at(p, "x1")])])
    assert not missed


def test_who_is_to_be_lent_to_has_its_place_kept() -> None:
    p = problem(
        nodes=[Node("n1", gpus=4)],
        jobs=[Pending("first", gpus=4, funding="any"), Pending("second", gpus=4)],
        budgets=[Budget("x", entitled=4, claim=4)],
    )
    first = job_at(p, "first")
    found, _ = as_wanted(p, frozenset(), {}, {"starvation": 99, "shortfall": 9}, lent={first: 0})
    assert {p.jobs.ids[j]: Mode(int(found.mode[j])) for j in found.placement} == {"first": Mode.BORROWED}


def test_a_relaxation_is_followed_again_with_those_first_that_found_no_room() -> None:
    p, offered = two_loans(), list[Decision]()
    models: Any = SimpleNamespace(problem=p, hurry=lambda: False, left=lambda: 60.0)
    best: Any = SimpleNamespace(values={"shortfall": (16,)}, offer=lambda d, *_: offered.append(d))
    followed = relaxations.Relaxations(models, best, lambda *_: None)
    wanted = {job_at(p, "z1"): 0, job_at(p, "x1"): 0}
    found, missed = followed._place(search.Goal("shortfall", 1, 0), frozenset(), wanted, NOTHING, 0)
    assert (worth(p, found, "shortfall"), missed) == (0, frozenset())
    assert [worth(p, d, "shortfall") for d in offered] == [8, 0]


def test_whoever_stays_is_only_preempted_while_too_much_is_missing() -> None:
    p = problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[
            Running("dear", budget="y", at="n1", gpus=8, lost_s=9 * HOUR),
            Running("cheap", budget="y", at="n2", gpus=8),
            Pending("a", budget="x", gpus=8),
            Pending("b", budget="x", gpus=8),
        ],
        budgets=[Budget("x", entitled=16), Budget("y")],
    )
    stays = {job_at(p, "dear")}
    for most, gone in ((8, {"cheap"}), (0, {"cheap", "dear"})):
        found, missed = as_wanted(p, stays, {job_at(p, "a"): 0}, {"starvation": 99, "shortfall": most})
        assert violations(p, found) == []
        assert names(p, [j for j in range(len(p.jobs)) if found.action[j] == Action.PREEMPT]) == gone
        assert not missed


def test_what_runs_on_loan_is_promoted_while_its_budget_is_short() -> None:
    p = problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[
            Running("l1", budget="x", at="n1", gpus=4, funding="any"),
            Running("l2", budget="x", at="n2", gpus=4, funding="any"),
        ],
        budgets=[Budget("x", entitled=4, claim=8)],
    )
    found, _ = as_wanted(p, {0, 1}, {}, NOTHING)
    assert int(found.promoted.sum()) == 1


def test_who_is_stopped_has_what_was_decided_so_far() -> None:
    p = beyond_entitlement()
    found, _ = as_wanted(p, frozenset(), dict.fromkeys(range(4), 0), NOTHING, lambda: True)
    assert (found.action == status_quo(p).action).all()


def test_whatever_is_wanted_every_rule_holds() -> None:
    rng, followed, better = Random("wanted"), 0, 0
    for seed in range(120):
        p = compile_round(parse_round(tiny_doc(seed))).problem
        pooled = Pooled(p, "shortfall", {})
        run = solved(pooled)
        found, _ = as_wanted(p, pooled.stays(run.values or ()), pooled.starts(run.values or ()), NOTHING)
        assert violations(p, found) == []
        assert run.bound is not None
        assert run.bound <= worth(p, found, "shortfall")
        followed += worth(p, found, "shortfall") == run.bound > 0
        better += worth(p, found, "shortfall") < worth(p, greedy(p), "shortfall")
        drawn = any_decision(p, rng)
        if drawn is not None:
            pools = {j: int(p.nodes.pool[drawn.placement[j][0].node]) for j in drawn.starts_in(Mode.ALLOCATED)}
            again, _ = as_wanted(p, frozenset(), pools, NOTHING)
            assert violations(p, again) == []
    assert followed > 10
    assert better >= 1


@pytest.mark.parametrize("family", ["mixed", "gang-heavy"])
def test_a_big_round_reaches_the_bound_of_shortfall_without_a_model(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the greedy had is at best the same."""
    reached = better = 0
    for seed, tiers in enumerate(without_models(monkeypatch, family, range(1, 9)), 1):
        p = compile_round(parse_round(generate_doc(GeneratorConfig(nodes=48, seed=seed, family=family)))).problem
        reached += tiers["shortfall"].best == tiers["shortfall"].bound
        better += tiers["shortfall"].best < worth(p, greedy(p), "shortfall")
    assert reached >= 4
    assert better >= 2


@pytest.mark.parametrize("family", ["mixed", "gang-heavy"])
def test_less_is_lost_where_queues_are_served_in_turn(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = range(1, 9)
    in_turn = [tiers["preemption"] for tiers in without_models(monkeypatch, family, seeds)]
    monkeypatch.setattr(relaxations.Relaxations, "_serve_in_order", lambda *_: iter(()))
    in_turn_alone = [tiers["preemption"] for tiers in without_models(monkeypatch, family, seeds)]
    monkeypatch.setattr(relaxations.Relaxations, "_serve_in_turn", lambda *_: False)
    as_ever = [tiers["preemption"] for tiers in without_models(monkeypatch, family, seeds)]
    assert sum(part.best == part.bound for part in in_turn) >= 3
    assert sum(part.best for part in in_turn_alone) < 0.9 * sum(part.best for part in as_ever)
    # The rows that hold where nobody is passed over come after that, and find more here, or prove more.
    assert sum(part.best for part in in_turn) <= sum(part.best for part in in_turn_alone)
    assert sum(part.bound or 0 for part in in_turn) > sum(part.bound or 0 for part in in_turn_alone)


def test_nobody_is_passed_over_where_queues_are_served_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cheaper node has room for the two behind the first one, who would cost more."""
    monkeypatch.setattr(relaxations, "FEW_NODES", 0)
    p = problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[
            Running("dear", budget="y", at="n1", gpus=8, lost_s=600),
            *(Running(f"cheap{i}", budget="y", at="n2", gpus=4, lost_s=60) for i in range(2)),
            Pending("first", budget="x", gpus=4, replicas=2),
            *(Pending(f"s{i}", budget="x", gpus=4) for i in range(2)),
        ],
        budgets=[Budget("x", entitled=16, claim=16), Budget("y")],
    )

    def in_turn(*_: object, **how: bool) -> tuple[Pooled, Run]:
        pooled = Pooled(p, "preemption", {"shortfall": 8})
        serve_in_turn(pooled, {}, **how)
        return pooled, solved(pooled)

    exact, offered = Pooled(p, "preemption", {"shortfall": 8}), list[Decision]()
    models: Any = SimpleNamespace(
        problem=p,
        hurry=lambda: False,
        left=lambda: 60.0,
        meter=lambda budget: lambda: budget,
        exactly_pooled=lambda *_: (exact, solved(exact)),
        pooled_in_turn=in_turn,
    )
    most = {"starvation": 99, "shortfall": 8}
    best: Any = SimpleNamespace(most=most.get, values={"inversion": (16,)}, offer=lambda d, *_: offered.append(d))
    relaxations.Relaxations(models, best, lambda *_: None).order(search.Goal("inversion", 2, 0), lambda: 60.0)
    assert [sorted(p.jobs.ids[j] for j in d.starts_in(Mode.ALLOCATED)) for d in offered] == [["first"]]
    assert inverted(p, offered[0]) == []
    offered.clear()
    monkeypatch.setattr(relaxations, "FEW_NODES", 2)  # a model is as quick
    relaxations.Relaxations(models, best, lambda *_: None).order(search.Goal("inversion", 2, 0), lambda: 60.0)
    assert offered == []


def test_passed_over_jobs_are_put_in_order_before_any_model_of_inversion() -> None:
    search_: Any = search.Search.__new__(search.Search)
    asked: list[object] = []
    search_.models = SimpleNamespace(
        problem=None, cancelled=lambda: False, whole=lambda: False, meter=lambda budget: lambda: budget
    )
    search_.best, search_._narrow = SimpleNamespace(decision="d", values={"inversion": (5,)}), []
    search_._put_in_order = lambda decision, goal: asked.append(decision)
    search_._relaxations = SimpleNamespace(order=lambda goal, left: None)
    search_._by_regions = lambda *_: None
    search_.minimise(search.Goal("inversion", 2, 0), 0, 1.0)
    assert asked == ["d"]
    search_.minimise(search.Goal("inversion", 2, 0), 5, 1.0)  # at its bound already
    assert asked == ["d"]


@pytest.mark.parametrize(("deterministic", "asked"), [(False, False), (True, True)])
def test_no_pass_is_begun_that_there_is_no_time_for(
    deterministic: bool, asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In deterministic mode the clock has no say."""
    passes: list[object] = []
    for module in (search, relaxations):
        monkeypatch.setattr(module, "FEW_NODES", 0)
    monkeypatch.setattr(relaxations, "as_wanted", lambda *args: (passes.append(args), as_wanted(*args))[1])
    monkeypatch.setattr(relaxations, "PASS_S", 1e6)
    document = generate_doc(GeneratorConfig(nodes=24, seed=1, family="gang-heavy"))
    document["options"] = {"time_limit": 60, "deterministic": deterministic, "deterministic_limit": 5, "workers": 1}
    solve_round(parse_round(document))
    assert bool(passes) is asked


def test_lost_work_is_bounded_in_whole_numbers_where_that_is_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the cheaper job would do; a whole one has to go."""
    monkeypatch.setattr(relaxations, "FEW_NODES", 0)
    p = problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[
            *(Running(f"r{i}", budget="y", at=f"n{i}", gpus=8, lost_s=i * HOUR) for i in (1, 2)),
            Pending("a", budget="x", gpus=4),
        ],
        budgets=[Budget("x", entitled=4), Budget("y")],
    )
    exact, whole = Pooled(p, "preemption", {"shortfall": 0}), 8 * HOUR
    run = solved(exact)
    assert run.bound == whole
    part = relaxed(Pooled(p, "preemption", {"shortfall": 0}).model, 60.0)
    assert part is not None
    assert part[0] < whole
    models: Any = SimpleNamespace(
        problem=p,
        hurry=lambda: False,
        left=lambda: 60.0,
        exactly_pooled=lambda *_: (exact, run),
        pooled_in_turn=lambda *_, **__: (exact, run),
    )
    monkeypatch.setattr(relaxations, "SPARING", (1.0,))
    best: Any = SimpleNamespace(
        most=lambda tier: 0, offer=lambda *_: [], values={"preemption": (2 * whole,)}, limits=[]
    )
    found = relaxations.Relaxations(models, best, lambda *_: None)
    assert list(found._spare(search.Goal("preemption", 3, 0), part[0], frozenset(), lambda: 60.0)) == [whole]
    best.values = {"preemption": (part[0],)}  # nothing is lost beyond the least there may be
    assert list(found._spare(search.Goal("preemption", 3, 0), part[0], frozenset(), lambda: 60.0)) == []


def test_near_its_bound_a_tier_with_slack_gets_no_further_pass_that_lost_work_may_need(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    p, offered = two_loans(), list[Decision]()
    monkeypatch.setattr(relaxations, "PASS_S", 1.0)
    wanted = {job_at(p, "z1"): 0, job_at(p, "x1"): 0}
    passes = {}
    for value, slack in ((104, 9), (106, 9), (104, 0)):
        for left in (3, 9):
            offered.clear()
            models: Any = SimpleNamespace(problem=p, hurry=lambda: False, left=lambda s=left: s * len(p.jobs))
            best: Any = SimpleNamespace(values={"shortfall": (value,)}, offer=lambda d, *_: offered.append(d))
            followed = relaxations.Relaxations(models, best, lambda *_: None)
            followed._place(search.Goal("shortfall", 1, 0, slack), frozenset(), wanted, NOTHING, 100)
            passes[value, slack, left] = len(offered)
    assert passes.pop((104, 9, 3)) == 1
    assert set(passes.values()) == {2}


def test_what_a_good_decision_passes_over_is_told_apart_from_the_first_model_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The relaxation's decisions, which pass somebody over, refine the partition before anything is solved."""
    asked: list[Decision] = []
    first: list[bool] = []
    for module in (search, relaxations):
        monkeypatch.setattr(module, "FEW_NODES", 0)
    place, current = relaxations.Relaxations._place, models_.Models.current

    def seen(self: Any, *args: Any, **how: Any) -> Any:
        out = place(self, *args, **how)
        asked[:] = self.passing
        return out

    def built(self: Any, tier: str, part: int) -> Any:
        if (tier, part) == ("preemption", 0) and asked:
            first.append(bool(self.partition.watched))
            asked.clear()
        return current(self, tier, part)

    monkeypatch.setattr(relaxations.Relaxations, "_place", seen)
    monkeypatch.setattr(models_.Models, "current", built)
    for seed in range(1, 9):
        asked.clear()
        document = generate_doc(GeneratorConfig(nodes=48, seed=seed, family="gang-heavy"))
        document["options"] = {"deterministic": True, "deterministic_limit": 5, "workers": 1}
        solve_round(parse_round(document))
    assert first
    assert all(first)
