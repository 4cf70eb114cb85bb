"""The solver against every decision of tiny rounds: what it calls proved is the optimum, to the last unit.

Rounds come in chunks, so that pytest-xdist can share them out. What is asserted over all rounds together is read from
the chunks' results, which are computed once for a session, by whichever worker gets there first.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from cpalloc.metrics.reservations import reserve
from cpalloc.models.constraints import CONSTRAINTS
from cpalloc.models.objectives import OBJECTIVES
from cpalloc.problem.compile import compile_round
from cpalloc.problem.problem import Problem
from cpalloc.schema import parse_round
from cpalloc.solver.results import Solution, TierResult
from cpalloc.solver.solve import solve_problem
from cpalloc.solver.values import violations
from reference.brute_force import Chain, Full, Search, Step, binds
from reference.tiny_rounds import tiny_doc

CHUNKS, ROUNDS = 12, 900
MOST_BOUND = 8
"""Rounds of a chunk in which a rule is looked for until it is known to bind often enough."""


@dataclass
class Result:
    """What a number of rounds showed."""

    failures: list[str] = field(default_factory=list)
    parts: int = 0
    proved: int = 0
    preempting: int = 0
    bound: Counter[str] = field(default_factory=Counter)
    tiers_above_floor: Counter[str] = field(default_factory=Counter)


@contextmanager
def complaints() -> Iterator[list[str]]:
    """What the solver warns of: bounds or infeasibility that contradict what is known are bugs of a model."""
    heard: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: heard.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("cpalloc")
    logger.addHandler(handler)
    try:
        yield heard
    finally:
        logger.removeHandler(handler)


def problem_of(seed: int, *, reservations: bool = False) -> Problem:
    return compile_round(parse_round(tiny_doc(seed, reservations=reservations))).problem


def compare(seed: int, result: Result, *, every_rule: bool = False, problem: Problem | None = None) -> None:
    """Solve a round (that of the seed by default) and try every decision of it; what differs goes into the result."""
    problem = problem_of(seed) if problem is None else problem
    with complaints() as heard:
        solution = solve_problem(problem)
    result.failures += [f"{seed}: {message}" for message in heard]
    result.failures += [f"{seed}: {v.constraint}: {v.message}" for v in violations(problem, solution.decision)]
    search = Search(problem)
    chain, steps = Chain(search), []
    for tier in solution.tiers:
        steps += _compare_tier(seed, problem, solution, tier, chain, result)
        if tier.name == "preemption":
            steps += _after_preemption(seed, solution, chain, result)
    best = chain.rest()
    result.preempting += all(full.outline.gone for full in best)
    result.failures += [f"{seed}: {what}" for what in disagreements(search, best)]
    for rule in CONSTRAINTS:
        enough = result.bound[rule.name] >= MOST_BOUND and not every_rule
        if rule.applies(problem) and not enough and binds(problem, rule.name, steps):
            result.bound[rule.name] += 1


def _compare_tier(
    seed: int, problem: Problem, solution: Solution, tier: TierResult, chain: Chain, result: Result
) -> list[Step]:
    """A tier in the solver's own chain: under the limits that it had to respect when it was settled."""
    slack = next(t.slack for t in problem.policy.tiers if t.name == tier.name)
    give = int(slack * int(problem.budgets.entitled.sum()))
    values = OBJECTIVES[tier.name].evaluate(problem, solution.decision)
    steps = []
    for index, part in enumerate(tier.parts):
        least = chain.least(tier.name, index)
        steps.append(Step(tier.name, index, least, part.best + give))
        chain.keep(tier.name, index, part.best + give)
        result.parts += 1
        proved = part.bound == part.best
        result.proved += proved
        result.tiers_above_floor[f"{tier.name}.{part.name}"] += least > 0
        where = f"{seed}: {tier.name}.{part.name}"
        if proved and least != part.best:
            result.failures.append(f"{where} is {least}, {part.best} is called proved")
        if part.bound is None or not part.bound <= least <= part.best:
            result.failures.append(f"{where} is {least}, not within [{part.bound}, {part.best}]")
        if values[index] > part.limit:
            result.failures.append(f"{where} ends at {values[index]}, over its limit {part.limit}")
    return steps


def _after_preemption(seed: int, solution: Solution, chain: Chain, result: Result) -> list[Step]:
    """What slack was not needed for preemptions is taken back: the limits are least once preemption is settled."""
    steps = []
    exact = all(p.bound == p.best for t in solution.tiers for p in t.parts)
    for tier in solution.tiers:
        for index, part in enumerate(tier.parts):
            least = chain.least(tier.name, index)
            if least > part.limit or (exact and least < part.limit and tier.name == "shortfall"):
                result.failures.append(f"{seed}: {tier.name} is {least} after preemption, its limit was {part.limit}")
            steps.append(Step(tier.name, index, least, part.limit))
            chain.keep(tier.name, index, part.limit)
        if tier.name == "preemption":
            return steps
    return steps


def disagreements(search: Search, best: list[Full]) -> list[str]:
    """Where the package's checks and values differ from those of the search: on optima, and on other decisions."""
    problem, out = search.problem, []
    others = (Full(o, p) for o in search.outlines()[::7] for p in islice(search.places(o), 2))
    for full in [*best[:2], *islice(others, 6)]:
        decision = search.decision(full)
        out += [f"{v.constraint} rejects what breaks nothing: {v.message}" for v in violations(problem, decision)]
        for tier in problem.policy.tiers:
            if tier.name in OBJECTIVES:
                mine, theirs = search.values.full(tier.name, full), OBJECTIVES[tier.name].evaluate(problem, decision)
                if mine != theirs:
                    out.append(f"{tier.name} is {theirs}, must be {mine}")
    return out


def computed(chunk: int, folder: Path) -> dict[str, Any]:
    """The result of a chunk, computed by the first who asks."""
    path = folder / f"brute-force-{chunk}.json"
    try:
        os.close(os.open(folder / f"brute-force-{chunk}.lock", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        until = time.monotonic() + 900
        while not path.exists() and time.monotonic() < until:
            time.sleep(0.2)
        return dict(json.loads(path.read_text()))
    result = Result()
    try:
        for seed in range(chunk, ROUNDS, CHUNKS):
            compare(seed, result)
    except Exception as error:
        result.failures.append(f"{type(error).__name__}: {error}")
        raise
    finally:
        draft = path.with_suffix(".tmp")
        draft.write_text(json.dumps(vars(result)))
        draft.rename(path)
    return vars(result)


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    base = tmp_path_factory.getbasetemp()
    return base if worker_id == "master" else base.parent


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_solver_agrees_with_every_decision(chunk: int, folder: Path) -> None:
    assert computed(chunk, folder)["failures"] == []


def test_rounds_are_proved_and_every_rule_and_tier_matters(folder: Path) -> None:
    results = [computed(chunk, folder) for chunk in range(CHUNKS)]
    assert sum(r["proved"] for r in results) >= 0.9 * sum(r["parts"] for r in results)
    assert sum(r["preempting"] for r in results) >= 100
    bound: Counter[str] = sum((Counter(r["bound"]) for r in results), Counter())
    assert {c.name: bound[c.name] for c in CONSTRAINTS if bound[c.name] < 20} == {}
    above = sum((Counter(r["tiers_above_floor"]) for r in results), Counter())
    parts = [f"{t.name}.{p.name}" for t in OBJECTIVES.values() for p in t.parts if t.name != "delay"]
    assert {p: above[p] for p in parts if above[p] < 15} == {}


@pytest.mark.parametrize("chunk", range(4))
def test_delays_lie_between_bound_and_value(chunk: int) -> None:
    for seed in range(chunk, 160, 4):
        problem = problem_of(seed, reservations=True)
        with complaints() as heard:
            solution = solve_problem(problem)
        assert heard == [], seed
        assert violations(problem, solution.decision) == [], seed
        for tier in solution.tiers:
            values = OBJECTIVES[tier.name].evaluate(problem, solution.decision)
            for part, value in zip(tier.parts, values, strict=True):
                assert part.bound is not None, (seed, tier.name)
                assert part.bound <= part.best, (seed, tier.name)
                assert value <= part.limit, (seed, tier.name)
                if part.limit == part.best:
                    assert part.bound <= value, (seed, tier.name)
        delay = next(t.parts[0] for t in solution.tiers if t.name == "delay")
        holds, blocked = reserve(problem, solution.decision, kept=solution.decision.reservations)
        assert {h.job for h in holds} >= {h.job for h in solution.decision.reservations}, seed
        assert set(solution.decision.blocked) <= set(blocked) | {h.job for h in holds}, seed
        assert OBJECTIVES["delay"].evaluate(problem, solution.decision)[0] <= delay.best, seed
