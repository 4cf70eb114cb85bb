"""Rows that hold where nobody is passed over, in the relaxation without nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

import pytest

from builders import Budget, Node, Pending, Running, job_at, problem
from cpalloc.engine import solve_round
from cpalloc.generate import GeneratorConfig, generate_doc
from cpalloc.models.in_order import InOrder
from cpalloc.models.objectives.inversion import inverted
from cpalloc.models.pooled import Pooled
from cpalloc.models.possible import possible
from cpalloc.problem.compile import compile_round
from cpalloc.problem.problem import Decision, Problem
from cpalloc.schema import parse_round
from cpalloc.solver import models, relaxations, search
from cpalloc.solver.greedy import greedy
from cpalloc.solver.outcome import Run, Status
from cpalloc.solver.run import minimise
from cpalloc.solver.values import Values
from models.fixing import ONE_WORKER, any_decision
from models.test_in_turn import dear_and_cheap
from models.test_pooled import generated, odd
from reference.tiny_rounds import tiny_doc


def solved(pooled: Pooled) -> Run:
    run = minimise(pooled.model, pooled.objective, options=ONE_WORKER, limit_s=60.0)
    assert run.status is Status.OPTIMAL
    return run


def started(pooled: Pooled, run: Run) -> set[str]:
    return {pooled.problem.jobs.ids[j] for j in pooled.starts(run.values or ())}


def lent_to_y(jobs: Sequence[Pending], *, nodes: int = 3) -> Problem:
    """Nodes that y borrows, the first of them for next to nothing and the others dearly; x wants what it may have."""
    return problem(
        nodes=[Node(f"n{i}") for i in range(nodes)],
        jobs=[
            *(Running(f"r{i}", budget="y", at=f"n{i}", gpus=8, lost_s=600 if i else 60) for i in range(nodes)),
            *jobs,
        ],
        budgets=[Budget("x", entitled=8 * nodes, claim=8 * nodes), Budget("y")],
    )


# -- what they say ----------------------------------------------------------------------------------------------------


def test_a_start_brings_with_it_whoever_ranks_better_and_fits_in_its_place() -> None:
    # Eight GPUs are to be granted: the second job alone has them, on the cheap node; the first one fits in its place.
    p = lent_to_y([Pending("first", gpus=4), Pending("second", gpus=8)])
    pooled = Pooled(p, "preemption", {"shortfall": 16})
    run = solved(pooled)
    assert (started(pooled, run), run.objective) == ({"second"}, 8 * 60)
    pooled = Pooled(p, "preemption", {"shortfall": 16})
    InOrder(pooled)
    run = solved(pooled)
    assert (started(pooled, run), run.objective) == ({"first", "second"}, 8 * 660)


def test_of_those_alike_the_best_ranked_start() -> None:
    p = lent_to_y([Pending(f"p{i}", gpus=8, nodes={f"n{i}"} if i == 2 else None) for i in range(3)])
    pooled = Pooled(p, "preemption", {"shortfall": 16})
    InOrder(pooled)
    assert started(pooled, solved(pooled)) == {"p0"}  # p2 could have gone to its own node only


def test_a_gang_waits_only_behind_starts_that_leave_it_less_room_together() -> None:
    # A gang of two nodes fits in the place of no single start behind it, and in that of two of them.
    gang = [Pending("gang", gpus=8, replicas=2), *(Pending(f"s{i}", gpus=8) for i in range(3))]
    p = lent_to_y(gang)
    for short, who in ((16, {"s0"}), (8, {"gang"}), (0, {"gang", "s0"})):
        pooled = Pooled(p, "preemption", {"shortfall": short})
        InOrder(pooled)
        assert started(pooled, solved(pooled)) == who


def test_a_gang_bound_to_a_domain_waits_behind_whoever_may_lie_across_domains() -> None:
    gang = [Pending("gang", gpus=8, replicas=2, required="rack"), *(Pending(f"s{i}", gpus=8) for i in range(2))]
    p = problem(
        nodes=[Node("n1", within="r1"), Node("n2", within="r2"), Node("n3", within="r3")],
        levels=["rack"],
        jobs=gang,
        budgets=[Budget("x", entitled=16, claim=16)],
    )
    pooled = Pooled(p, "shortfall", {})
    InOrder(pooled)
    assert solved(pooled).objective == 0


def test_where_it_fits_in_some_pools_only_others_may_start_in_the_rest() -> None:
    # The first one may use a100 alone; whoever is behind it comes first in h100.
    p = dear_and_cheap(
        Pending("first", gpus=8, nodes={"a"}),
        Pending("either", gpus=8),
    )
    pooled = Pooled(p, "preemption", {"shortfall": 8})
    InOrder(pooled)
    run = solved(pooled)
    assert pooled.starts(run.values or ()) == {job_at(p, "either"): p.pool_names.index("h100")}


def test_whoever_may_borrow_may_be_lent_to_instead_on_slots_of_its_own() -> None:
    # Four GPUs are free and four are to be granted. The first one has them; where it may not, it is lent to, and the
    # second needs a node that is on loan.
    p = problem(
        nodes=[Node("n1"), Node("n2", gpus=4)],
        jobs=[
            Running("r", budget="y", at="n1", gpus=8, lost_s=60),
            Pending("first", gpus=4, funding="any"),
            Pending("second", gpus=4),
        ],
        budgets=[Budget("x", entitled=8, claim=8), Budget("y")],
    )
    pooled = Pooled(p, "preemption", {"shortfall": 4})
    order = InOrder(pooled)
    run = solved(pooled)
    assert (started(pooled, run), order.lent(run.values or ())) == ({"first"}, {})
    order.forbid([job_at(p, "second")])  # nobody is behind it
    pooled.model.add(pooled.begins[job_at(p, "first")] == 0)
    run = solved(pooled)
    assert (started(pooled, run), order.lent(run.values or ())) == ({"second"}, {job_at(p, "first"): 0})
    assert run.objective == 8 * 60


def test_who_is_forbidden_to_be_passed_over_starts_or_nobody_behind_it() -> None:
    # By its terms the first fits nowhere near the others, and by its own node it does.
    p = lent_to_y([Pending("first", gpus=8, nodes={"n2"}), *(Pending(f"s{i}", gpus=4) for i in range(2))])
    pooled = Pooled(p, "preemption", {"shortfall": 16})
    order = InOrder(pooled)
    assert started(pooled, solved(pooled)) == {"s0", "s1"}
    order.forbid([job_at(p, "first")])
    assert started(pooled, solved(pooled)) == {"first"}


# -- never above any decision that passes nobody over -----------------------------------------------------------------


def tiny() -> Iterator[Problem]:
    for seed in range(150):
        yield compile_round(parse_round(tiny_doc(seed))).problem


@pytest.mark.parametrize("rounds", [tiny, generated, odd])
def test_no_decision_that_passes_nobody_over_loses_less(rounds: Callable[[], Iterator[Problem]]) -> None:
    rng, asked, sharper, tight = Random("in order"), 0, 0, 0
    for p in rounds():
        drawn: list[Decision | None] = [greedy(p), *(any_decision(p, rng) for _ in range(6))]
        for decision in drawn:
            if decision is None or inverted(p, decision):
                continue
            values = Values(p, decision)
            # With more shortfall allowed, whom to start is open to whoever costs least.
            more_short = rng.choice((0, 4, 16, 64))
            limits = {"starvation": 4 * more_short + values["starvation"][0]}
            limits["shortfall"] = more_short + values["shortfall"][0]
            for can in (None, possible(p, inversion=0)):
                free, bound = Pooled(p, "preemption", limits, can), Pooled(p, "preemption", limits, can)
                InOrder(bound)
                least, more = solved(free).objective or 0, solved(bound).objective or 0
                assert least <= more <= values["preemption"][0]
                asked += 1
                sharper += least < more
                tight += 0 < more == values["preemption"][0]
    assert asked >= 20
    assert tight + sharper >= 1


@pytest.mark.parametrize("knobs", [{}, {"odd_sizes": 0.5}, {"cpu_bound": 0.5}, {"gpu_types": ("h100", "a100", "b200")}])
def test_the_optimum_is_worth_no_less(knobs: dict[str, Any]) -> None:
    proved = exact = 0
    for seed, family in ((seed, family) for seed in range(4) for family in ("mixed", "gang-heavy")):
        document = generate_doc(GeneratorConfig(nodes=16, seed=seed, family=family, required_topology=0.4, **knobs))
        document["options"] = {"deterministic": True, "deterministic_limit": 5, "workers": 1}
        answer = solve_round(round_ := parse_round(document))
        tiers = {tier.name: tier.parts[0] for tier in answer.solution.tiers}
        if tiers["inversion"].limit or tiers["preemption"].best != tiers["preemption"].bound:
            continue
        p = compile_round(round_).problem
        limits = {name: tiers[name].limit for name in ("starvation", "shortfall")}
        free, bound = (Pooled(p, "preemption", limits, possible(p, inversion=0)) for _ in range(2))
        InOrder(bound)
        least, more = solved(free).objective or 0, solved(bound).objective or 0
        assert least <= more <= tiers["preemption"].best
        proved += 1
        exact += more == tiers["preemption"].best
    assert proved >= 4
    assert exact >= 2


def test_solving_uses_it_only_where_nobody_may_be_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    for module in (search, relaxations):
        monkeypatch.setattr(module, "FEW_NODES", 0)

    class Watched(InOrder):
        def __init__(self, pooled: Pooled) -> None:
            asked.append(True)
            super().__init__(pooled)

    monkeypatch.setattr(models, "InOrder", Watched)

    for tiers in (None, ["starvation", "shortfall", "preemption", "delay", "idle"]):
        asked.clear()
        for seed in range(3):
            document = generate_doc(GeneratorConfig(nodes=24, seed=seed, family="gang-heavy"))
            document["options"] = {"deterministic": True, "deterministic_limit": 2, "workers": 1}
            if tiers:
                document.setdefault("policy", {})["tiers"] = tiers
            solve_round(parse_round(document))
        assert bool(asked) == (tiers is None)
