"""Without its constraint the model must go wrong, and the constraint's own check must say so."""

from __future__ import annotations

import pytest

import cpalloc.models.round as model_round
from cpalloc.models.constraints import CONSTRAINTS
from cpalloc.models.objectives import OBJECTIVES
from cpalloc.models.partition import Partition
from cpalloc.models.variables import ModelContext
from cpalloc.problem.compile import compile_round
from cpalloc.problem.problem import Options, Problem
from cpalloc.schema import parse_round
from cpalloc.solver.realise import UnrealisableError, realise
from cpalloc.solver.run import minimise
from reference.tiny_rounds import tiny_doc

BUILT = ("capacity", "spread", "preemption", "floor", "limits", "holds", "funding")
"""Constraints that add rows; the others restrict by the variables that exist."""

PUSHING = ("shortfall", "idle", "starvation")
"""Tiers that push against the rules."""


def partition(problem: Problem) -> Partition:
    """Everything told apart that a rule asks about."""
    leaves = frozenset(range(len(problem.budgets.leaf_vertex)))
    return Partition(leaves=leaves, holds=problem.holds, hard=len(problem.holds), split=True)


def complaints(problem: Problem, ctx: ModelContext, tier: str, name: str) -> list[str]:
    """What a constraint's check says of the optimum of a tier."""
    run = minimise(ctx.model, ctx.term(OBJECTIVES[tier])[0], options=Options(workers=1), limit_s=10)
    assert run.found
    try:
        decision = realise(ctx, run.value)
    except UnrealisableError as reason:
        return [str(reason)] if name == "capacity" else []
    rule = next(c for c in CONSTRAINTS if c.name == name)
    return [v.message for v in rule.check(problem, decision)]


@pytest.mark.parametrize("name", BUILT)
def test_without_it_its_own_check_complains(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    others = tuple(c for c in CONSTRAINTS if c.name != name)
    for seed in range(900):
        problem = compile_round(parse_round(tiny_doc(seed))).problem
        rule = next(c for c in CONSTRAINTS if c.name == name)
        if not rule.applies(problem):
            continue
        for tier in PUSHING:
            monkeypatch.setattr(model_round, "CONSTRAINTS", others)
            mutant = model_round.build(problem, partition(problem))
            if complaints(problem, mutant, tier, name):
                monkeypatch.setattr(model_round, "CONSTRAINTS", CONSTRAINTS)
                whole = model_round.build(problem, partition(problem))
                assert complaints(problem, whole, tier, name) == []
                return
    pytest.fail(f"no round of 900 went wrong without {name}")


@pytest.mark.parametrize("name", ["starvation", "shortfall", "preemption", "idle", "lend"])
def test_what_the_model_says_of_an_exact_tier_is_its_value(name: str) -> None:
    """Stated exactly: the optimum of each part is the value of the decision that the solution stands for."""
    for seed in range(0, 120, 2):
        problem = compile_round(parse_round(tiny_doc(seed))).problem
        ctx = model_round.build(problem, partition(problem))
        for part, expression in enumerate(ctx.term(OBJECTIVES[name])):
            run = minimise(ctx.model, expression, options=Options(workers=1), limit_s=10)
            decision = realise(ctx, run.value)
            assert OBJECTIVES[name].evaluate(problem, decision)[part] == run.bound, f"seed {seed}, part {part}"
