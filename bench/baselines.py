"""What other ways to solve the same round reach: a naive CP-SAT model, HiGHS alone, the greedy, beside cpalloc.

``python -m bench.baselines --sizes 16,32,64 --seeds 1-2 --families mixed,gang-heavy --time-limit 20``. All get the same
request, cut down to the tiers that every one of them states, one after the other in one process a case. The table is
also what ``python -m bench.table --update`` writes into a block ``<!-- bench NAME: --baselines --sizes 16,32,64 -->``.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markdown import Markdown

from bench.render import report
from bench.runner import plan_of, plan_options, progress, run
from bench.table import PIPED_WIDTH

if TYPE_CHECKING:
    from bench.cases import Case
    from bench.rivals import Outcome
    from cpalloc.problem.problem import Problem

ASKED = ("starvation", "shortfall", "preemption")
"""Tiers of the request."""


def cut_down(document: dict[str, Any]) -> dict[str, Any]:
    """A request with the tiers that every solver states, and without promises, which come after them."""
    policy = {**document.get("policy", {}), "tiers": list(ASKED), "reservations": 0}
    return {**document, "policy": policy}


def measure_baselines(case: Case) -> dict[str, Any]:
    """Solve the cut down request of a case with every rival, cpalloc first."""
    from bench.rivals import RIVALS
    from cpalloc.generate import generate_doc
    from cpalloc.problem.compile import compile_round
    from cpalloc.schema import parse_round

    problem = compile_round(parse_round(json.dumps(cut_down(generate_doc(case.config))))).problem
    return {
        "case": case.name,
        "group": case.group,
        "nodes": case.config.nodes,
        "seed": case.config.seed,
        "limit_s": case.config.time_limit,
        "asked": list(ASKED),
        "baselines": [_row(rival, problem) for rival in RIVALS],
    }


def _row(rival: Callable[[Problem], Outcome], problem: Problem) -> dict[str, Any]:
    """What a rival reached, with its seconds from the problem to the last tier."""
    began = time.perf_counter()
    outcome = rival(problem)
    total_s = round(time.perf_counter() - began, 4)
    tiers = [
        {
            "name": reached.tier,
            "value": reached.value,
            "bound": reached.bound,
            "proved": reached.proved,
            "seconds": round(reached.seconds, 4),
        }
        for reached in outcome.tiers
    ]
    return {"solver": outcome.solver, "variables": outcome.variables, "total_s": total_s, "tiers": tiers}


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print, and write what was asked for."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.baselines", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    plan_options(parser, choose=False)
    parser.set_defaults(sizes=(16, 32, 64), seeds=(1, 2))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every result")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table")
    options = parser.parse_args(argv)
    plan = plan_of(options, measure="baselines")
    with progress([plan]) as tick:
        results = run(plan, tick)
    text = report(results)
    if options.markdown:
        options.markdown.write_text(text, encoding="utf-8")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    console = Console()
    Console(width=None if console.is_terminal else PIPED_WIDTH).print(Markdown(text))


if __name__ == "__main__":
    main()
