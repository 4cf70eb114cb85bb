"""Models that are not stated anew: rows more in the current one, and copies of it that leave less open."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from random import Random

import numpy as np
import pytest

import cpalloc.solver.models as models
from builders import Budget, Node, Pending, Running, problem
from cpalloc.models.partition import Partition
from cpalloc.models.variables import ModelContext
from cpalloc.problem.problem import Decision, JobState, Problem
from cpalloc.solver.hints import hint_of
from cpalloc.solver.incumbent import Incumbent
from cpalloc.solver.models import Models
from cpalloc.solver.outcome import Status
from cpalloc.solver.results import Clock
from models.fixing import least, told_apart
from models.possible_rounds import drawn
from models.test_fit import drawn as inverting
from models.test_turns import crowded

TIERS = ("starvation", "shortfall", "preemption", "lend", "fragmentation")


def limited(p: Problem, most: int = 0) -> Models:
    """Models of a round in which no more than so much may be passed over."""
    best = Incumbent(p)
    best.limits.append(("inversion", 0, most))
    out = Models(p, best, Clock(3600.0))
    out.repartition(replace(out.partition, lend=True))
    return out


def rounds(count: int) -> Iterator[tuple[Problem, Random]]:
    for seed in range(count):
        yield (crowded if seed % 2 else drawn)(seed), Random(f"rows {seed}")


def some(jobs: frozenset[int], rng: Random, share: float = 0.5) -> frozenset[int]:
    return frozenset(j for j in sorted(jobs) if rng.random() < share)


def waiting(p: Problem) -> frozenset[int]:
    return frozenset(np.flatnonzero(p.jobs.state == JobState.PENDING).tolist())


def current(here: Models) -> ModelContext:
    return here.current("shortfall", 0)[0]


def allows(ctx: ModelContext, decision: Decision) -> bool:
    """Whether a model has a decision."""
    alone = ctx.copied()
    for var, value in hint_of(ctx, decision):
        alone.model.add(var == value)
    return least(alone, "shortfall").status is not Status.INFEASIBLE


def optimum(ctx: ModelContext, tier: str) -> tuple[str, int | None]:
    run = least(ctx, tier)
    return run.status.name, run.objective


@pytest.mark.parametrize(("source", "least_seen"), [("tiny", 20), ("generated", 3)])
def test_a_model_that_watches_more_is_that_of_the_partition(source: str, least_seen: int) -> None:
    rng, counts = Random(source), Counter[str]()
    for how, (p, d) in product(["watched", "gangs", "apart", "exact", "mixed"], inverting(source)):
        here, told = limited(p), told_apart(p, how, rng)
        told = replace(here.partition, single=told.single, apart=told.apart, exact=told.exact)
        here.repartition(replace(told, watched=some(waiting(p), rng, 0.2)))
        before = current(here)
        counts["known"] += not allows(before, d)
        for _ in range(2):
            here.repartition(replace(here.partition, watched=here.partition.watched | some(waiting(p), rng, 0.7)))
        assert current(here) is before
        assert before.partition == here.partition
        assert allows(before, d) == allows(here.build(here.partition), d)
        counts["seen"] += not allows(before, d)
    assert counts["seen"] >= counts["known"] + least_seen


def test_a_narrow_model_is_that_of_its_partition_and_leaves_the_other_as_it_was() -> None:
    counts: Counter[str] = Counter()
    for p, rng in rounds(300):
        here, tier = limited(p), rng.choice(TIERS)
        ctx, _ = here.current(tier, 0)
        rows, before = len(ctx.model.proto.constraints), optimum(ctx, tier)
        narrow = replace(here.partition, stays=here.partition.stays | some(here.evictable(), rng), firm=waiting(p))
        narrow = replace(narrow, firm=some(narrow.firm, rng, 0.8))
        inside = here.narrow(narrow)
        assert inside.layout is ctx.layout
        assert optimum(inside, tier) == optimum(here.build(narrow), tier)
        assert len(ctx.model.proto.constraints) == rows
        assert optimum(ctx, tier) == before
        counts["others"] += optimum(inside, tier) != before
    assert counts["others"] >= 10


def queue() -> Problem:
    """Two of x wait for what is free and what may be taken from y."""
    return problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[
            Running("lent", budget="y", at="n1", gpus=8),
            Pending("first", gpus=8, replicas=2),
            Pending("second", gpus=8),
        ],
        budgets=[Budget("x", entitled=16, claim=16), Budget("y")],
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda known: replace(known, leaves=frozenset({0})),
        lambda known: replace(known, apart=frozenset({1, 2})),
        lambda known: replace(known, split=True),
        lambda known: replace(known, needed=True),
        lambda known: replace(known, fine=True),
    ],
    ids=["leaves", "apart", "split", "needed", "fine"],
)
def test_what_changes_more_than_rows_is_stated_anew(change: Callable[[Partition], Partition]) -> None:
    here = limited(queue())
    before = current(here)
    here.repartition(change(replace(here.partition, watched=frozenset({1, 2}))))
    assert here.context is None
    assert current(here) is not before


def test_nor_are_rows_enough_where_starts_come_back() -> None:
    here = limited(queue())
    here.repartition(replace(here.partition, lend=False, needed=True))
    before = current(here)
    assert here.partition.only_needed()
    here.repartition(replace(here.partition, watched=frozenset({1})))
    assert current(here) is not before


def test_nor_where_somebody_may_be_passed_over() -> None:
    here = limited(queue(), most=8)
    before = current(here)
    narrow = replace(here.partition, firm=frozenset({1}))
    assert here.narrow(narrow).layout is not before.layout
    here.repartition(replace(here.partition, watched=frozenset({1})))
    assert current(here) is not before


def test_a_large_model_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    here = limited(queue())
    ctx = current(here)
    narrow = replace(here.partition, firm=frozenset({1}))
    for most, copied in ((ctx.variables, True), (ctx.variables - 1, False)):
        monkeypatch.setattr(models, "MOST_COPIED", most)
        assert (here.narrow(narrow).layout is ctx.layout) == copied


def test_who_is_watched_no_more_is_not_taken_for_watched() -> None:
    here = limited(queue())
    here.repartition(replace(here.partition, watched=frozenset({1, 2})))
    before = current(here)
    fewer: Partition = replace(here.partition, watched=frozenset({1}))
    here.repartition(fewer)
    assert here.partition == fewer
    assert current(here) is not before


def test_once_time_is_over_who_stays_is_settled_without_counting_what_can_happen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = 0
    for p, rng in rounds(40):
        late = Models(p, Incumbent(p), Clock(3600.0))
        before, dear = late.possible, some(late.possible.goes, rng)
        late.clock = Clock(1.0, time.perf_counter() - 10.0)
        with monkeypatch.context() as patched:
            patched.setattr(models, "possible", lambda *_: pytest.fail("what can happen was counted"))
            late.settle(dear)
        assert late.possible is before
        assert dear <= late.partition.stays == late.evictable() - (before.goes - dear)
        late.clock = Clock(3600.0)
        late.settle(dear)
        assert late.possible.goes <= before.goes - dear
        seen += bool(dear)
    assert seen >= 5
