"""What a model says of the delay of a decision is never more than its promises say."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from random import Random

import pytest
from bench.captured import read

from cpalloc import solve
from cpalloc.generate import GeneratorConfig, generate_doc
from cpalloc.metrics.reservations import reserve
from cpalloc.models.constraints.preemption import victims
from cpalloc.models.objectives.delay import delay_of, instants
from cpalloc.models.partition import Partition
from cpalloc.problem.compile import compile_round
from cpalloc.problem.problem import Action, Decision, JobState, Mode, Problem
from cpalloc.schema import parse_round
from cpalloc.solver.greedy import greedy
from cpalloc.solver.prune import prune
from cpalloc.solver.values import violations
from models.fixing import any_decision, counted, in_turn
from properties.rounds import applied, deterministic


def delay(problem: Problem, decision: Decision, jobs: tuple[int, ...]) -> int:
    holds, blocked = reserve(problem, decision, kept=problem.holds, jobs=jobs)
    promised = replace(decision, reservations=holds, blocked=blocked)
    return sum(delay_of(problem, promised, j) for j in blocked)


def partition(problem: Problem, decision: Decision, jobs: tuple[int, ...], *, settled: bool) -> Partition:
    holds, _ = reserve(problem, decision, kept=problem.holds, jobs=jobs)
    promised = replace(decision, reservations=holds)
    base = Partition(
        holds=problem.holds,
        hard=len(problem.holds),
        blocked=tuple((j, delay_of(problem, promised, j)) for j in jobs),
        instants=instants(problem),
        by_release=True,
        split=True,
    )
    if not settled:
        return base
    gone = frozenset(victims(problem, decision))
    every = frozenset(j for j, state in enumerate(problem.jobs.state.tolist()) if state == JobState.EVICTABLE)
    return replace(base, gone=gone, stays=every - gone)


def thinned(problem: Problem, decision: Decision, rng: Random) -> Decision | None:
    """A decision without some of its starts; None where that breaks a rule."""
    gone = [j for j in decision.placement if rng.random() < 0.4]
    action, mode = decision.action.copy(), decision.mode.copy()
    action[gone], mode[gone] = Action.WAIT, Mode.NONE
    placement = {j: reps for j, reps in decision.placement.items() if j not in gone}
    fewer = prune(problem, replace(decision, action=action, mode=mode, placement=placement))
    fewer = in_turn(problem, fewer)
    return None if violations(problem, fewer) else fewer


def second_rounds() -> Iterator[Problem]:
    """Rounds ten minutes after a decision, with its promises."""
    for family in ("mixed", "gang-heavy"):
        for seed in range(6):
            doc = deterministic(generate_doc(GeneratorConfig(nodes=12, seed=seed, family=family)), 2)
            answer = solve(parse_round(json.dumps(doc)))
            after = applied(doc, answer)
            later = datetime.fromisoformat(after["now"]) + timedelta(minutes=10)
            after["now"] = later.isoformat()
            after["previous"] = {"reservations": [r.model_dump(mode="json") for r in answer.reservations]}
            yield compile_round(parse_round(json.dumps(after))).problem


def lab_rounds() -> Iterator[Problem]:
    for met in read()[::7]:
        yield compile_round(parse_round(json.dumps(met.document))).problem


@pytest.mark.parametrize("rounds", [second_rounds, lab_rounds])
def test_never_above_the_promises(rounds: Callable[[], Iterator[Problem]]) -> None:
    rng, compared, positive, held = Random(5), 0, 0, 0
    for problem in rounds():
        first = in_turn(problem, greedy(problem))
        jobs = reserve(problem, first, kept=problem.holds)[1]
        if not jobs:
            continue
        drawn = [any_decision(problem, rng) for _ in range(4)]
        for decision in [first, *(d for d in drawn if d is not None)]:
            value = delay(problem, decision, jobs)
            for settled in (False, True):
                told = partition(problem, first if not settled else decision, jobs, settled=settled)
                known = tuple((j, max(d, 1)) for j, d in told.blocked)
                said = counted(problem, replace(told, blocked=known), decision, "delay")
                if said is None:
                    continue
                assert said <= value, (compared, settled)
                compared += 1
                positive += said > 0
                held += bool(problem.holds)
    assert compared >= 60
    assert positive >= 10
    assert held >= 10
