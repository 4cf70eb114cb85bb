"""The greedy asks only about starts and promotions that some decision has, and decides as if it asked about all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from random import Random

import numpy as np
import pytest

import cpalloc.solver.greedy as module
from builders import Budget, Node, Pending, job_at, problem
from cpalloc.generate import GeneratorConfig, generate
from cpalloc.models.constraints.preemption import victims
from cpalloc.models.objectives.inversion import inverted
from cpalloc.models.possible import possible
from cpalloc.problem.compile import compile_round
from cpalloc.problem.problem import Action, Decision, JobState, Mode, Problem
from cpalloc.solver.following import sparing
from cpalloc.solver.greedy import greedy, in_order
from cpalloc.solver.values import same, violations
from models.fixing import any_start
from models.possible_rounds import drawn, everything
from models.ruled_out import kept

TINY = range(220)
LENIENT = {"starvation": 10**9, "shortfall": 10**9}
ALL_OF_IT = {"starvation": 0, "shortfall": 0}


def fresh(p: Problem) -> Problem:
    """The same round, of which nothing is remembered."""
    return replace(p)


def asked(p: Problem) -> Counter[Mode]:
    """How many jobs stand in the queues of each mode."""
    return Counter(
        {mode: sum(map(len, module.queues_of(p, mode).values())) for mode in (Mode.ALLOCATED, Mode.BORROWED)}
    )


def same_in_all(a: Decision, b: Decision) -> bool:
    return same(a, b) and a.placement == b.placement and bool((a.promoted == b.promoted).all())


def everyone(p: Problem) -> Iterator[tuple[Mode, int, list[int]]]:
    """Mode by mode and leaf by leaf the jobs that could run or be promoted as far as only they are looked at."""
    jobs = p.jobs
    pending = jobs.state == JobState.PENDING
    for mode, wanted in (
        (Mode.ALLOCATED, pending & jobs.may_allocate | jobs.may_promote),
        (Mode.BORROWED, pending & jobs.may_borrow),
    ):
        for leaf in range(len(p.budgets.claim)):
            mine = np.flatnonzero(wanted & (jobs.leaf == leaf)).tolist()
            yield mode, leaf, sorted(mine, key=lambda j: (int(jobs.order[j]), j))


def rounds() -> Iterator[tuple[str, Problem]]:
    yield from ((f"tiny {seed}", drawn(seed)) for seed in TINY)
    for seed, family in enumerate(("mixed", "gang-heavy", "mixed", "gang-heavy")):
        yield f"{family} {seed}", compile_round(generate(GeneratorConfig(nodes=16, seed=seed, family=family))).problem


def test_decisions_are_those_of_a_greedy_that_asks_about_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: Counter[str] = Counter()
    for name, p in rounds():
        told, spared = fresh(p), [j for j in np.flatnonzero(p.jobs.state == JobState.EVICTABLE).tolist() if j % 2]
        mine = greedy(told), sparing(told, spared, LENIENT), sparing(told, spared, ALL_OF_IT)
        with monkeypatch.context() as patch:
            patch.setattr(module, "possible", everything)
            naive = fresh(p)
            theirs = greedy(naive), sparing(naive, spared, LENIENT), sparing(naive, spared, ALL_OF_IT)
            fewer = asked(naive) - asked(told)
        assert all(same_in_all(a, b) for a, b in zip(mine, theirs, strict=True)), name
        assert violations(p, mine[0]) == [], name
        budgets = p.budgets
        seen.update(
            {
                "left out of a queue": fewer.total(),
                "started": int((mine[0].action == Action.START).sum()),
                "lent": int(((mine[0].action == Action.START) & (mine[0].mode == Mode.BORROWED)).sum()),
                "promoted": int(mine[0].promoted.sum()),
                "preempted": len(victims(p, mine[0])),
                "promised": len(p.holds),
                "capped": int((budgets.max_gpus >= 0).sum() + (budgets.max_borrowed >= 0).sum()),
                "spared otherwise": not same(mine[1], mine[0]),
            }
        )
    assert len(seen) == 8
    assert min(seen.values()) >= 10, seen
    assert seen["left out of a queue"] > 200


def test_decisions_put_in_order_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    ordered = 0
    for seed in TINY:
        p, rng = drawn(seed), Random(seed)
        for _ in range(6):
            candidate = any_start(p, rng)
            passed = inverted(p, candidate)
            if violations(p, candidate) or not passed:
                continue
            ordered += 1
            mine = in_order(fresh(p), candidate, passed, ALL_OF_IT)
            with monkeypatch.context() as patch:
                patch.setattr(module, "possible", everything)
                theirs = in_order(fresh(p), candidate, passed, ALL_OF_IT)
            assert same_in_all(mine, theirs), seed
    assert ordered > 20


def test_queues_hold_who_starts_or_is_promoted_in_some_decision_in_the_order_of_the_budget() -> None:
    for seed in TINY:
        p = drawn(seed)
        can = possible(p)
        for mode, leaf, jobs in everyone(p):
            wanted = {j for j, how in can.starts if how is mode} | (can.promotes if mode is Mode.ALLOCATED else set())
            queue = module.queues_of(p, mode).get(leaf, [])
            assert queue == [j for j in jobs if j in wanted], (seed, mode, leaf)


def test_a_problem_with_fewer_who_may_be_preempted_has_queues_of_its_own() -> None:
    """What :func:`sparing` looks at is another problem; what is remembered of the round says nothing of it."""
    for seed in TINY:
        p = drawn(seed)
        before = asked(p)
        state = p.jobs.state.copy()
        state[state == JobState.EVICTABLE] = JobState.FIXED
        narrowed = replace(p, jobs=replace(p.jobs, state=state))
        assert asked(narrowed) == asked(fresh(narrowed))
        if asked(narrowed) != before:
            return
    pytest.fail("whom preemptions let start makes no difference")


def test_who_has_no_room_whatever_goes_is_not_asked_about() -> None:
    p = problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[kept("there", "n1"), Pending("fits", gpus=8), Pending("never", gpus=8, replicas=2)],
        budgets=[Budget("x", entitled=16, claim=16), Budget("y")],
    )
    assert module.queues_of(p, Mode.ALLOCATED) == {int(p.jobs.leaf[job_at(p, "fits")]): [job_at(p, "fits")]}
    decision = greedy(p)
    assert [int(decision.action[job_at(p, name)]) for name in ("fits", "never")] == [Action.START, Action.WAIT]
