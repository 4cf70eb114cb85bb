"""Properties that need the inside: more capacity, and preemptions that are needed."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from cpalloc.models.constraints.preemption import victims
from cpalloc.models.objectives import OBJECTIVES
from cpalloc.problem.compile import compile_round
from cpalloc.problem.problem import Action, Decision, Problem
from cpalloc.schema import parse_round
from cpalloc.solver.results import Solution
from cpalloc.solver.solve import solve_problem
from cpalloc.solver.values import violations
from properties.rounds import Doc, any_round, synthetic
from reference.tiny_rounds import tiny_doc

bounded = settings(
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


def compiled(doc: Doc) -> Problem:
    return compile_round(parse_round(doc)).problem


def with_one_more_node(doc: Doc) -> Doc:
    """A free node of an existing kind, in domains of its own."""
    pattern = next(n for n in doc["cluster"]["nodes"] if n.get("state", "ready") == "ready")
    keep = {k: pattern[k] for k in ("gpu_type", "gpus", "resources", "labels") if k in pattern}
    cluster = {**doc["cluster"], "nodes": [*doc["cluster"]["nodes"], {"name": "zz-more", **keep}]}
    return {**doc, "cluster": cluster}


@settings(bounded, max_examples=30)
@given(any_round())
def test_a_further_free_node_never_worsens_the_shortfall(doc: Doc) -> None:
    before, after = compiled(doc), compiled(with_one_more_node(doc))
    assume(not before.refusals or set(before.refusals) == set(after.refusals))
    budgets = replace(
        after.budgets,
        entitled=before.budgets.entitled,
        claim=before.budgets.claim,
        owed=before.budgets.owed,
    )
    after = replace(after, budgets=budgets)
    less, more = solve_problem(before), solve_problem(after)
    for name in ("starvation", "shortfall"):
        parts = [next(t.parts[0] for t in s.tiers if t.name == name) for s in (less, more)]
        assume(all(p.bound == p.best for p in parts))
        assert parts[1].best <= parts[0].best, name


def taken_back(problem: Problem, decision: Decision, job: int) -> Decision:
    action, mode = decision.action.copy(), decision.mode.copy()
    action[job], mode[job] = Action.KEEP, problem.jobs.mode[job]
    return replace(decision, action=action, mode=mode)


def worse(problem: Problem, solution: Solution, decision: Decision) -> bool:
    """Whether a decision breaks a limit of the tiers, or comes later in their strict order."""
    mine = [OBJECTIVES[t.name].evaluate(problem, solution.decision) for t in solution.tiers if t.name != "delay"]
    other = [OBJECTIVES[t.name].evaluate(problem, decision) for t in solution.tiers if t.name != "delay"]
    return other > mine


@settings(bounded, max_examples=80)
@given(st.one_of(st.integers(0, 10_000).map(tiny_doc), st.integers(0, 10_000).map(tiny_doc), synthetic()))
def test_no_preemption_can_be_taken_back(doc: Doc) -> None:
    problem = compiled(doc)
    solution = solve_problem(problem)
    for job in victims(problem, solution.decision):
        changed = taken_back(problem, solution.decision, job)
        assert violations(problem, changed) or worse(problem, solution, changed), problem.jobs.ids[job]
