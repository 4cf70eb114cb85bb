"""The phases of a round as plain functions of a prepared case; what comes before a phase is not timed with it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from bench.cases import Case
from cpalloc import engine
from cpalloc.explain.reasons import Explainer
from cpalloc.generate import generate_doc
from cpalloc.models.objectives import OBJECTIVES
from cpalloc.models.partition import Partition
from cpalloc.models.round import build
from cpalloc.problem.compile import Compiled, compile_round
from cpalloc.problem.problem import Decision, Problem
from cpalloc.schema import Round, fingerprint, parse_round
from cpalloc.solver.greedy import greedy
from cpalloc.solver.hints import hint_of
from cpalloc.solver.outcome import Run
from cpalloc.solver.realise import UnrealisableError, realise
from cpalloc.solver.results import Solution
from cpalloc.solver.run import minimise
from cpalloc.solver.solve import solve_problem
from cpalloc.solver.values import violations

if TYPE_CHECKING:
    from cpalloc.models.variables import ModelContext

REALISED_TIER = "shortfall"
"""The tier whose solution the ``realise`` phase turns into nodes."""

REALISED_WITHIN_S = 2.0


class Prepared:
    """A case and everything its phases start from, each made once, when first asked for."""

    def __init__(self, case: Case) -> None:
        self.case = case

    @cached_property
    def text(self) -> str:
        """The request as JSON text."""
        return json.dumps(generate_doc(self.case.config))

    @cached_property
    def round(self) -> Round:
        """The request, parsed."""
        return parse_round(self.text)

    @cached_property
    def compiled(self) -> Compiled:
        """The request, compiled."""
        return compile_round(self.round)

    @property
    def problem(self) -> Problem:
        """The round from the inside."""
        return self.compiled.problem

    @cached_property
    def greedy(self) -> Decision:
        """The greedy's decision."""
        return greedy(self.problem)

    @cached_property
    def solution(self) -> Solution:
        """The answer of the whole strict-order loop."""
        return solve_problem(self.problem)

    @cached_property
    def model_solved(self) -> tuple[ModelContext, Run]:
        """A model and a solution of one of its tiers."""
        ctx = build_model(self)
        expression = ctx.term(OBJECTIVES[REALISED_TIER])[0]
        hint, options = hint_of(ctx, self.greedy), self.problem.options
        return ctx, minimise(ctx.model, expression, options=options, limit_s=REALISED_WITHIN_S, hint=hint)

    @cached_property
    def client(self) -> Any:
        """An HTTP client that calls the service in this process."""
        from starlette.testclient import TestClient

        from cpalloc.api.app import create_app

        return TestClient(create_app()).__enter__()

    def close(self) -> None:
        """End the service, if there is one."""
        if "client" in vars(self):
            self.client.__exit__(None, None, None)
            del self.client


def parse(case: Prepared) -> Round:
    """JSON text → round, with every check of the snapshot."""
    return parse_round(case.text)


def compile_(case: Prepared) -> Compiled:
    """Round → problem: eligibility, entitlements, arrays."""
    return compile_round(case.round)


def run_greedy(case: Prepared) -> Decision:
    """Problem → the greedy's decision, the first incumbent and the baseline."""
    return greedy(case.problem)


def build_model(case: Prepared) -> ModelContext:
    """Problem → CP-SAT model without an objective, under the coarsest partition."""
    holds = case.problem.holds
    return build(case.problem, Partition(holds=holds, hard=len(holds)))


def solve(case: Prepared) -> Solution:
    """Problem → solution: greedy, then tier by tier; up to the time limit."""
    return solve_problem(case.problem, began=time.perf_counter())


def realise_counts(case: Prepared) -> Decision | None:
    """A solution of the model → nodes and devices; None where the counts of the coarse model have no placement."""
    ctx, run = case.model_solved
    if not run.found:
        return None
    try:
        return realise(ctx, run.value)
    except UnrealisableError:
        return None


def check(case: Prepared) -> None:
    """Every constraint's plain check of the final decision.

    Raises
    ------
    AssertionError
        When the decision breaks a rule.
    """
    broken = violations(case.problem, case.solution.decision)
    assert not broken, broken[:3]


def explain(case: Prepared) -> object:
    """Decision → the reason of every waiting job."""
    proved = case.solution.stop_reason == "proved"
    return Explainer(case.problem, case.solution.decision, proved=proved).reasons()


def decode(case: Prepared) -> str:
    """Solution → the answer as JSON text, reasons included."""
    solved = engine.Solved(case.compiled, case.solution, (), 0.0)
    # The function is private: nobody but the engine decodes, and this is its second half, timed.
    return engine._decode(case.round, solved, fingerprint(case.round), time.perf_counter()).model_dump_json()


def whole(case: Prepared) -> str:
    """JSON text in → JSON text out."""
    return engine.solve(parse_round(case.text)).model_dump_json()


def http(case: Prepared) -> bytes:
    """The whole of ``POST /v1/solve``, through the service but not through a socket.

    Raises
    ------
    AssertionError
        When the service does not answer 200.
    """
    answer = case.client.post("/v1/solve", content=case.text, headers={"content-type": "application/json"})
    assert answer.status_code == 200, answer.text[:300]
    return bytes(answer.content)


PHASES: Mapping[str, Callable[[Prepared], object]] = {
    "parse": parse,
    "compile": compile_,
    "greedy": run_greedy,
    "build": build_model,
    "realise": realise_counts,
    "solve": solve,
    "check": check,
    "explain": explain,
    "decode": decode,
    "whole": whole,
    "http": http,
}
"""In the order of a round."""

SOLVING = frozenset({"solve", "whole", "http"})
"""Phases that may take the whole time limit: one round is enough."""
