"""How else could the models of a round be solved? ``python -m bench.searches --nodes 64 --seeds 1-3``.

Solves generated rounds as usual, keeps every model that took the solver longer than ``--least`` seconds, and solves it
again, alone and with one worker: with CP-SAT under other parameters, and as a MIP with HiGHS (big-M rows for what is
conditional). Wall clock, one after the other; compare columns of one run only.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

from google.protobuf import text_format
from ortools.math_opt import model_pb2
from ortools.math_opt.python import mathopt
from ortools.sat import cp_model_pb2
from ortools.sat.python import cp_model
from rich.console import Console
from rich.table import Table

from bench.ranges import numbers
from cpalloc.engine import solve_round
from cpalloc.generate import GeneratorConfig, generate_doc
from cpalloc.problem.problem import Options
from cpalloc.schema import parse_round
from cpalloc.solver import models, run

INFINITY = float("inf")


@dataclass(frozen=True, slots=True)
class Kept:
    """A model as it was solved, with its hint and objective."""

    label: str
    proto: cp_model_pb2.CpModelProto


def _plain(_: Any) -> None:
    """The parameters of the first of the two racing searches."""


def _lp_search(p: Any) -> None:
    p.search_branching, p.cut_level = type(p.search_branching).LP_SEARCH, 1


def _cuts(p: Any) -> None:
    p.cut_level = 1


def _light_lp(p: Any) -> None:
    p.linearization_level = 1


def _more_presolve(p: Any) -> None:
    p.max_presolve_iterations, p.cp_model_probing_level, p.symmetry_level = 3, 2, 2


def _lb_tree(p: Any) -> None:
    p.optimize_with_lb_tree_search = True


VARIANTS: dict[str, Callable[[Any], None]] = {
    "as it is": _plain,
    "LP search": _lp_search,
    "cuts": _cuts,
    "light LP": _light_lp,
    "presolve": _more_presolve,
    "LB tree": _lb_tree,
}


@contextmanager
def keeping(kept: list[Kept], label: str, least_s: float) -> Iterator[None]:
    """Keep the models that are solved inside, but for those solved sooner than ``least_s``."""
    minimise, model = models.minimise, models.Models.current
    part = [""]

    def named(self: models.Models, name: str, index: int) -> Any:
        part[0] = f"{label} {name}.{index}"
        return model(self, name, index)

    def watched(asked: cp_model.CpModel, objective: Any, **options: Any) -> run.Run:
        found = minimise(asked, objective, **options)
        if found.seconds >= least_s:
            kept.append(Kept(part[0], proto_of(asked)))
        return found

    with patch.object(models, "minimise", watched), patch.object(models.Models, "current", named):
        yield


def proto_of(model: cp_model.CpModel) -> cp_model_pb2.CpModelProto:
    """The model as a protobuf message."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.pb"
        model.export_to_file(str(path))  # type: ignore[no-untyped-call]
        return cp_model_pb2.CpModelProto.FromString(path.read_bytes())


@dataclass(frozen=True, slots=True)
class Outcome:
    """Whether the optimum was proved, what was found (None: nothing), and the seconds it took."""

    proved: bool
    value: float | None
    seconds: float

    def __str__(self) -> str:
        return f"{self.seconds:.2f}" if self.proved else f"[dim]({self.seconds:.2f})[/]"


def with_cp_sat(kept: Kept, change: Callable[[Any], None], limit_s: float) -> Outcome:
    """Solve with CP-SAT under changed parameters."""
    model = cp_model.CpModel()
    model.proto.parse_text_format(text_format.MessageToString(kept.proto))
    solver = cp_model.CpSolver()
    run.parameters(solver, Options(), limit_s, presolve=True, lp_search=False)
    change(solver.parameters)
    began = time.perf_counter()
    status = solver.solve(model)
    seconds = time.perf_counter() - began
    found = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    return Outcome(status == cp_model.OPTIMAL, solver.objective_value if found else None, seconds)


def with_highs(kept: Kept, limit_s: float) -> Outcome:
    """Solve with HiGHS; not at all (and for as long as may be) where a constraint is no linear one."""
    proto = as_mip(kept.proto)
    if proto is None:
        return Outcome(False, None, limit_s)
    parameters = mathopt.SolveParameters(time_limit=timedelta(seconds=limit_s))
    began = time.perf_counter()
    result = mathopt.solve(mathopt.Model.from_model_proto(proto), mathopt.SolverType.HIGHS, params=parameters)
    seconds = time.perf_counter() - began
    proved = result.termination.reason is mathopt.TerminationReason.OPTIMAL
    return Outcome(proved, result.objective_value() if result.has_primal_feasible_solution() else None, seconds)


Row = tuple[dict[int, int], float, float]


def as_mip(model: cp_model_pb2.CpModelProto) -> model_pb2.ModelProto | None:
    """Linear rows, conditional ones with the least M that the domains allow; None where something else is in it."""
    low = [v.domain[0] for v in model.variables]
    high = [v.domain[-1] for v in model.variables]
    rows: list[Row] = []
    for constraint in model.constraints:
        found = _rows(constraint, low, high)
        if found is None:
            return None
        rows += found
    out = model_pb2.ModelProto()
    out.variables.ids.extend(range(len(low)))
    out.variables.lower_bounds.extend(low)
    out.variables.upper_bounds.extend(high)
    out.variables.integers.extend([True] * len(low))
    out.linear_constraints.ids.extend(range(len(rows)))
    out.linear_constraints.lower_bounds.extend(lo for _, lo, _ in rows)
    out.linear_constraints.upper_bounds.extend(hi for _, _, hi in rows)
    matrix = out.linear_constraint_matrix
    for i, (terms, _, _) in enumerate(rows):
        for var, factor in sorted(terms.items()):
            if factor:
                matrix.row_ids.append(i)
                matrix.column_ids.append(var)
                matrix.coefficients.append(factor)
    cost = _sum(zip(model.objective.vars, model.objective.coeffs, strict=True))
    out.objective.linear_coefficients.ids.extend(sorted(cost))
    out.objective.linear_coefficients.values.extend(cost[v] for v in sorted(cost))
    out.objective.offset = model.objective.offset
    return out


def _sum(terms: Any) -> dict[int, int]:
    total: dict[int, int] = {}
    for var, factor in terms:
        total[var] = total.get(var, 0) + int(factor)
    return total


def _clause(literals: list[int]) -> Row:
    """At least one literal holds; -v - 1 is the negation of v."""
    terms = _sum((v, 1) if v >= 0 else (-v - 1, -1) for v in literals)
    return terms, 1 - sum(v < 0 for v in literals), INFINITY


def _rows(constraint: Any, low: list[int], high: list[int]) -> list[Row] | None:
    kind, only_if = constraint.WhichOneof("constraint"), list(constraint.enforcement_literal)
    if kind == "bool_or":
        return [_clause([*constraint.bool_or.literals, *(-v - 1 for v in only_if)])]
    if kind == "bool_and":
        return [_clause([v, *(-w - 1 for w in only_if)]) for v in constraint.bool_and.literals]
    if kind != "linear":
        return None
    terms = _sum(zip(constraint.linear.vars, constraint.linear.coeffs, strict=True))
    lo, hi = constraint.linear.domain[0], constraint.linear.domain[-1]
    least = sum(c * (low[v] if c > 0 else high[v]) for v, c in terms.items())
    most = sum(c * (high[v] if c > 0 else low[v]) for v, c in terms.items())
    if not only_if:
        return [(terms, max(lo, least), min(hi, most))]
    rows = []
    if hi < most:
        rows.append(_when(only_if, terms, most - hi, -INFINITY, hi))
    if lo > least:
        rows.append(_when(only_if, terms, least - lo, lo, INFINITY))
    return rows


def _when(literals: list[int], terms: dict[int, int], big: int, lo: float, hi: float) -> Row:
    """Σ terms + big · (number of literals that hold − all) within [lo, hi]."""
    out = dict(terms)
    shift = 0
    for v in literals:
        var, factor = (v, 1) if v >= 0 else (-v - 1, -1)
        out[var] = out.get(var, 0) + big * factor
        shift += big * (v < 0)
    move = big * len(literals) - shift
    return out, lo + move, hi + move


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--seeds", type=numbers, default=numbers("1-3"))
    parser.add_argument("--families", default="mixed,gang-heavy")
    parser.add_argument("--least", type=float, default=0.2, help="seconds; models solved sooner are left out")
    parser.add_argument("--time-limit", type=float, default=10.0, help="seconds a solve")
    args = parser.parse_args()
    kept: list[Kept] = []
    for family in args.families.split(","):
        for seed in args.seeds:
            document = generate_doc(GeneratorConfig(nodes=args.nodes, seed=seed, family=family))
            document["options"] = {"time_limit": 20}
            with keeping(kept, f"{family}-{args.nodes}-s{seed}", args.least):
                solve_round(parse_round(json.dumps(document)))
    Console().print(table(kept, args.time_limit))


def table(kept: list[Kept], limit_s: float) -> Table:
    """Seconds of every model under every variant; in brackets where it was not proved in time."""
    out = Table("model", *VARIANTS, "HiGHS", title=f"{len(kept)} models, at most {limit_s:g} s each")
    sums = dict.fromkeys([*VARIANTS, "HiGHS"], 0.0)
    proofs = dict.fromkeys(sums, 0)
    for model in kept:
        found = {name: with_cp_sat(model, change, limit_s) for name, change in VARIANTS.items()}
        found["HiGHS"] = with_highs(model, limit_s)
        out.add_row(model.label, *(str(outcome) for outcome in found.values()))
        for name, outcome in found.items():
            sums[name] += outcome.seconds
            proofs[name] += outcome.proved
    out.add_section()
    out.add_row("sum", *(f"{x:.1f}" for x in sums.values()))
    out.add_row("proved", *(str(n) for n in proofs.values()))
    return out


if __name__ == "__main__":
    main()
