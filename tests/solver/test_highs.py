"""HiGHS on the same model: it says what CP-SAT says, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from threading import Event, Thread
from types import SimpleNamespace

import highspy
import numpy as np
import pytest
from ortools.sat.python.cp_model import CpModel

import cpalloc.solver.highs as module
from cpalloc.models.objectives import OBJECTIVES
from cpalloc.models.partition import Partition
from cpalloc.models.round import build
from cpalloc.models.variables import Linear
from cpalloc.problem.compile import compile_round
from cpalloc.problem.problem import JobState, Problem
from cpalloc.schema import parse_round
from cpalloc.solver.highs import Highs, _floor
from cpalloc.solver.outcome import Run, Status
from cpalloc.solver.run import minimise
from models.fixing import ONE_WORKER
from reference.tiny_rounds import tiny_doc

GENEROUS_S = 60.0

NOTHING = Run(Status.UNKNOWN, source="highs")


def solved(model: CpModel) -> Run:
    return Highs(model, GENEROUS_S, 0.0).solve()


def knapsack() -> CpModel:
    """Worth least at a = 1, b = 1: 1 - 4 - 3 = -6, within 2a + 3b + 4c <= 5."""
    model = CpModel()
    a, b, c = (model.new_bool_var(name) for name in "abc")
    model.add(2 * a + 3 * b + 4 * c <= 5)
    model.minimize(1 - 4 * a - 3 * b - 5 * c)
    return model


def table() -> CpModel:
    """y is 4, -7 or 3, whichever x says."""
    model = CpModel()
    x, y = model.new_int_var(0, 2, "x"), model.new_int_var(-9, 9, "y")
    model.add_element(x, [4, -7, 3], y)
    model.minimize(y)
    return model


def impossible() -> CpModel:
    """2x = 3 with x an integer: the relaxation has a solution."""
    model = CpModel()
    x = model.new_int_var(0, 3, "x")
    model.add(2 * x == 3)
    model.minimize(x)
    return model


def hard() -> CpModel:
    """Four market splits at once (Cornuejols, Dawande 1999): hopeless for branch and bound."""
    rng, model = Random(1), CpModel()
    chosen, slack = [model.new_bool_var("") for _ in range(40)], []
    for _ in range(4):
        factors = [rng.randint(0, 99) for _ in chosen]
        slack += [model.new_int_var(0, 9999, "") for _ in range(2)]
        model.add(sum(f * v for f, v in zip(factors, chosen, strict=True)) + slack[-1] - slack[-2] == sum(factors) // 2)
    model.minimize(sum(slack))
    return model


def fix(model: CpModel, run: Run) -> None:
    """Leave nothing but the solution of a run."""
    for var, value in enumerate(run.values or ()):
        model.add(model.get_int_var_from_proto_index(var) == value)


def claims(run: Run) -> Run:
    """What a run says, without the seconds it took."""
    return replace(run, seconds=0.0)


# -- what it says -----------------------------------------------------------------------------------------------------


def test_the_optimum_with_the_values_of_the_models_own_variables() -> None:
    assert claims(solved(knapsack())) == Run(Status.OPTIMAL, [1, 1, 0], -6, -6, "highs")
    assert claims(solved(table())) == Run(Status.OPTIMAL, [1, -7], -7, -7, "highs")


@pytest.mark.parametrize(("most", "objective"), [(0, -6), (-6, -6), (-7, None)])
def test_what_is_known_of_the_optimum_changes_nothing_if_it_is_true(most: int, objective: int | None) -> None:
    run = Highs(knapsack(), GENEROUS_S, 0.0, most=most).solve()
    assert (run.objective, run.status) == (objective, Status.INFEASIBLE if objective is None else Status.OPTIMAL)


def test_a_model_without_an_objective_or_a_row() -> None:
    model = CpModel()
    model.new_int_var(2, 2, "x")
    model.minimize(0)
    assert claims(solved(model)) == Run(Status.OPTIMAL, [2], 0, 0, "highs")


def test_an_infeasible_model_has_no_solution_and_no_bound() -> None:
    assert claims(solved(impossible())) == Run(Status.INFEASIBLE, source="highs")
    model = CpModel()
    x = model.new_int_var(0, 3, "x")
    model.add(x >= 4)
    model.minimize(x)
    assert claims(solved(model)) == Run(Status.INFEASIBLE, source="highs")


def test_it_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    solved(knapsack())
    solved(impossible())
    assert tuple(capfd.readouterr()) == ("", "")


# -- what it does not say ---------------------------------------------------------------------------------------------


def test_a_model_that_no_rows_stand_for_is_left_to_others() -> None:
    model = knapsack()
    x, y = model.new_int_var(0, 3, "x"), model.new_int_var(0, 9, "y")
    model.add_multiplication_equality(y, [x, x])
    assert claims(solved(model)) == NOTHING


@pytest.mark.parametrize("step", ["passModel", "run"])
def test_a_model_that_it_refuses_is_left_to_others(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(highspy.Highs, step, lambda *_: highspy.HighsStatus.kError)
    assert claims(solved(knapsack())) == NOTHING


def told(
    monkeypatch: pytest.MonkeyPatch, x: Sequence[float], *, valid: bool = True, model: CpModel | None = None
) -> Run:
    """What is made of it if HiGHS says that x solves the knapsack, or another model."""
    answer = SimpleNamespace(value_valid=valid, col_value=x)
    monkeypatch.setattr(highspy.Highs, "getSolution", lambda _: answer)
    return claims(solved(model or knapsack()))


@pytest.mark.parametrize("x", [[1, 1, 1], [0, 1.6, 0], [0, 0, -1]])
def test_a_solution_that_breaks_the_model_is_not_believed(x: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    # 2 + 3 + 4 > 5; 1.6 is 2, and beyond the domain, as is -1. The bound stands.
    assert told(monkeypatch, x) == Run(Status.UNKNOWN, bound=-6, source="highs")


def test_a_solution_that_is_none_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(monkeypatch, [1, 1, 0], valid=False) == Run(Status.UNKNOWN, bound=-6, source="highs")


def test_a_solution_is_worth_what_it_is_worth(monkeypatch: pytest.MonkeyPatch) -> None:
    # Rounding is undone; the optimum is proved only by a solution that meets the bound of -6: 1 - 5 is not.
    noisy = [0.9999999, 1.0000001, 1e-9]
    assert told(monkeypatch, noisy) == Run(Status.OPTIMAL, [1, 1, 0], -6, -6, "highs")
    assert told(monkeypatch, [0, 0, 1]) == Run(Status.FEASIBLE, [0, 0, 1], -4, -6, "highs")
    assert told(monkeypatch, [2, 3, 0, 0, 1], model=table()) == Run(Status.FEASIBLE, [2, 3], 3, -7, "highs")
    assert told(monkeypatch, [2, 4, 0, 0, 1], model=table()) == Run(Status.UNKNOWN, bound=-7, source="highs")


@pytest.mark.parametrize(
    ("bound", "proved"),
    [
        *((4.99999, 5), (5.0, 5), (5.00001, 5), (5.2, 6), (5.999, 6), (0.0, 0), (1e-9, 0), (-1e-9, 0)),
        *((-5.00001, -5), (-4.99999, -5), (-5.2, -5)),
        *((float("inf"), None), (float("-inf"), None), (float("nan"), None), (2.0**53, None), (-1e300, None)),
        # Noise of one in 10^9 is 100 here: 10^11 + 60 may be 10^11, and 10^11 + 150 proves 50 of it.
        *((1e11 + 60, 10**11 - 40), (1e11 + 150, 10**11 + 50), (-1e11 - 60, -(10**11) - 160)),
    ],
)
def test_bounds_are_taken_down_by_what_rounding_could_have_added(bound: float, proved: int | None) -> None:
    assert _floor(bound) == proved


# -- told to stop -----------------------------------------------------------------------------------------------------


def test_told_to_stop_before_it_begins_it_never_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "mip_of", lambda _: pytest.fail("it has begun"))
    for head_start_s in (0.0, GENEROUS_S):
        search = Highs(knapsack(), GENEROUS_S, head_start_s)
        search.stop()
        search.stop()
        assert claims(search.solve()) == NOTHING


def test_told_to_stop_while_others_have_their_head_start() -> None:
    search, runs = Highs(knapsack(), GENEROUS_S, GENEROUS_S), list[Run]()
    thread = Thread(target=lambda: runs.append(search.solve()))
    thread.start()
    search.stop()
    thread.join(GENEROUS_S / 2)
    assert not thread.is_alive()
    assert claims(runs[0]) == NOTHING


@pytest.mark.parametrize("step", ["mip_of", "_lp"])
def test_told_to_stop_while_the_model_is_stated(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    search = Highs(hard(), GENEROUS_S, 0.0)
    original: Callable[[object], object] = getattr(module, step)

    def interrupted(what: object) -> object:
        search.stop()
        return original(what)

    monkeypatch.setattr(module, step, interrupted)
    assert claims(search.solve()) == NOTHING


def test_told_to_stop_in_the_middle_it_claims_no_more_than_it_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    model, begun, runs = hard(), Event(), list[Run]()
    original = highspy.Highs.passModel

    def passed(*args: object) -> object:
        begun.set()
        return original(*args)

    monkeypatch.setattr(highspy.Highs, "passModel", passed)
    search = Highs(model, GENEROUS_S, 0.0)
    thread = Thread(target=lambda: runs.append(search.solve()))
    thread.start()
    begun.wait(GENEROUS_S)
    while thread.is_alive():
        thread.join(0.2)
        search.stop()
    (run,) = runs
    assert run.status in (Status.FEASIBLE, Status.UNKNOWN)
    assert run.seconds < GENEROUS_S / 2
    if run.values is not None:
        assert run.bound is None or run.bound <= sum(run.values[40:]) == run.objective
        fix(model, run)
        assert minimise(model, 0, options=ONE_WORKER, limit_s=60.0).status is Status.OPTIMAL


def test_no_time_is_no_answer() -> None:
    for limit_s in (0.0, -1.0):
        assert claims(Highs(knapsack(), limit_s, GENEROUS_S).solve()) == NOTHING


# -- against CP-SAT ---------------------------------------------------------------------------------------------------


def finely(p: Problem) -> Partition:
    """A model with conditional rows, clauses and tables of every sort."""
    waiting = frozenset(np.flatnonzero(p.jobs.state == JobState.PENDING).tolist())
    leaves = frozenset(range(len(p.budgets.leaf_vertex)))
    return Partition(
        leaves=leaves, watched=waiting, apart=waiting, single=waiting, holds=p.holds, hard=len(p.holds), split=True
    )


def both(model: CpModel, expression: Linear) -> tuple[Run, Run]:
    alone = minimise(model, expression, options=ONE_WORKER, limit_s=60.0)
    return alone, solved(model)


ORDERS = (
    ("starvation", "idle", "lend"),
    ("shortfall", "preemption", "idle", "locality"),
    ("idle", "locality", "lend"),
    ("fragmentation", "idle", "inversion", "preemption"),
)
"""Tiers one after the other, each within the optima of those before."""


def test_the_optima_of_the_tiers_are_the_same() -> None:
    seen: dict[str, set[int]] = {tier: set() for order in ORDERS for tier in order}
    for seed in range(60):
        p = compile_round(parse_round(tiny_doc(seed))).problem
        ctx = build(p, finely(p))
        for tier in ORDERS[seed % 4]:
            for expression in ctx.term(OBJECTIVES[tier]):
                alone, run = both(ctx.model, expression)
                assert run.status is alone.status is Status.OPTIMAL, (seed, tier)
                assert run.bound is not None
                assert run.objective == run.bound == alone.objective, (seed, tier)
                seen[tier].add(run.bound)
                if not isinstance(expression, int):
                    ctx.model.add(expression <= run.bound)
    assert min(len(values) for values in seen.values()) >= 2, seen


def test_what_is_out_of_reach_is_so_for_both() -> None:
    found = 0
    for seed in range(30):
        p = compile_round(parse_round(tiny_doc(seed))).problem
        ctx = build(p, finely(p))
        expression = ctx.term(OBJECTIVES["shortfall"])[0]
        best = both(ctx.model, expression)[0].objective
        assert best is not None
        if not isinstance(expression, int):
            ctx.model.add(expression <= best - 1)
            alone, run = both(ctx.model, expression)
            assert run.status is alone.status is Status.INFEASIBLE, seed
            found += best > 0
    assert found >= 5


def test_whatever_it_finds_is_a_solution_of_the_model() -> None:
    for seed in range(20):
        p = compile_round(parse_round(tiny_doc(seed))).problem
        ctx = build(p, finely(p))
        expression = ctx.term(OBJECTIVES["shortfall"])[0] - sum(ctx.y.values())
        _, run = both(ctx.model, expression)
        assert run.values is not None
        assert len(run.values) == len(ctx.model.proto.variables)
        fix(ctx.model, run)
        again = minimise(ctx.model, expression, options=ONE_WORKER, limit_s=60.0)
        assert (again.status, again.objective) == (Status.OPTIMAL, run.objective)
