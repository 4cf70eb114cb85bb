"""Making room for one replica: against every set of victims that would do."""

from __future__ import annotations

from collections import defaultdict
from itertools import combinations

import pytest

from builders import Budget, Node, Pending, Running, job_at, problem
from cpalloc.generate import GeneratorConfig, generate
from cpalloc.models.constraints.preemption import victims
from cpalloc.problem.compile import compile_round
from cpalloc.problem.problem import BoolArray
from cpalloc.solver import room
from cpalloc.solver.greedy import greedy
from cpalloc.solver.placing import GreedyState, slots_on


def test_room_for_one_is_the_cheapest_there_is_but_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    for_one, seen = room._for_one, []

    def compared(state: GreedyState, job: int, here: BoolArray) -> room._Room | None:
        found, least = for_one(state, job, here), _cheapest(state, job, here)
        seen.append((None if found is None else found[:2], least))
        if found is not None:
            _, _, victims, have = found
            assert room._Losses(state).admit(victims)
            assert all(_slots_without(state, job, node, victims) == have[node] for node in have)
            assert sum(have.values()) >= 1
        return found

    monkeypatch.setattr(room, "_for_one", compared)
    for seed in range(4):
        for family in ("mixed", "gang-heavy"):
            greedy(compile_round(generate(GeneratorConfig(nodes=96, seed=seed, family=family))).problem)
    assert len(seen) > 100
    assert all((found is None) == (least is None) for found, least in seen)  # in these rounds; not in all
    assert all(found >= least for found, least in seen if found is not None and least is not None)
    assert sum(found == least for found, least in seen) > 0.9 * len(seen)


def _cheapest(state: GreedyState, job: int, here: BoolArray) -> tuple[int, int] | None:
    """Cost and number of the victims of the cheapest set on one node, among all sets."""
    problem, on = state.problem, defaultdict(list)
    for v in sorted(set(problem.held.job[here].tolist())):
        for node in room._leaves(state, here, v):
            on[node].append(v)
    sets = {(node, some) for node, all_ in on.items() for k in range(len(all_)) for some in combinations(all_, k + 1)}
    costs = ((int(problem.jobs.preempt_cost[list(some)].sum()), len(some), node, some) for node, some in sets)
    for cost, number, node, some in sorted(costs):
        if room._Losses(state).admit(some) and _slots_without(state, job, node, some) >= 1:
            return cost, number
    return None


def _slots_without(state: GreedyState, job: int, node: int, victims: list[int] | tuple[int, ...]) -> int:
    for v in victims:
        state.usage.evict(v)
    slots = slots_on(state, job, node)
    for v in victims:
        state.usage.restore(v)
    return slots


def test_a_node_that_is_free_for_others_hides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    # n2 has what the job wants and is not for it; on n1 both loans have to go.
    p = problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[
            *(Running(f"r{i}", budget="y", at="n1", gpus=4, lost_s=60) for i in range(2)),
            Pending("new", budget="x", gpus=8, nodes={"n1"}),
        ],
        budgets=[Budget("x", entitled=8, claim=8), Budget("y")],
    )
    monkeypatch.setattr(room, "_for_gang", lambda *_: None)
    decision = greedy(p)
    assert job_at(p, "new") in decision.placement
    assert len(victims(p, decision)) == 2
