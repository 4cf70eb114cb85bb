"""How else could the models of a round be solved? ``python -m bench.searches --nodes 64 --seeds 1-3``.

Solves generated rounds as usual, keeps every model that took the solver longer than ``--least`` seconds, and solves it
again, alone and with one worker: with CP-SAT under other parameters, and with HiGHS. Wall clock, one after the other;
compare columns of one run only.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from ortools.sat.python import cp_model
from rich.console import Console
from rich.table import Table

from bench.ranges import numbers
from cpalloc.engine import solve_round
from cpalloc.generate import GeneratorConfig, generate_doc
from cpalloc.problem.problem import Options
from cpalloc.schema import parse_round
from cpalloc.solver import cp_sat, models, run
from cpalloc.solver.highs import Highs
from cpalloc.solver.outcome import Run, Status


@dataclass(frozen=True, slots=True)
class Kept:
    """A model as it was solved, with its hint and objective."""

    label: str
    model: cp_model.CpModel


def _plain(_: Any) -> None:
    """The parameters of the first of the two racing searches."""


def _upwards(p: Any) -> None:
    p.use_objective_lb_search = True


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
    "upwards": _upwards,
    "LP search": _lp_search,
    "cuts": _cuts,
    "light LP": _light_lp,
    "presolve": _more_presolve,
    "LB tree": _lb_tree,
}


@contextmanager
def keeping(kept: list[Kept], label: str, least_s: float) -> Iterator[None]:
    """Keep the models that are solved inside, but for those solved sooner than ``least_s``."""
    minimise, current = run.minimise, models.Models.current
    part = [""]

    def named(self: models.Models, name: str, index: int) -> Any:
        part[0] = f"{label} {name}.{index}"
        return current(self, name, index)

    def watched(asked: cp_model.CpModel, objective: Any, **options: Any) -> Run:
        found = minimise(asked, objective, **options)
        if found.seconds >= least_s:
            model = asked.clone()
            for var, value in options.get("hint", ()):
                model.add_hint(var, value)
            kept.append(Kept(part[0], model))
        return found

    with patch.object(models, "minimise", watched), patch.object(models.Models, "current", named):
        yield


@dataclass(frozen=True, slots=True)
class Outcome:
    """Whether the optimum was proved, what was found (None: nothing), the seconds it took, and a bound where asked."""

    proved: bool
    value: int | None
    seconds: float
    bound: int | None = None

    def __str__(self) -> str:
        return f"{self.seconds:.2f}" if self.proved else f"[dim]({self.seconds:.2f})[/]"


def with_cp_sat(kept: Kept, change: Callable[[Any], None], limit_s: float) -> Outcome:
    """Solve with CP-SAT under changed parameters."""
    solver = cp_model.CpSolver()
    cp_sat.parameters(solver, Options(), limit_s, presolve=True, upwards=False)
    change(solver.parameters)
    began = time.perf_counter()
    status = solver.solve(kept.model)
    seconds = time.perf_counter() - began
    found = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    return Outcome(status == cp_model.OPTIMAL, round(solver.objective_value) if found else None, seconds)


def with_highs(kept: Kept, limit_s: float) -> Outcome:
    """Solve with HiGHS, as a round does but for the head start."""
    found = Highs(kept.model, limit_s, head_start_s=0.0).solve()
    return Outcome(found.status is Status.OPTIMAL, found.objective, found.seconds, found.bound)


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
