"""The strict-order loop: what it believes, what it does with time, and when it stops."""

from __future__ import annotations

import dataclasses
import threading
from typing import Any

import pytest

import cpalloc.solver.strict as strict
from cpalloc.generate import GeneratorConfig, generate
from cpalloc.problem.compile import compile_round
from cpalloc.problem.problem import Action, Problem
from cpalloc.solver.greedy import greedy
from cpalloc.solver.results import Clock, Solution
from cpalloc.solver.run import Run, Status
from cpalloc.solver.solve import solve_problem
from cpalloc.solver.strict import StrictOrder
from cpalloc.solver.values import violations


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
    honest = strict.minimise

    def lies(*args: Any, **kw: Any) -> Run:
        run = honest(*args, **kw)
        return dataclasses.replace(run, bound=10**9)

    monkeypatch.setattr(strict, "minimise", lies)
    solution = solve_problem(compiled(8, 1, time_limit_s=5.0))
    assert "contradicts" in caplog.text
    assert all(p.bound is None or p.bound <= p.best for t in solution.tiers for p in t.parts)


def test_infeasible_while_a_decision_is_known_is_asked_again_without_presolve(monkeypatch: pytest.MonkeyPatch) -> None:
    honest, asked = strict.minimise, []

    def lies(*args: Any, **kw: Any) -> Run:
        asked.append(kw.get("presolve", True))
        run = honest(*args, **kw)
        return dataclasses.replace(run, status=Status.INFEASIBLE, bound=None) if kw.get("presolve", True) else run

    problem = compiled(8, 1, time_limit_s=5.0)
    expected = values(solve_problem(problem))
    monkeypatch.setattr(strict, "minimise", lies)
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
    solution = solve_problem(compiled(16, 3), cancel=event)
    assert solution.stop_reason == "cancelled"
    assert (solution.decision.action == Action.START).any()


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
    """Shortfall may rise above its optimum only where preemption becomes cheaper by it."""
    for seed in range(3):
        solution = solve_problem(compiled(24, seed, time_limit_s=6.0))
        row = {t.name: t for t in solution.tiers}
        slacked = row["shortfall"].parts[0]
        if row["preemption"].parts[0].best == 0:
            assert slacked.limit == slacked.best
