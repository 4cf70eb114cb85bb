"""The last look before an answer leaves."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

import cpalloc
import cpalloc.engine as engine
from cpalloc.problem.compile import compile_round
from cpalloc.problem.problem import Action, JobState, Mode, Problem
from cpalloc.schema import examples
from cpalloc.solver.guard import guard
from cpalloc.solver.results import Solution
from cpalloc.solver.solve import solve_problem
from cpalloc.solver.values import violations


@pytest.fixture
def round_() -> cpalloc.Round:
    return cpalloc.Round.model_validate(examples.load("small"))


@pytest.fixture
def problem(round_: cpalloc.Round) -> Problem:
    return compile_round(round_).problem


def preempt_protected(problem: Problem, solution: Solution) -> Solution:
    """The solution with one protected job preempted."""
    job = int(np.flatnonzero(problem.jobs.state == JobState.FIXED)[0])
    action, mode = solution.decision.action.copy(), solution.decision.mode.copy()
    action[job], mode[job] = Action.PREEMPT, Mode.NONE
    return dataclasses.replace(solution, decision=dataclasses.replace(solution.decision, action=action, mode=mode))


def test_a_sound_solution_passes_unchanged(problem: Problem) -> None:
    solution = solve_problem(problem)
    checked, broken = guard(problem, solution)
    assert broken == []
    assert checked is solution


def test_a_broken_rule_never_leaves(problem: Problem) -> None:
    checked, broken = guard(problem, preempt_protected(problem, solve_problem(problem)))
    assert "protection" in {v.constraint for v in broken}
    assert checked.stop_reason == "guard_failed"
    assert violations(problem, checked.decision) == []
    assert not (checked.decision.action == Action.START).any()
    assert all(part.bound is None for tier in checked.tiers for part in tier.parts)


def test_a_value_below_its_bound_is_a_bug_of_ours(problem: Problem) -> None:
    solution = solve_problem(problem)
    first = solution.tiers[0]
    part = dataclasses.replace(first.parts[0], bound=10**6, best=10**6, limit=10**6)
    lying = dataclasses.replace(solution, tiers=(dataclasses.replace(first, parts=(part,)), *solution.tiers[1:]))
    checked, broken = guard(problem, lying)
    assert checked.stop_reason == "guard_failed"
    assert "below its bound" in broken[0].message


def test_the_answer_says_so_and_the_round_is_kept(
    round_: cpalloc.Round, problem: Problem, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = preempt_protected(problem, solve_problem(problem))
    monkeypatch.setattr(engine, "solve_problem", lambda *_args, **_kw: broken)
    monkeypatch.setenv("CPALLOC_REPLAY_DIR", str(tmp_path))
    answer = cpalloc.solve(round_)
    assert answer.stop_reason == "guard_failed"
    assert answer.status == "feasible"
    assert [w.code for w in answer.warnings if w.code == "guard_failed"] == ["guard_failed"]
    assert {d.action for d in answer.decisions} <= {"keep", "wait", "preempt", "lost"}
    (folder,) = tmp_path.iterdir()
    assert str(folder) in next(w.message for w in answer.warnings if w.code == "guard_failed")
    again = cpalloc.parse_round((folder / "round.json").read_text())
    assert again == round_
    assert any("protect" in text for text in json.loads((folder / "problems.json").read_text()))
    assert "variables" in (folder / "model.pbtxt").read_text()


def test_a_crash_of_the_solver_costs_no_cluster_its_round(
    round_: cpalloc.Round, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def crash(*_args: object, **_kw: object) -> Solution:
        raise RuntimeError("out of luck")

    monkeypatch.setattr(engine, "solve_problem", crash)
    monkeypatch.setenv("CPALLOC_REPLAY_DIR", str(tmp_path))
    answer = cpalloc.solve(round_)
    assert answer.stop_reason == "guard_failed"
    assert cpalloc.check(round_, answer).violations == ()
    assert len(answer.decisions) == len(round_.jobs)


def test_a_folder_that_cannot_be_written_is_no_reason_to_fail(
    round_: cpalloc.Round, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")

    def crash(*_args: object, **_kw: object) -> Solution:
        raise RuntimeError("out of luck")

    monkeypatch.setattr(engine, "solve_problem", crash)
    monkeypatch.setenv("CPALLOC_REPLAY_DIR", str(blocked))
    assert cpalloc.solve(round_).stop_reason == "guard_failed"
