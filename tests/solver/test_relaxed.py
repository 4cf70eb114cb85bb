"""Bounds of linear relaxations, where the whole model is too big to be solved."""

from __future__ import annotations

import pytest

from cpalloc.engine import solve_round
from cpalloc.generate import GeneratorConfig, generate_doc
from cpalloc.models.objectives import OBJECTIVES
from cpalloc.models.partition import Partition
from cpalloc.models.round import build
from cpalloc.problem.compile import compile_round
from cpalloc.schema import parse_round
from cpalloc.solver import models, relaxations, search
from cpalloc.solver.highs import relaxed
from cpalloc.solver.run import minimise
from models.fixing import ONE_WORKER
from reference.tiny_rounds import tiny_doc


def test_a_relaxation_is_never_above_the_optimum_and_often_at_it() -> None:
    seen = tight = 0
    for seed in range(80):
        problem = compile_round(parse_round(tiny_doc(seed))).problem
        for tier in ("starvation", "shortfall", "preemption"):
            ctx = build(problem, Partition(holds=problem.holds, hard=len(problem.holds)))
            expression = ctx.term(OBJECTIVES[tier])[0]
            least = minimise(ctx.model, expression, options=ONE_WORKER, limit_s=20.0).bound
            found = relaxed(ctx.model, 20.0)
            assert least is not None
            assert found is not None
            bound, values = found
            assert len(values) == len(ctx.model.proto.variables)
            assert bound <= least, (seed, tier)
            seen += least > 0
            tight += bound == least > 0
    assert seen >= 40
    assert tight >= seen // 2


def test_no_time_no_bound() -> None:
    problem = compile_round(parse_round(generate_doc(GeneratorConfig(nodes=64, seed=2)))).problem
    ctx = build(problem, Partition())
    ctx.model.minimize(ctx.term(OBJECTIVES["shortfall"])[0])
    assert relaxed(ctx.model, 0.0) is None


@pytest.mark.parametrize("deterministic", [False, True])
def test_rounds_too_big_for_whole_models_get_bounds_of_relaxations(
    deterministic: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = generate_doc(GeneratorConfig(nodes=16, seed=2))
    document["options"] = {"time_limit": 60, "deterministic": deterministic, "deterministic_limit": 5}
    best = {t.name: t.parts[0] for t in solve_round(parse_round(document)).solution.tiers}
    monkeypatch.setattr(models, "MOST_NODES", 8)
    solution = solve_round(parse_round(document)).solution
    sources = {t.name: t.parts[0].source for t in solution.tiers}
    for tier in solution.tiers[:2]:
        part = tier.parts[0]
        assert part.bound is not None
        assert part.bound <= best[tier.name].best <= part.best
    assert ("lp" in sources.values()) is not deterministic
    monkeypatch.setattr(models, "MOST_NODES_RELAXED", 8)
    sources = {t.name: t.parts[0].source for t in solve_round(parse_round(document)).solution.tiers}
    assert "lp" not in sources.values()
    # Without nodes there is always a bound, at every size and in deterministic mode.
    monkeypatch.setattr(search, "FEW_NODES", 8)
    monkeypatch.setattr(relaxations, "FEW_NODES", 8)
    solution = solve_round(parse_round(document)).solution
    assert "pooled" in {t.parts[0].source for t in solution.tiers}
    for tier in solution.tiers[:2]:
        assert (tier.parts[0].bound or 0) <= best[tier.name].best <= tier.parts[0].best


@pytest.mark.parametrize("lying", ["pooled", "relaxed"])
def test_a_relaxation_that_contradicts_a_known_decision_is_not_believed(
    lying: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    said = (10**9, frozenset[int]()) if lying == "pooled" else 10**9
    monkeypatch.setattr(search, "FEW_NODES", 0)
    monkeypatch.setattr(relaxations, "FEW_NODES", 0)
    monkeypatch.setattr(models.Models, lying, lambda *_: said)
    document = generate_doc(GeneratorConfig(nodes=12, seed=2)) | {"options": {"time_limit": 5}}
    solution = solve_round(parse_round(document)).solution
    assert "contradicts" in caplog.text
    assert all(p.bound is None or p.bound <= p.best for t in solution.tiers for p in t.parts)
