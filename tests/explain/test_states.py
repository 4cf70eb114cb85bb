"""States of the cluster in which waiting jobs are looked at, against ones built from nothing."""

from __future__ import annotations

import random

import pytest
from bench.cases import case

from cpalloc.explain.beneficiaries import beneficiaries_of_all
from cpalloc.explain.starts import Starts
from cpalloc.explain.states import States
from cpalloc.generate import generate_doc
from cpalloc.models.constraints.preemption import victims
from cpalloc.problem.compile import compile_round
from cpalloc.problem.problem import Decision, Problem
from cpalloc.problem.usage import Usage
from cpalloc.schema import parse_round
from cpalloc.solver.greedy import greedy
from reference.beneficiaries import beneficiaries
from reference.usage_state import state

CASES = [("mixed", 1), ("gang-heavy", 2), ("odd-sizes", 3)]


@pytest.fixture(scope="module", params=CASES, ids=lambda c: f"{c[0]}-s{c[1]}")
def decided(request: pytest.FixtureRequest) -> tuple[Problem, Decision]:
    """A generated round and the greedy's decision."""
    variant, seed = request.param
    problem = compile_round(parse_round(generate_doc(case(variant, 48, seed, time_limit_s=1).config))).problem
    return problem, greedy(problem)


def test_now_and_without_starts(decided: tuple[Problem, Decision]) -> None:
    problem, decision = decided
    states = States(problem, decision)
    assert state(states.now.usage) == state(Usage.of(problem, decision))
    assert state(states.without_starts.usage) == state(Usage.of(problem, decision, without=set(decision.placement)))


def test_without_the_first_of_a_budget_in_whatever_order_they_are_asked_for(decided: tuple[Problem, Decision]) -> None:
    problem, decision = decided
    states, starts, rng = States(problem, decision), Starts(problem, decision), random.Random(1)
    leaves = sorted({int(problem.jobs.leaf[j]) for j in decision.placement})
    for _ in range(30):
        leaf = rng.choice(leaves)
        best = starts.of_leaf(leaf)[: rng.randint(0, len(starts.of_leaf(leaf)))]
        expected = state(Usage.of(problem, decision, without=set(best)))
        assert state(states.without_best(leaf, best).usage) == expected
    assert state(states.now.usage) == state(Usage.of(problem, decision))


def test_who_goes_before_and_who_is_largest(decided: tuple[Problem, Decision]) -> None:
    problem, decision = decided
    jobs, starts = problem.jobs, Starts(problem, decision)
    for job in range(len(jobs)):
        leaf, order = int(jobs.leaf[job]), int(jobs.order[job])
        better = [j for j in decision.placement if jobs.leaf[j] == leaf and jobs.order[j] < order]
        others = [j for j in decision.placement if jobs.leaf[j] != leaf]
        count = starts.better(leaf, order)
        assert sorted(starts.of_leaf(leaf)[:count]) == sorted(better)
        assert starts.largest_of(leaf, count) == sorted(better, key=lambda j: (-jobs.size[j], j))[:5]
        assert starts.largest_beside(leaf) == sorted(others, key=lambda j: (-jobs.size[j], j))[:5]


def test_beneficiaries_of_all_are_those_of_each(decided: tuple[Problem, Decision]) -> None:
    problem, decision = decided
    gone = victims(problem, decision)
    assert gone
    assert beneficiaries_of_all(problem, decision) == {v: beneficiaries(problem, decision, v) for v in gone}
