"""Regions: parts of the cluster in which a decision may change, everything else being as decided."""

from __future__ import annotations

import dataclasses

import pytest

import cpalloc.solver.models as models
import cpalloc.solver.regions as regions_module
from cpalloc.generate import GeneratorConfig, generate
from cpalloc.models.constraints.preemption import victims
from cpalloc.models.objectives import OBJECTIVES
from cpalloc.models.partition import Partition
from cpalloc.models.round import build
from cpalloc.problem.compile import compile_round
from cpalloc.problem.problem import NodeState, Options, Problem
from cpalloc.solver.greedy import greedy
from cpalloc.solver.realise import realise
from cpalloc.solver.regions import partition_of, regions
from cpalloc.solver.results import Clock
from cpalloc.solver.run import minimise
from cpalloc.solver.solve import solve_problem
from cpalloc.solver.strict import StrictOrder
from cpalloc.solver.values import violations

ROUNDS = [(family, seed) for family in ("mixed", "gang-heavy") for seed in range(4)]


def round_of(family: str, seed: int, nodes: int = 32) -> Problem:
    problem = compile_round(generate(GeneratorConfig(nodes=nodes, seed=seed, family=family))).problem
    return dataclasses.replace(problem, options=Options(workers=1, deterministic=True, deterministic_limit=3.0))


@pytest.mark.parametrize("sweep", [0, 1, 2])
def test_every_node_is_in_one_region(sweep: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regions_module, "NODES", 6)
    problem = round_of("mixed", 1)
    found = [nodes for nodes, _ in regions(problem, greedy(problem), sweep)]
    assert len(found) > 2
    ready = [n for n, state in enumerate(problem.nodes.state.tolist()) if state == NodeState.READY]
    assert sorted(n for nodes in found for n in nodes) == ready
    assert all(len({int(problem.nodes.pool[n]) for n in nodes}) == 1 for nodes in found)


def test_what_is_lost_most_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regions_module, "NODES", 6)
    problem = round_of("mixed", 1)
    parts = [part for _, part in regions(problem, greedy(problem), 0)]
    assert all(0 <= part <= 1 for part in parts)
    left, cost = 1.0, []
    for part in parts:
        cost.append(left * part)
        left -= cost[-1]
    assert cost == sorted(cost, reverse=True)
    assert sum(cost) == pytest.approx(1.0)


@pytest.mark.parametrize(("family", "seed"), ROUNDS)
def test_outside_everything_stays(family: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regions_module, "NODES", 8)
    problem = round_of(family, seed)
    decision = greedy(problem)
    for nodes, _ in regions(problem, decision, 0):
        partition = partition_of(problem, Partition(holds=problem.holds, lend=False, split=True), decision, nodes)
        ctx = build(problem, partition)
        expression = ctx.term(OBJECTIVES["preemption"])[0]
        for tier in ("starvation", "shortfall"):
            ctx.model.add(ctx.term(OBJECTIVES[tier])[0] <= OBJECTIVES[tier].evaluate(problem, decision)[0])
        run = minimise(ctx.model, expression, options=problem.options, limit_s=3.0)
        assert run.found  # the decision itself is a solution
        assert run.objective <= OBJECTIVES["preemption"].evaluate(problem, decision)[0]
        found = realise(ctx, run.value)
        outside = {j: reps for j, reps in decision.placement.items() if not any(rep.node in nodes for rep in reps)}
        assert {j: found.placement[j] for j in outside} == outside
        gone, before = set(victims(problem, found)), set(victims(problem, decision))
        touched = {j for j in gone ^ before if any(rep.node not in nodes for rep in problem.jobs.placement[j])}
        assert not touched
        broken = {v.constraint for v in violations(problem, found)}
        assert broken <= {"preemption", "holds"}  # what a coarse model relaxes


@pytest.mark.parametrize("family", ["mixed", "gang-heavy"])
def test_regions_alone_improve_on_the_greedy(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "MOST_NODES", 0)
    monkeypatch.setattr(regions_module, "NODES", 12)
    better = 0
    for seed in range(6):
        problem = round_of(family, seed)
        solved = solve_problem(problem)
        fallback = StrictOrder(problem, Clock(0.0), [greedy(problem)]).solve()
        assert violations(problem, solved.decision) == []
        mine = {t.name: t.parts[0] for t in solved.tiers}
        theirs = {t.name: t.parts[0] for t in fallback.tiers}
        assert OBJECTIVES["shortfall"].evaluate(problem, solved.decision)[0] <= mine["shortfall"].limit
        assert all(part.source in ("trivial", "cp_sat", "pooled") for part in mine.values())
        order = ("starvation", "inversion", "preemption")
        assert mine["starvation"].best <= theirs["starvation"].best
        better += [mine[t].best for t in order] < [theirs[t].best for t in order]
    assert better >= 3
