"""Whether a waiting job would fit without worse-ranked starts: what models say of it, against the definition."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from random import Random

import numpy as np
import pytest
from ortools.sat.python import cp_model

from builders import Node, Pending, problem
from cpalloc.generate import GeneratorConfig, generate
from cpalloc.models.fit import may_not_fit
from cpalloc.models.objectives import OBJECTIVES
from cpalloc.models.objectives.inversion import weight
from cpalloc.models.partition import Partition
from cpalloc.models.places import eligibility_covers, takes_place_of
from cpalloc.models.round import build
from cpalloc.models.variables import Linear, ModelContext, dot
from cpalloc.problem.compile import compile_round
from cpalloc.problem.problem import Decision, JobState, Mode, Problem
from cpalloc.schema import parse_round
from cpalloc.solver.outcome import Status
from cpalloc.solver.run import minimise
from models.fixing import ONE_WORKER, any_decision, counted, fixed, told_apart, without_lent
from reference.tiny_rounds import tiny_doc

TIER = OBJECTIVES["inversion"]


def small(seed: int) -> Problem:
    """A generated round of 4-8 nodes in racks of two."""
    rng = Random(seed)
    config = GeneratorConfig(
        nodes=rng.randint(4, 8),
        seed=seed,
        family=rng.choice(["mixed", "gang-heavy"]),
        nodes_per_rack=2,
        racks_per_block=2,
        budgets=rng.randint(1, 4),
        fill=rng.choice([0.3, 0.6, 0.9]),
        odd_sizes=rng.choice([0.0, 0.3]),
        cpu_bound=rng.choice([0.0, 0.3]),
    )
    return compile_round(generate(config)).problem


def tiny(seed: int) -> Problem:
    return compile_round(parse_round(tiny_doc(seed))).problem


@cache
def drawn(source: str) -> tuple[tuple[Problem, Decision], ...]:
    """Rounds and decisions drawn at random, mostly such as pass somebody over."""
    rng, out = Random(source), []
    for seed in range(240 if source == "tiny" else 12):
        p = tiny(seed) if source == "tiny" else small(seed)
        for _ in range(4):
            d = any_decision(p, rng)
            if d is not None and (TIER.evaluate(p, d)[0] or rng.random() < 0.1):
                out.append((p, d))
    return tuple(out)


@pytest.mark.parametrize("source", ["tiny", "generated"])
@pytest.mark.parametrize("how", ["plain", "watched", "split", "gangs", "apart", "exact", "mixed"])
def test_no_decision_is_worth_less_than_the_model_says(how: str, source: str) -> None:
    rng, found = Random(how), 0
    for p, d in drawn(source):
        said = counted(p, told_apart(p, how, rng), d)
        value = TIER.evaluate(p, d)[0]
        assert said is not None
        assert said <= value
        found += said > 0
    assert found >= 10


def test_what_is_stated_exactly_is_the_value_where_terms_are_modelled() -> None:
    seen = 0
    for p, d in drawn("generated"):
        jobs = p.jobs
        if (jobs.exclusive | jobs.same_gpu_group | (jobs.max_per_node > 0))[jobs.state == JobState.PENDING].any():
            continue
        value = TIER.evaluate(p, d)[0]
        assert counted(p, told_apart(p, "exact", Random(0)), d) == value
        seen += value > 0
    assert seen >= 10


@pytest.mark.parametrize("source", ["tiny", "generated"])
def test_firmly_nobody_is_passed_over_unseen(source: str) -> None:
    above = 0
    for p, d in drawn(source):
        said, value = counted(p, told_apart(p, "firm", Random(0)), d), TIER.evaluate(p, d)[0]
        assert said is not None
        assert said >= value
        above += said > value
    assert above > 0


@pytest.mark.parametrize("source", ["tiny", "generated"])
@pytest.mark.parametrize("how", ["plain", "watched", "gangs", "apart", "exact"])
def test_without_borrowing_the_model_says_no_more_of_what_is_left(how: str, source: str) -> None:
    rng, dropped = Random(how), 0
    for p, d in drawn(source):
        full = told_apart(p, how, rng)
        only = frozenset(np.flatnonzero(~p.jobs.may_allocate).tolist())
        coarse = replace(full, lend=False, watched=full.watched - only, exact=full.exact - only)
        rest = without_lent(p, d)
        said = counted(p, coarse, rest)
        assert said is not None
        assert said <= TIER.evaluate(p, d)[0]
        dropped += len(rest.placement) < len(d.placement)
    assert dropped > 0


# -- one row a start instead of one a pair ----------------------------------------------------------------------------


def pairwise_rows(ctx: ModelContext) -> Linear:
    """The tier as a row for every pair of a job and a worse-ranked start."""
    jobs, covers = ctx.problem.jobs, eligibility_covers(ctx.problem)
    terms = []
    for j in sorted({job for job, _ in ctx.y} | ctx.partition.watched | ctx.partition.firm):
        rows: list[tuple[cp_model.IntVar, Linear]] = []
        for mode, may in ((Mode.ALLOCATED, jobs.may_allocate[j]), (Mode.BORROWED, jobs.may_borrow[j])):
            worse = [
                i for i, m in ctx.y if m is mode and jobs.leaf[i] == jobs.leaf[j] and jobs.order[i] > jobs.order[j]
            ]
            if may and worse:
                rows += [row for i in worse for row in _rows(ctx, covers, j, mode, i, worse)]
        if rows:
            passed = ctx.model.new_bool_var("")
            for begun, alibi in rows:
                ctx.model.add(passed + dot([(1, v) for v in ctx.started(j)]) + alibi >= begun)
            terms.append((weight(ctx.problem, j), passed))
    return dot(terms)


def _rows(
    ctx: ModelContext, covers: np.ndarray, job: int, mode: Mode, other: int, worse: list[int]
) -> Iterator[tuple[cp_model.IntVar, Linear]]:
    """When a start passes a job over, and what may excuse it, row by row."""
    if job in ctx.partition.firm:
        yield ctx.y[other, mode], 0
        return
    for s in ctx.shapes_of(other, mode):
        pool = ctx.kind(ctx.layout.shapes[s].kind).pool
        if takes_place_of(ctx.problem, covers, job, other, pool):
            yield ctx.in_shape[other, mode, s], 0
    if job in ctx.partition.watched and (excuse := may_not_fit(ctx, job, mode, worse)) is not None:
        yield ctx.y[other, mode], excuse


@pytest.mark.parametrize("source", ["tiny", "generated"])
@pytest.mark.parametrize("how", ["plain", "watched", "gangs", "firm"])
def test_chains_say_what_pairs_say(how: str, source: str) -> None:
    """The same jobs start as in some decision, wherever it suits."""
    found = 0
    for p, d in drawn(source):
        told, optima = told_apart(p, how, Random(0)), []
        for pairs in (False, True):
            ctx = build(p, told)
            for (j, mode), var in ctx.y.items():
                ctx.model.add(var == int(j in d.placement and d.mode[j] == mode))
            run = minimise(ctx.model, pairwise_rows(ctx) if pairs else ctx.term(TIER)[0], options=ONE_WORKER, limit_s=9)
            assert run.status is Status.OPTIMAL
            optima.append(run.bound)
        assert optima[0] == optima[1]
        found += optima[0] != 0
    assert found >= 5


@pytest.mark.parametrize("how", ["plain", "watched", "firm"])
def test_chains_say_of_every_decision_what_pairs_say(how: str) -> None:
    for p, d in drawn("generated"):
        told = told_apart(p, how, Random(0))
        ctx = fixed(p, told, d)
        run = minimise(ctx.model, pairwise_rows(ctx), options=ONE_WORKER, limit_s=9)
        assert run.bound == counted(p, told, d)


def test_chains_take_a_variable_a_start() -> None:
    p = problem(nodes=[Node("n1")], jobs=[Pending(f"j{i:02}", priority=i % 3, gpus=1 + i % 2) for i in range(20)])
    ctx = build(p, Partition(watched=frozenset(range(20))))
    ctx.term(TIER)
    names = [name for v in ctx.model.proto.variables if (name := str(v.name)).startswith("any")]
    assert len(names) == len(set(names))
    assert 0 < len(names) <= 2 * len(ctx.y)  # one chain over all, one over those of like terms
