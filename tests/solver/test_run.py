"""Who solves a model, who stops whom, and which of several answers counts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count, permutations
from random import Random
from threading import Event, Lock
from typing import Any

import pytest
from ortools.sat.python.cp_model import CpModel, CpSolver

import cpalloc.solver.run as module
from cpalloc.errors import ModelInvalid
from cpalloc.models.objectives import OBJECTIVES
from cpalloc.models.round import build
from cpalloc.problem.compile import compile_round
from cpalloc.problem.problem import Options
from cpalloc.schema import parse_round
from cpalloc.solver.cp_sat import CpSat, _floor, parameters
from cpalloc.solver.highs import Highs
from cpalloc.solver.outcome import Run, Status
from cpalloc.solver.run import _best, _race, minimise
from models.fixing import ONE_WORKER, told_apart
from reference.tiny_rounds import tiny_doc

OPTIMAL, FEASIBLE, INFEASIBLE, UNKNOWN = Status.OPTIMAL, Status.FEASIBLE, Status.INFEASIBLE, Status.UNKNOWN

GENEROUS_S = 60.0


def workers(number: int, *, deterministic: bool = False) -> Options:
    return Options(workers=number, deterministic=deterministic, deterministic_limit=100.0)


# -- which answer counts ----------------------------------------------------------------------------------------------


def best(*runs: Run) -> Run:
    """The answer that counts, whatever the order."""
    answers = [_best(order) for order in permutations(runs)]
    assert all(answer == answers[0] for answer in answers)
    return answers[0]


def test_what_is_proved_counts() -> None:
    proved = Run(OPTIMAL, [3], 3, 3, "highs", 2.0)
    assert best(proved, Run(FEASIBLE, [4], 4, 1), Run(UNKNOWN, bound=2)) == proved
    nothing = Run(INFEASIBLE, source="highs", seconds=1.0)
    assert best(nothing, Run(UNKNOWN, bound=2)) == nothing


@pytest.mark.parametrize("found", [Run(OPTIMAL, [3], 3, 3), Run(FEASIBLE, [3], 3, 1)])
def test_nobody_who_finds_nothing_is_believed_against_a_solution(found: Run) -> None:
    assert best(Run(INFEASIBLE, source="highs"), found, Run(UNKNOWN)) == found


def test_the_better_solution_with_the_better_bound_and_who_proved_it() -> None:
    for shift in (-20, -5, -2, 0, 7):
        better, worse = (
            Run(FEASIBLE, [5], 5 + shift, 1 + shift, "a", 1.0),
            Run(FEASIBLE, [6], 6 + shift, 2 + shift, "b"),
        )
        assert best(better, worse) == Run(FEASIBLE, [5], 5 + shift, 2 + shift, "b", 1.0)
        assert best(worse, better, Run(UNKNOWN, bound=3 + shift, source="c")) == Run(
            FEASIBLE, [5], 5 + shift, 3 + shift, "c", 1.0
        )


def test_a_solution_counts_more_than_none_and_a_bound_than_no_bound() -> None:
    for worth in (-3, 0, 3):
        found = Run(FEASIBLE, [1], worth)
        assert best(found, Run(UNKNOWN)) == found
        assert best(found, Run(UNKNOWN, bound=worth - 9, source="b")) == Run(FEASIBLE, [1], worth, worth - 9, "b")
    assert best(Run(UNKNOWN), Run(UNKNOWN, bound=-4, source="b")).bound == -4
    assert best(Run(UNKNOWN), Run(UNKNOWN)) == Run(UNKNOWN)


def test_deterministic_time_is_everybodys() -> None:
    for first in (Run(OPTIMAL, [1], 1, 1, deterministic=1.5), Run(FEASIBLE, [1], 1, deterministic=1.5)):
        assert best(first, Run(UNKNOWN, deterministic=2.0), Run(UNKNOWN, source="highs")).deterministic == 3.5


def test_there_is_no_value_to_read_where_nothing_was_found() -> None:
    x = CpModel().new_int_var(0, 9, "x")
    assert Run(FEASIBLE, [7], 7).value(x) == 7
    with pytest.raises(ValueError, match="no solution was found"):
        Run(UNKNOWN).value(x)
    assert [Run(s).found for s in (OPTIMAL, FEASIBLE, INFEASIBLE, UNKNOWN)] == [True, True, False, False]


# -- who stops whom ---------------------------------------------------------------------------------------------------


class Fake:
    """A search that gives its answer at once, after some others, or once it was told to stop so many times.

    ``left``: it may be left to itself once it has been told so often.
    """

    def __init__(self, run: Run, *, stops: int = 0, after: Sequence[Fake] = (), left: int | None = None) -> None:
        self.run, self.stops, self.after, self.left = run, stops, after, left
        self.told, self.done, self._enough, self._lock = 0, Event(), Event(), Lock()

    def solve(self) -> Run:
        for other in self.after:
            other.done.wait(GENEROUS_S)
        if self.stops:
            assert self._enough.wait(GENEROUS_S)
        self.done.set()
        return self.run

    def stop(self) -> None:
        with self._lock:
            self.told += 1
            if self.told >= self.stops:
                self._enough.set()

    def may_be_left(self) -> bool:
        return self.left is not None and self.told >= self.left


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_nobody_waits_for_one_that_may_be_left_to_itself(order: Sequence[int]) -> None:
    # It is told two times while it may not be, and then, by nobody who waits, until it has stopped.
    proved = Run(OPTIMAL, [1], 1, 1)
    slow = Fake(Run(FEASIBLE, [2], 2), stops=1_000_000, left=2)
    fakes = [Fake(proved), slow, Fake(Run(UNKNOWN), stops=4)]
    assert _race([fakes[i] for i in order], GENEROUS_S) == [proved if i == 0 else Run(UNKNOWN) for i in order]
    assert fakes[2].done.is_set()
    assert not slow.done.is_set()
    assert slow.told >= 2
    slow.stops = slow.told + 3
    assert slow.done.wait(GENEROUS_S)


def test_one_that_may_be_left_is_heard_until_somebody_is_done() -> None:
    proved = Run(OPTIMAL, [1], 1, 1, "highs")
    assert _race([Fake(proved, left=0), Fake(Run(UNKNOWN), stops=1)], GENEROUS_S) == [proved, Run(UNKNOWN)]


def test_nor_when_the_caller_wants_no_more() -> None:
    cancel, slow = Event(), Fake(Run(FEASIBLE, [2], 2), stops=1_000_000, left=1)
    cancel.set()
    assert _race([slow, Fake(Run(UNKNOWN), stops=1)], GENEROUS_S, cancel) == [Run(UNKNOWN)] * 2
    slow.stops = 1
    assert slow.done.wait(GENEROUS_S)


def test_highs_may_be_left_once_it_has_rows_of_its_own() -> None:
    model = CpModel()
    x = model.new_int_var(0, 9, "x")
    model.minimize(x)
    highs = Highs(model, GENEROUS_S, head_start_s=0.0)
    assert not highs.may_be_left()
    assert highs.solve().objective == 0
    assert highs.may_be_left()
    assert not CpSat(model, workers(1), GENEROUS_S).may_be_left()


@pytest.mark.parametrize("proved", [Run(OPTIMAL, [1], 1, 1), Run(INFEASIBLE)])
@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_who_proves_its_answer_stops_the_others_until_they_have(proved: Run, order: Sequence[int]) -> None:
    # One forgets four times that it was told.
    fakes = [Fake(proved), Fake(Run(UNKNOWN), stops=1), Fake(Run(FEASIBLE, [2], 2), stops=5)]
    assert _race([fakes[i] for i in order], GENEROUS_S) == [fakes[i].run for i in order]
    assert fakes[0].told == 0
    assert fakes[1].told >= 1
    assert fakes[2].told >= 5


@pytest.mark.parametrize("gave_up", [Run(FEASIBLE, [2], 2, 1), Run(UNKNOWN)])
def test_who_only_gives_up_stops_nobody(gave_up: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    # The other proves its answer only after the race has looked ten times at who has given up.
    early, looks, real = Fake(gave_up), Fake(Run(UNKNOWN)), module.wait
    later, seen = Fake(Run(OPTIMAL, [1], 1, 1), after=[early, looks]), count()

    def looked(*args: Any, **options: Any) -> Any:
        if early.done.is_set() and next(seen) >= 10:
            looks.done.set()
        return real(*args, **options)

    monkeypatch.setattr(module, "wait", looked)
    assert _race([early, later], GENEROUS_S) == [early.run, later.run]
    assert (early.told, later.told) == (0, 0)


def test_all_are_told_to_stop_when_the_time_is_over() -> None:
    fakes = [Fake(Run(UNKNOWN), stops=3), Fake(Run(FEASIBLE, [2], 2, 1), stops=1)]
    assert _race(fakes, 0.0) == [fake.run for fake in fakes]


def test_what_one_of_them_raises_is_raised() -> None:
    class Refusing(Fake):
        def solve(self) -> Run:
            raise ModelInvalid("no")

    with pytest.raises(ModelInvalid):
        _race([Refusing(Run(UNKNOWN)), Fake(Run(UNKNOWN))], GENEROUS_S)


# -- who takes part ---------------------------------------------------------------------------------------------------


class Cast:
    """Stands in for CP-SAT and HiGHS, and says who was asked for what."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, stops: int = 0, after: Sequence[Fake] = ()) -> None:
        self.asked: list[tuple[str, bool, bool, bool]] = []
        self.limits: list[float] = []
        self.most: int | None = None
        self.searches: list[Fake] = []
        self.stops, self.after = stops, after
        monkeypatch.setattr(module, "CpSat", self._cp_sat)
        monkeypatch.setattr(module, "Highs", self._highs)

    def _cp_sat(
        self, model: CpModel, options: Options, limit_s: float, *, hint: Any = (), presolve: bool, upwards: bool = False
    ) -> Fake:
        return self._new(("cp_sat", upwards, bool(hint), presolve), limit_s)

    def _highs(self, model: CpModel, limit_s: float, *, most: int | None) -> Fake:
        self.most = most
        return self._new(("highs", False, False, False), limit_s)

    def _new(self, who: tuple[str, bool, bool, bool], limit_s: float) -> Fake:
        search = Cast._Named(self, who, limit_s)
        self.searches.append(search)
        return search

    class _Named(Fake):
        def __init__(self, cast: Cast, who: tuple[str, bool, bool, bool], limit_s: float) -> None:
            super().__init__(Run(UNKNOWN), stops=cast.stops, after=cast.after)
            self.cast, self.who, self.limit_s = cast, who, limit_s

        def solve(self) -> Run:
            self.cast.asked.append(self.who)
            self.cast.limits.append(self.limit_s)
            return super().solve()


KNOWN, UPWARDS, HIGHS = ("cp_sat", False, True, True), ("cp_sat", True, False, True), ("highs", False, False, False)


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        (workers(1), [KNOWN]),
        (workers(2), [UPWARDS, HIGHS]),
        (workers(3), [KNOWN, UPWARDS, HIGHS]),
        (workers(8), [KNOWN, UPWARDS, HIGHS]),
        (workers(8, deterministic=True), [KNOWN]),
    ],
)
def test_as_many_searches_as_there_are_workers(
    options: Options, asked: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    cast, model = Cast(monkeypatch), CpModel()
    x = model.new_int_var(0, 9, "x")
    minimise(model, x, options=options, limit_s=17.0, hint=[(x, 3)], most=8)
    assert sorted(cast.asked) == sorted(asked)
    assert cast.most == (8 if HIGHS in asked else None)
    assert set(cast.limits) == {17.0}


def test_what_is_to_be_sure_or_too_large_is_asked_of_cp_sat_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    cast, model = Cast(monkeypatch), CpModel()
    x = model.new_int_var(0, 9, "x")
    minimise(model, x, options=workers(2), limit_s=17.0, hint=[(x, 3)], presolve=False)
    assert sorted(cast.asked) == [("cp_sat", False, True, False), ("cp_sat", True, False, False)]
    for most, asked in ((1, [UPWARDS, HIGHS]), (0, [KNOWN, UPWARDS])):
        cast.asked.clear()
        monkeypatch.setattr(module, "MOST_VARIABLES", most)
        minimise(model, x, options=workers(2), limit_s=17.0, hint=[(x, 3)])
        assert sorted(cast.asked) == asked


@pytest.mark.parametrize("number", [1, 2, 3])
def test_all_give_up_when_the_caller_does(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Each forgets twice that it was told.
    cast, model, cancel = Cast(monkeypatch, stops=3), CpModel(), Event()
    cancel.set()
    x = model.new_int_var(0, 9, "x")
    assert minimise(model, x, options=workers(number), limit_s=17.0, cancel=cancel).status is UNKNOWN
    assert len(cast.asked) == number
    taking_part = [search for search in cast.searches if search.done.is_set()]
    assert len(taking_part) == number
    assert all(search.told >= 3 for search in taking_part)


def test_nobody_gives_up_while_the_caller_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    # They are done only after three looks at whether the caller gave up.
    looks = Fake(Run(UNKNOWN))
    cast, model = Cast(monkeypatch, after=[looks]), CpModel()

    class Patient(Event):
        seen = 0

        def is_set(self) -> bool:
            self.seen += 1
            if self.seen > 3:
                looks.done.set()
            return super().is_set()

    minimise(model, model.new_int_var(0, 9, "x"), options=workers(3), limit_s=17.0, cancel=Patient())
    assert len(cast.asked) == 3
    assert all(search.told == 0 for search in cast.searches)


def test_hints_leave_the_model_as_it_is() -> None:
    model = CpModel()
    x = model.new_int_var(0, 9, "x")
    search = CpSat(model, workers(1), GENEROUS_S, hint=[(x, 3)])
    assert list(search._model.proto.solution_hint.values) == [3]
    for number in (1, 2, 3):
        assert minimise(model, x, options=workers(number), limit_s=GENEROUS_S, hint=[(x, 3)]).objective == 0
        assert not list(model.proto.solution_hint.vars)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_hints_are_told_to_the_search_that_improves_and_nobody_else(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: dict[bool, list[int]] = {}
    fails = False

    class Listening(CpSat):
        def solve(self) -> Run:
            upwards = bool(self._solver.parameters.use_objective_lb_search)
            told[upwards] = list(self._model.proto.solution_hint.values)
            if fails:
                raise ArithmeticError
            return super().solve()

    monkeypatch.setattr(module, "CpSat", Listening)
    model = CpModel()
    x, y = model.new_int_var(0, 9, "x"), model.new_int_var(0, 9, "y")
    hint = [(y, 2), (x, 3)]
    run = minimise(model, x, options=workers(number), limit_s=GENEROUS_S, hint=hint, presolve=False)
    assert (run.status, run.objective) == (OPTIMAL, 0)
    assert told == {False: [2, 3]} | ({True: []} if number > 1 else {})
    assert not list(model.proto.solution_hint.vars)
    fails = True
    with pytest.raises(ArithmeticError):
        minimise(model, x, options=workers(number), limit_s=GENEROUS_S, hint=hint, presolve=False)
    assert not list(model.proto.solution_hint.vars)


# -- for real ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [workers(1), workers(2), workers(3), workers(1, deterministic=True)])
def test_the_answer_is_the_same_whoever_gives_it(options: Options) -> None:
    model = CpModel()
    x, y = model.new_int_var(-5, 5, "x"), model.new_int_var(0, 5, "y")
    model.add(2 * x + y >= 3)
    for presolve in (True, False):
        run = minimise(model, x + 3 * y - 7, options=options, limit_s=GENEROUS_S, hint=[(x, 3)], presolve=presolve)
        assert (run.status, run.value(x), run.value(y), run.objective, run.bound) == (OPTIMAL, 2, 0, -5, -5)
    # The next objective is another, and the one before is forgotten.
    assert minimise(model, -x, options=options, limit_s=GENEROUS_S).objective == -5
    model.add(x + y <= -6)
    run = minimise(model, x, options=options, limit_s=GENEROUS_S)
    assert (run.status, run.values, run.objective, run.bound) == (INFEASIBLE, None, None, None)


def test_tiny_rounds_have_the_same_optima_however_many_solve_them() -> None:
    for seed in range(12):
        p = compile_round(parse_round(tiny_doc(seed))).problem
        ctx = build(p, told_apart(p, "mixed", Random(seed)))
        for tier in ("shortfall", "idle"):
            expression = ctx.term(OBJECTIVES[tier])[0]
            alone = minimise(ctx.model, expression, options=ONE_WORKER, limit_s=GENEROUS_S)
            for number in (2, 3):
                run = minimise(ctx.model, expression, options=workers(number), limit_s=GENEROUS_S)
                assert (run.status, run.objective, run.bound) == (OPTIMAL, alone.objective, alone.bound), (seed, tier)


def test_a_model_that_nobody_can_read_is_a_bug_of_ours() -> None:
    model = CpModel()
    x, y = (model.new_int_var(-(2**61), 2**61, name) for name in "xy")
    model.add(4 * x + 4 * y <= 5)
    for number in (1, 2):
        with pytest.raises(ModelInvalid, match="overflow"):
            minimise(model, x, options=workers(number), limit_s=GENEROUS_S)


def test_it_can_be_told_to_look_upwards_from_the_bound() -> None:
    for upwards in (False, True):
        for presolve in (False, True):
            solver = CpSolver()
            parameters(solver, workers(4), 17.0, presolve=presolve, upwards=upwards)
            p = solver.parameters
            assert (p.use_objective_lb_search, p.cp_model_presolve, p.num_workers) == (upwards, presolve, 1)
            assert p.max_time_in_seconds == 17.0
    parameters(solver, workers(4, deterministic=True), 17.0, presolve=True, upwards=False)
    assert solver.parameters.max_deterministic_time == 17.0


@pytest.mark.parametrize(
    ("bound", "proved"),
    [
        *((4.9999999, 5), (5.0, 5), (5.0000001, 5), (5.2, 6), (-5.2, -5), (-5.0000001, -5), (0.0, 0)),
        *((float("inf"), None), (float("-inf"), None), (float("nan"), None), (2.0**53, None)),
    ],
)
def test_bounds_are_integers_up_to_float_noise(bound: float, proved: int | None) -> None:
    assert _floor(bound) == proved


def test_one_that_fails_stops_the_others() -> None:
    stopped = Event()

    class Fails:
        def solve(self) -> Run:
            raise RuntimeError("refused")

        def stop(self) -> None: ...

    class Waits:
        def solve(self) -> Run:
            stopped.wait(60)
            return Run(Status.UNKNOWN)

        def stop(self) -> None:
            stopped.set()

        def may_be_left(self) -> bool:
            return False

    with pytest.raises(RuntimeError, match="refused"):
        _race([Waits(), Fails()], 60.0)
    assert stopped.is_set()


def test_without_a_hint_there_is_none_not_even_an_empty_one() -> None:
    # One that is there but empty makes CP-SAT search differently, and much longer.
    model = CpModel()
    model.minimize(model.new_int_var(0, 3, "x"))
    CpSat(model, workers(1), GENEROUS_S, upwards=True)
    assert not model.proto.has_solution_hint()
