"""The greedy: every rule holds, and it does what a good conventional scheduler would do."""

from __future__ import annotations

import pytest

from cpalloc.generate import GeneratorConfig, generate
from cpalloc.models.objectives import OBJECTIVES
from cpalloc.problem.compile import compile_round
from cpalloc.problem.problem import Action, status_quo
from cpalloc.solver import room
from cpalloc.solver.greedy import greedy
from cpalloc.solver.values import violations


@pytest.mark.parametrize("family", ["mixed", "gang-heavy"])
@pytest.mark.parametrize("nodes", [8, 64])
@pytest.mark.parametrize("seed", range(3))
def test_every_rule_holds_and_it_beats_doing_nothing(family: str, nodes: int, seed: int) -> None:
    problem = compile_round(generate(GeneratorConfig(nodes=nodes, seed=seed, family=family))).problem
    decision = greedy(problem)
    assert violations(problem, decision) == []
    quo = status_quo(problem)
    for tier in ("starvation", "shortfall", "idle"):
        assert OBJECTIVES[tier].evaluate(problem, decision)[0] <= OBJECTIVES[tier].evaluate(problem, quo)[0]


@pytest.mark.parametrize("knobs", [{"odd_sizes": 0.3}, {"cpu_bound": 0.5}, {"odd_sizes": 0.3, "cpu_bound": 0.5}])
def test_odd_sizes_and_scarce_cpus(knobs: dict[str, float]) -> None:
    problem = compile_round(generate(GeneratorConfig(nodes=32, seed=5, **knobs))).problem
    decision = greedy(problem)
    assert violations(problem, decision) == []
    assert (decision.action == Action.START).any()


def test_the_same_round_gives_the_same_decision() -> None:
    problem = compile_round(generate(GeneratorConfig(nodes=64, seed=9))).problem
    first, second = greedy(problem), greedy(problem)
    assert (first.action == second.action).all()
    assert first.placement == second.placement


@pytest.mark.parametrize("tried", [1, 2])
def test_room_is_made_where_it_is_if_every_domain_is_looked_at(monkeypatch: pytest.MonkeyPatch, tried: int) -> None:
    # What a domain costs at least says which need not be looked at: the decisions are the same without it.
    found, by_domain = [], room._by_domain
    monkeypatch.setattr(room, "MOST_DOMAINS", tried)
    problems = [
        compile_round(generate(config)).problem
        for seed in range(6)
        for family in ("mixed", "gang-heavy")
        for config in [GeneratorConfig(nodes=96, seed=seed, family=family, nodes_per_rack=4, required_topology=0.9)]
    ]
    for each in (by_domain, lambda *given: ((d, inside, 0.0) for d, inside, _ in by_domain(*given))):
        monkeypatch.setattr(room, "_by_domain", each)
        found.append([greedy(p) for p in problems])
    for quickly, slowly in zip(*found, strict=True):
        assert quickly.placement == slowly.placement
        assert quickly.action.tolist() == slowly.action.tolist()
    assert sum(int((d.action == Action.PREEMPT).sum()) for d in found[0]) > 40
