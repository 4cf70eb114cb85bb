"""The strict-order loop: what it believes, what it does with time, and when it stops."""

from __future__ import annotations

import dataclasses
import threading
from fractions import Fraction
from typing import Any

import pytest

import cpalloc.solver.models as models
import cpalloc.solver.strict as strict
from builders import Budget, Node, Pending, Running, problem
from cpalloc.generate import GeneratorConfig, generate
from cpalloc.models.constraints.preemption import victims
from cpalloc.models.objectives import OBJECTIVES
from cpalloc.problem.compile import compile_round
from cpalloc.problem.problem import Action, Mode, Options, Problem, Tier
from cpalloc.solver.greedy import greedy
from cpalloc.solver.outcome import Run, Status
from cpalloc.solver.results import Clock, Solution
from cpalloc.solver.solve import solve_problem
from cpalloc.solver.strict import StrictOrder
from cpalloc.solver.values import same, violations


def compiled(nodes: int, seed: int, **options: Any) -> Problem:
    """A generated problem with options replaced."""
    problem = compile_round(generate(GeneratorConfig(nodes=nodes, seed=seed))).problem
    return dataclasses.replace(problem, options=dataclasses.replace(problem.options, **options))


def values(solution: Solution) -> list[tuple[str, int]]:
    return [(t.name, p.best) for t in solution.tiers for p in t.parts]


@pytest.mark.parametrize("seed", range(4))
def test_deterministic_means_the_same_decision_every_time(seed: int) -> None:
    problem = compiled(16, seed, deterministic=True, deterministic_limit=2.0)
    first, second = solve_problem(problem), solve_problem(problem)
    assert values(first) == values(second)
    assert (first.decision.action == second.decision.action).all()
    assert first.decision.placement == second.decision.placement
    assert first.decision.reservations == second.decision.reservations


def test_a_bound_that_contradicts_a_known_decision_is_dropped(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    honest = models.minimise

    def lies(*args: Any, **kw: Any) -> Run:
        run = honest(*args, **kw)
        return dataclasses.replace(run, bound=10**9)

    monkeypatch.setattr(models, "minimise", lies)
    solution = solve_problem(compiled(8, 1, time_limit_s=5.0))
    assert "contradicts" in caplog.text
    assert all(p.bound is None or p.bound <= p.best for t in solution.tiers for p in t.parts)


def test_infeasible_while_a_decision_is_known_is_asked_again_without_presolve(monkeypatch: pytest.MonkeyPatch) -> None:
    honest, asked = models.minimise, []

    def lies(*args: Any, **kw: Any) -> Run:
        asked.append(kw.get("presolve", True))
        run = honest(*args, **kw)
        return dataclasses.replace(run, status=Status.INFEASIBLE, bound=None) if kw.get("presolve", True) else run

    problem = compiled(8, 1, time_limit_s=5.0)
    expected = values(solve_problem(problem))
    monkeypatch.setattr(models, "minimise", lies)
    assert values(solve_problem(problem)) == expected
    assert False in asked


def test_without_time_the_greedy_answers_with_trivial_bounds() -> None:
    problem = compiled(32, 2)
    solution = StrictOrder(problem, Clock(0.0), [greedy(problem)]).solve()
    assert violations(problem, solution.decision) == []
    assert (solution.decision.action == Action.START).any()
    assert solution.stop_reason in ("time_limit", "proved")
    assert {p.source for t in solution.tiers for p in t.parts} == {"trivial"}


def test_cancelled_before_it_began_answers_all_the_same() -> None:
    event = threading.Event()
    event.set()
    problem = compiled(16, 3)
    solution = solve_problem(problem, cancel=event)
    assert solution.stop_reason == "cancelled"
    assert violations(problem, solution.decision) == []
    assert [t.name for t in solution.tiers] == [t.name for t in problem.policy.tiers if t.name in OBJECTIVES]
    assert (solution.variables, solution.constraints) == (0, 0)


class Impatient(threading.Event):
    """Wants no more once it was asked so often."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self.looks = looks

    def is_set(self) -> bool:
        self.looks -= 1
        if self.looks < 0:
            self.set()
        return super().is_set()


@pytest.mark.parametrize("seed", range(3))
def test_cancelled_at_any_time_answers_with_what_there_is(seed: int) -> None:
    """Every tier has a row, and bounds are true ones."""
    options = Options(workers=1, deterministic=True, deterministic_limit=20.0)
    problem = dataclasses.replace(compiled(16, seed), options=options)
    whole = dict(values(solve_problem(problem)))
    started, reasons = [], set()
    for looks in (0, 1, 2, 4, 8, 16, 24, 32, 48, 64, 80, 100, 150, 200, 300, 500, 1_000):
        solution = solve_problem(problem, cancel=Impatient(looks))
        assert violations(problem, solution.decision) == [], looks
        assert [t.name for t in solution.tiers] == [t.name for t in problem.policy.tiers if t.name in OBJECTIVES]
        first = problem.policy.tiers[0].name
        assert all((p.bound or 0) <= whole[first] for t in solution.tiers if t.name == first for p in t.parts[:1])
        started.append(int((solution.decision.action == Action.START).sum()))
        reasons.add(solution.stop_reason)
    assert started[0] == 0 < started[-1]
    assert "cancelled" in reasons
    assert len(set(started)) > 3


def test_the_greedy_stops_with_valid_decisions_wherever_it_is_halted() -> None:
    problem = compiled(16, 1)
    whole, steps = greedy(problem), []
    for number in range(60):
        decision = greedy(problem, Impatient(number).is_set)
        assert violations(problem, decision) == [], number
        steps.append(int((decision.action == Action.START).sum()))
    assert steps[0] == 0
    assert steps == sorted(steps)
    assert steps[-1] >= 5
    assert same(greedy(problem, lambda: False), whole)


def test_a_late_greedy_gives_away_what_is_free_and_takes_nothing_back() -> None:
    problem = compiled(16, 1)
    late, looks = greedy(problem, late=lambda: True), Impatient(4)
    assert victims(problem, greedy(problem))
    assert not victims(problem, late)
    assert violations(problem, late) == []
    assert (late.action == Action.START).any()
    some = greedy(problem, late=looks.is_set)
    assert 0 < len(victims(problem, some)) < len(victims(problem, greedy(problem)))
    # Without time it is late from the start, but in deterministic mode no clock is looked at.
    hurried = dataclasses.replace(problem, options=dataclasses.replace(problem.options, time_limit_s=1e-9))
    assert not victims(problem, solve_problem(hurried).decision)
    calm = Options(workers=1, deterministic=True, time_limit_s=1e-9, deterministic_limit=1e-9)
    assert victims(problem, solve_problem(dataclasses.replace(problem, options=calm)).decision)


@pytest.mark.parametrize("family", ["mixed", "gang-heavy"])
@pytest.mark.parametrize("seed", range(3))
def test_never_worse_than_the_greedy_tier_by_tier(family: str, seed: int) -> None:
    problem = compile_round(generate(GeneratorConfig(nodes=24, seed=seed, family=family))).problem
    problem = dataclasses.replace(problem, options=dataclasses.replace(problem.options, time_limit_s=4.0))
    fallback = StrictOrder(problem, Clock(0.0), [greedy(problem)]).solve()
    solved = solve_problem(problem)
    mine = dict(values(solved))
    theirs = dict(values(fallback))
    assert mine["starvation"] <= theirs["starvation"]
    if mine["starvation"] == theirs["starvation"]:
        assert mine["shortfall"] <= theirs["shortfall"]


def test_slack_that_was_not_needed_is_taken_back() -> None:
    """Shortfall may rise above its optimum only where inversion or preemption becomes cheaper by it."""
    seen = set()
    for seed in range(6):
        problem = compiled(12, seed, deterministic=True, deterministic_limit=4.0)
        row = {t.name: t for t in solve_problem(problem).tiers}
        bare = {t.name: t for t in solve_problem(with_slack(problem, "shortfall", Fraction(0))).tiers}
        spared = [row[name].parts for name in ("inversion", "preemption")]
        full = [bare[name].parts for name in ("inversion", "preemption")]
        assert all(p.proved(Fraction(0)) for parts in (*spared, *full) for p in parts), seed
        gave = row["shortfall"].parts[0].limit > row["shortfall"].parts[0].best
        assert gave == ([p.best for x in spared for p in x] < [p.best for x in full for p in x]), seed
        seen.add(gave)
    assert seen == {True, False}


def with_slack(problem: Problem, tier: str, slack: Fraction) -> Problem:
    tiers = tuple(dataclasses.replace(t, slack=slack) if t.name == tier else t for t in problem.policy.tiers)
    return dataclasses.replace(problem, policy=dataclasses.replace(problem.policy, tiers=tiers))


def test_slack_of_delay_is_kept_for_the_tiers_after_it() -> None:
    """Its promises are put in order once more when it is settled; the slack it was asked for stays."""
    problem = compiled(24, 2, deterministic=True, deterministic_limit=2.0)
    tiers = tuple(
        dataclasses.replace(t, slack=Fraction(1, 2)) if t.name == "delay" else t for t in problem.policy.tiers
    )
    problem = dataclasses.replace(problem, policy=dataclasses.replace(problem.policy, tiers=tiers))
    delay = next(t.parts[0] for t in solve_problem(problem).tiers if t.name == "delay")
    assert delay.limit - delay.best == int(problem.budgets.entitled.sum()) // 2


def test_where_a_tier_with_slack_is_not_proved_its_limit_is_the_bound_and_the_slack(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem = compiled(16, 1)
    order = StrictOrder(problem, Clock(0.0), [greedy(problem)])
    tier = next(t for t in problem.policy.tiers if t.name == "shortfall")
    best = order.best.values["shortfall"][0]
    slack = int(tier.slack * int(problem.budgets.entitled.sum()))
    assert best > 2
    assert slack > 2
    for bound, limit in ((best - 2, best - 2 + slack), (best - slack - 1, best + slack), (None, best + slack)):
        monkeypatch.setattr(order.search, "minimise", lambda *_, b=bound: (b, "cp_sat"))
        part = order._solve_part(tier, 1, 0, 0.0)
        assert (part.best, part.bound, part.limit) == (best, bound, limit)


def test_preemptions_that_are_not_settled_are_kept_and_prove_nothing_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strict, "settled", lambda *_: None)
    monkeypatch.setattr(strict, "MOST_UNSETTLED", 0)
    assumed = 0
    for seed in range(4):
        problem = compiled(16, seed, deterministic=True, deterministic_limit=4.0)
        order = StrictOrder(problem, Clock(4.0), [greedy(problem)])
        solution = order.solve()
        assert violations(problem, solution.decision) == []
        if not order.assumed:
            continue
        assumed += 1
        assert order.models.partition.gone == frozenset(victims(problem, solution.decision))
        at = [t.name for t in solution.tiers].index("preemption")
        for row in solution.tiers[at + 1 :]:
            floor = OBJECTIVES[row.name].floor(problem)
            assert [(p.bound, p.source) for p in row.parts] == [(bound, "trivial") for bound in floor]
    assert assumed >= 2


def test_what_is_free_is_lent_where_no_tier_asks_for_it() -> None:
    lent = 0
    for seed in range(4):
        problem = compiled(12, seed, deterministic=True, deterministic_limit=2.0)
        tiers = tuple(t for t in problem.policy.tiers if t.name in ("starvation", "shortfall", "preemption"))
        problem = dataclasses.replace(problem, policy=dataclasses.replace(problem.policy, tiers=tiers))
        decision = solve_problem(problem).decision
        assert violations(problem, decision) == []
        lent += int(((decision.action == Action.START) & (decision.mode == Mode.BORROWED)).sum())
    assert lent


def contested(lost_s: dict[str, int]) -> Problem:
    """Budget x wants 8 GPUs; each running job of budget y holds as many, with so much lost work."""
    p = problem(
        nodes=[Node(f"n-{name}") for name in lost_s],
        jobs=[
            *(Running(name, budget="y", at=f"n-{name}", gpus=8, lost_s=lost) for name, lost in lost_s.items()),
            Pending("a", budget="x", gpus=8),
        ],
        budgets=[Budget("x", entitled=8, claim=8), Budget("y")],
    )
    tiers = (Tier("shortfall"), Tier("preemption"))
    return dataclasses.replace(p, policy=dataclasses.replace(p.policy, tiers=tiers))


@pytest.mark.parametrize(("dear", "sources"), [(600, ["settled"] * 3), (60, [])])
def test_parts_that_only_one_set_of_victims_decides_are_read(dear: int, sources: list[str]) -> None:
    solution = solve_problem(contested({"cheap": 60, "dear": dear}))
    _, preemption = solution.tiers
    assert [p.best for p in preemption.parts[1:3]] == [1, 8]
    assert all(p.proved(Fraction(0)) for p in preemption.parts)
    assert [p.source for p in preemption.parts if p.source == "settled"] == sources
    values = OBJECTIVES["preemption"].evaluate(contested({"cheap": 60, "dear": dear}), solution.decision)
    assert values == tuple(p.best for p in preemption.parts)


def test_the_decision_it_began_with_is_never_forgotten() -> None:
    """What lost on a tier with slack may be the best from inversion on: the greedy's inverts nobody."""
    problem = compiled(24, 2)
    first = greedy(problem)
    order = StrictOrder(problem, Clock(20.0), [first])
    assert same(order.best.seen[0], first)
    order.solve()
    assert len(order.best.seen) > 2
    assert same(order.best.seen[0], first)
