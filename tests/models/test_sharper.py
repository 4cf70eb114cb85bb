"""What makes models sharper or smaller takes no decision away and never says more of one than it is worth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

import highspy
import numpy as np
import pytest
from ortools.sat.python.cp_model import LinearExpr

from builders import HOUR, MINUTE, NOW_US, Budget, Node, Pending, Running, decide, job_at, problem
from cpalloc.metrics.fragmentation import tier_value
from cpalloc.metrics.occupancy import node_use
from cpalloc.metrics.reservations import reserve
from cpalloc.models.earliest import (
    MAX_FINE_STEPS,
    MAX_STEPS,
    Gang,
    Held,
    Step,
    cost_of_waiting,
    most_steps,
    steps,
)
from cpalloc.models.leaving import RoomAt
from cpalloc.models.objectives import OBJECTIVES, delay
from cpalloc.models.objectives.fragmentation import late_shapes, protection_ends
from cpalloc.models.partition import Partition
from cpalloc.models.round import build
from cpalloc.models.variables import ModelContext
from cpalloc.problem.problem import US, Decision, JobState, Mode, Problem, Shape, status_quo
from cpalloc.solver.mip import mip_of
from cpalloc.solver.outcome import Status
from cpalloc.solver.run import minimise
from models.fixing import ONE_WORKER, any_decision, counted, fixed, least

SPLIT = Partition(split=True)
FOREVER = ((0, 10**9),)
MIX = (Shape(1, 1, 0, 1), Shape(1, 4, 0, 2), Shape(2, 2, 1, 1), Shape(2, 4, 0, 1))


def small(rng: Random) -> Problem:
    """Two racks of small nodes; protected and borrowed work on them; short and long jobs, some that prefer a rack."""
    nodes = [Node(f"n{i}", gpus=4, within=f"r{i % 2}") for i in range(rng.randint(2, 4))]
    jobs: list[Pending] = []
    for node in nodes:
        if rng.random() < 0.6:
            mode, left = rng.choice(["allocated", "borrowed"]), rng.randint(1, 5) * HOUR
            jobs.append(Running(f"r-{node.name}", at=node.name, gpus=rng.randint(1, 4), mode=mode, protected_s=left))
    for i in range(rng.randint(3, 7)):
        jobs.append(
            Pending(
                f"s{i}",
                gpus=rng.choice([1, 2, 2, 4]),
                replicas=rng.choice([1, 1, 2, 3]),
                min_runtime_s=rng.choice([HOUR, 2 * HOUR, 4 * HOUR, 7 * HOUR]),
                funding=rng.choice(["allocated", "allocated", "borrowed"]),
                preferred=rng.choice(["", "rack"]),
                required=rng.choice(["cluster", "cluster", "cluster", "rack", "node"]),
            )
        )
    return problem(nodes=nodes, jobs=jobs, levels=["rack"], mix=MIX)


def drawn(seed: str, rounds: int) -> Iterator[tuple[Problem, Decision]]:
    rng = Random(seed)
    for _ in range(rounds):
        p = small(rng)
        yield from ((p, d) for d in (any_decision(p, rng) for _ in range(4)) if d is not None)


def timed(p: Problem, d: Decision) -> Partition:
    """With the times to place stated that a decision has made later."""
    late = late_shapes(p, d)
    return replace(SPLIT, timed=late, instants=protection_ends(p, late), fine=True)


# -- blocked jobs that start ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("funding", ["allocated", "borrowed", "any"])
def test_those_served_start_in_whatever_mode(funding: str) -> None:
    p = problem(nodes=[Node("n1"), Node("n2")], jobs=[Pending("gang", gpus=8, funding=funding), Pending("a", gpus=8)])
    gang, a = {"gang": "n2"}, {"a": "n1"}
    waits = [status_quo(p), decide(p, start=a)]
    one, both = decide(p, start=gang), decide(p, start=gang | a)
    if funding != "allocated":
        one, both = decide(p, borrow=gang), decide(p, borrow=gang, start=a)
    for served, infeasible in ((set[str](), list[Decision]()), ({"gang"}, waits), ({"gang", "a"}, [*waits, one])):
        told = Partition(served=frozenset(job_at(p, name) for name in served))
        for d in (*waits, one, both):
            status = least(fixed(p, told, d), "shortfall").status
            assert status is (Status.INFEASIBLE if any(d is x for x in infeasible) else Status.OPTIMAL)


# -- what is free at most ---------------------------------------------------------------------------------------------


def test_nothing_free_is_nothing_stranded() -> None:
    seen = late = 0
    for p, d in drawn("full", 100):
        if node_use(p, d).free.any():
            continue
        said = counted(p, replace(timed(p, d), free=0), d, "fragmentation")
        assert said == tier_value(p, d)
        assert said == counted(p, timed(p, d), d, "fragmentation")
        seen += 1
        late += bool(late_shapes(p, d))
    assert min(seen, late) >= 20


def test_the_stranded_part_is_left_out_only_where_nothing_may_be_free() -> None:
    p = problem(nodes=[Node("n1")], jobs=[Pending("a", gpus=7)], mix=[Shape(1, 8, 0, 1)])
    d = decide(p, start={"a": "n1"})
    said = [counted(p, replace(timed(p, d), free=free), d, "fragmentation") for free in (0, 1, 8, -1)]
    assert said == [8 * HOUR, 8 * HOUR + HOUR, 8 * HOUR + HOUR, 8 * HOUR + HOUR]
    ctx = fixed(p, replace(SPLIT, free=0), d)
    before = len(ctx.model.proto.variables)
    ctx.term(OBJECTIVES["fragmentation"])
    assert len(ctx.model.proto.variables) == before


@pytest.mark.parametrize("split", [False, True])
def test_a_limit_on_what_is_free_bounds_slots_but_none_that_a_decision_within_it_has(split: bool) -> None:
    rng, seen, below, stranded = Random("limit"), 0, 0, 0
    for p, d in drawn("free", 40):
        free = int(node_use(p, d).free.sum())
        limit = free + rng.choice([0, 0, 1, 2])
        if not free:
            continue
        told = replace(timed(p, d), split=split, free=limit)
        ctx = fixed(p, told, d)
        run = least(ctx, "fragmentation")
        assert run.status is Status.OPTIMAL
        assert run.bound is not None
        assert run.bound <= tier_value(p, d)
        assert run.bound == counted(p, replace(told, free=-1), d, "fragmentation")
        for var in ctx.model.proto.variables:
            if str(var.name).startswith("free"):
                most = list(var.domain)[-1]
                assert most <= limit // int(str(var.name).split(",")[1])
                below += most < 4
        seen += 1
        stranded += run.bound > OBJECTIVES["fragmentation"].floor(p)[0]
    assert min(seen, below, stranded) >= 50


# -- instants that matter ---------------------------------------------------------------------------------------------


def test_instants_reach_as_far_as_the_longest_second_that_is_timed() -> None:
    runs = Running("r", at="n1", gpus=8, mode="allocated", protected_s=90 * MINUTE)
    jobs = [runs, *(Pending(f"j{h}", min_runtime_s=h * HOUR) for h in (1, 2, 3, 4))]
    p = problem(nodes=[Node("n1"), Node("n2")], jobs=jobs, mix=MIX)

    def hours(*timed: tuple[int, int]) -> list[float]:
        return [(t - NOW_US) / US / HOUR for t in protection_ends(p, timed)]

    assert hours(*FOREVER) == [0, 1, 1.5, 2, 3, 4]
    assert hours((0, 2 * HOUR)) == hours((0, MINUTE), (2, 2 * HOUR)) == [0, 1, 1.5, 2]
    assert hours((0, 2 * HOUR - 1)) == [0, 1, 1.5]
    assert hours() == [0]


def test_what_lies_beyond_is_of_no_use() -> None:
    rng, seen, fewer, shorter = Random("beyond"), 0, 0, 0
    for p, d in drawn("instants", 40):
        late = dict(late_shapes(p, d))
        if not late:
            continue
        # As of better decisions, where what waits longer than that costs no more, and of worse ones.
        less = {i: rng.randint(1, seconds // MINUTE) * MINUTE for i, seconds in late.items()}
        more = {i: seconds + rng.randint(1, 3) * HOUR for i, seconds in late.items()}
        for times in (less, more):
            told = tuple(sorted(times.items()))
            near, all_ = protection_ends(p, told), protection_ends(p, FOREVER)
            said, same = (
                counted(p, replace(SPLIT, timed=told, instants=instants, fine=True), d, "fragmentation")
                for instants in (near, all_)
            )
            assert said is not None
            assert said == same
            assert said <= tier_value(p, d)
            seen += 1
            fewer += len(near) < len(all_)
            shorter += said < tier_value(p, d)
    assert min(seen, fewer, shorter) >= 20


# -- how many instants ------------------------------------------------------------------------------------------------


def cheapest(choices: list[tuple[int, int]], from_us: int, most: int) -> int:
    """Cost of a gang that can be held from an instant on."""
    return min((cost for at_us, cost in choices if at_us >= from_us), default=most)


def test_fewer_choices_never_cost_more_and_enough_of_them_cost_the_same() -> None:
    rng, thinned, dearer = Random("steps"), 0, 0
    for _ in range(300):
        instants = [NOW_US + rng.randint(0, 60) * MINUTE * US for _ in range(rng.randint(1, 50))]
        size = rng.randint(1, 9)
        least_, most = size * rng.randint(0, 20) * 60, size * rng.randint(20, 70) * 60
        number = rng.randint(1, 20)

        def cost_of(at_us: int, size: int = size) -> int:
            return size * max(0, at_us - NOW_US) // US

        some, all_ = (
            [(s.at_us, s.cost) for s in steps(instants, cost_of, least_, most, n)] for n in (number, len(instants))
        )
        assert len(some) <= number
        for pair in (some, all_):
            assert pair == sorted(pair)
            assert all(at_us in instants and least_ <= cost < most for at_us, cost in pair)
        behind = {min((t for t in instants if t > at_us), default=0) for at_us, _ in some}
        for from_us in sorted(set(instants)):
            exact = max(least_, cost_of(from_us)) if cost_of(from_us) < most else most
            assert from_us not in behind or cheapest(some, from_us, most) == exact
            assert cheapest(all_, from_us, most) == exact
            assert cheapest(some, from_us, most) <= exact
            dearer += cheapest(some, from_us, most) < exact
        thinned += len(some) < len(all_)
    assert min(thinned, dearer) >= 100


def test_finer_choices_show_what_thinned_ones_hide() -> None:
    jobs = [Pending("gang", gpus=8)]
    jobs += [Pending(f"j{i:02}", min_runtime_s=i * MINUTE, timeout_s=i * MINUTE) for i in range(1, 3 * MAX_STEPS)]
    p = problem(nodes=[Node("n1")], jobs=jobs, mix=[Shape(1, 8, 0, 1)])
    time = replace(SPLIT, timed=((0, 8 * HOUR),), instants=protection_ends(p, FOREVER))
    wait = replace(SPLIT, blocked=((0, 8 * 8 * HOUR),), instants=delay.instants(p), by_release=True)
    hidden = {"fragmentation": 0, "delay": 0}
    for job in p.jobs.ids[1::3]:
        d = decide(p, start={job: "n1"})
        holds, blocked = reserve(p, d, jobs=(0,))
        waits = OBJECTIVES["delay"].evaluate(p, replace(d, reservations=holds, blocked=blocked))[0]
        for tier, told, value in (("fragmentation", time, tier_value(p, d)), ("delay", wait, waits)):
            coarse, fine = (counted(p, replace(told, fine=fine), d, tier) for fine in (False, True))
            assert coarse is not None
            assert coarse <= value == fine
            hidden[tier] += coarse < value
    assert min(hidden.values()) >= 8
    assert (most_steps(Partition()), most_steps(Partition(fine=True))) == (MAX_STEPS, MAX_FINE_STEPS)


# -- choices of instants, in fractions ---------------------------------------------------------------------------------


def relaxed(ctx: ModelContext, objective: LinearExpr) -> float:
    """The optimum of the linear relaxation."""
    ctx.model.minimize(objective)
    mip, lp, highs = mip_of(ctx.model), highspy.HighsLp(), highspy.Highs()
    highs.setOptionValue("output_flag", False)
    lp.num_col_, lp.num_row_ = len(mip.low), len(mip.least)
    lp.col_cost_, lp.offset_ = mip.cost.astype(float), float(mip.offset)
    lp.col_lower_, lp.col_upper_, lp.row_lower_, lp.row_upper_ = mip.low, mip.high, mip.least, mip.most
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = mip.start, mip.column, mip.factor.astype(float)
    highs.passModel(lp)
    highs.run()
    assert highs.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return float(highs.getInfo().objective_function_value)


def weighed(racks: Sequence[str], pools: Sequence[str] = ()) -> tuple[ModelContext, LinearExpr, list[Held]]:
    """Two nodes a rack. A start takes a node of each for 2 h, a gang of two nodes in a rack has to wait for it then:
    0 now, 1 in an hour, 10 in two. To leave the start out costs 4."""
    names = [f"{rack}{i}" for rack in racks for i in (1, 2)]
    pool = dict(zip(racks, pools or ["h100"] * len(racks), strict=True))
    p = problem(
        nodes=[Node(name, within=name[0], pool=pool[name[0]]) for name in names],
        jobs=[
            Pending(f"s-{rack}", gpus=8, min_runtime_s=2 * HOUR, nodes=[f"{rack}1", f"{rack}2"], budget=rack)
            for rack in racks
        ],
        budgets=[Budget(rack) for rack in racks],
        levels=["rack"],
    )
    instants = tuple(NOW_US + h * HOUR * US for h in range(3))
    ctx = build(p, replace(SPLIT, instants=instants))
    domains = [np.array([names.index(f"{rack}1"), names.index(f"{rack}2")]) for rack in racks]
    choices = [Step(at_us, cost) for at_us, cost in zip(instants, (0, 1, 10), strict=True)]
    choice = cost_of_waiting(ctx, Gang("g", 2, 8, domains), choices, 100, RoomAt(ctx), by_pool=bool(pools))
    started = [ctx.y[j, Mode.ALLOCATED] for j in range(len(racks))]
    for y in started[1:]:
        ctx.model.add(y == started[0])
    return ctx, choice.cost + 4 * (1 - started[0]), list(choice.held)


@pytest.mark.parametrize(("racks", "pools"), [("a", ()), ("a", ("p",)), ("ab", ()), ("ab", ("p", "q"))])
def test_early_choices_and_late_ones_do_not_mix_in_fractions(racks: str, pools: Sequence[str]) -> None:
    # With the start a rack has one slot of two until it ends: half a gang can be held now or in an hour, not half now
    # and the other half in an hour for 1/2. So 4 without the start, or half of 10 with it: as dear as in whole numbers.
    ctx, objective, held = weighed(racks, pools)
    # In an hour there is what there is now: that is worth waiting for only beside other gangs.
    assert {h.at_us for h in held} == {NOW_US + h * HOUR * US for h in ((0, 1, 2) if pools else (0, 2))}
    assert minimise(ctx.model, objective, options=ONE_WORKER, limit_s=60.0).objective == 4
    if len(racks) == 1:
        assert relaxed(ctx, objective) == pytest.approx(4)
    ctx.model.add(ctx.y[0, Mode.ALLOCATED] == 1)
    run = minimise(ctx.model, objective, options=ONE_WORKER, limit_s=60.0)
    assert (run.status, run.objective) == (Status.OPTIMAL, 10)
    if len(racks) == 1:
        assert relaxed(ctx, objective) == pytest.approx(5)  # half now and half in 2 h


# -- locality ---------------------------------------------------------------------------------------------------------


def test_starts_told_apart_span_in_the_model_what_they_span() -> None:
    tier, spanning, left, borrowed = OBJECTIVES["locality"], 0, 0, 0
    for p, d in drawn("locality", 50):
        single = frozenset(np.flatnonzero((p.jobs.state == JobState.PENDING) & (p.jobs.preferred_level >= 0)).tolist())
        for split in (False, True):
            told = Partition(single=single, split=split)
            values = tuple(least(fixed(p, told, d), "locality", part).bound for part in (0, 1))
            assert values == tier.evaluate(p, d)
        spanning += values[0] != 0
        left += values[1] != 0
        borrowed += any(Mode(int(d.mode[j])) is Mode.BORROWED for j in single & d.placement.keys())
    assert min(spanning, left, borrowed) >= 15
