"""One case measured in a process of its own: ``python -m bench.measure`` reads what to do and writes what it saw.

Standard input and output are JSON, so that the process that asks never loads a solver: memory and imports stay clean.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.cases import Case
    from cpalloc.problem.problem import Problem
    from cpalloc.schema import Allocation

MEGABYTE = 10**6


def peak_mb() -> float:
    """Peak resident memory of this process so far, in MB; ``ru_maxrss`` is in KiB on Linux and in bytes on macOS."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak * (1 if sys.platform == "darwin" else 1024) / MEGABYTE, 1)


def cpu_s() -> float:
    """Processor seconds of this process so far, all threads."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measure(case: Case) -> dict[str, Any]:
    """Solve a case from JSON text to JSON text, then evaluate the greedy's decision on the same tiers.

    Returns
    -------
    dict
        ``total_s`` from text to text, ``parse_s`` of it to read the text, ``import_s`` of the engine, ``cpu_s`` of the
        solve, ``peak_mb`` up to its end, the answer's status and tiers, and each tier's ``greedy`` values; ``parts``
        are the strictly ordered parts.
    """
    from cpalloc.generate import generate_doc

    text = json.dumps(generate_doc(case.config))
    began = time.perf_counter()
    from cpalloc.engine import solve
    from cpalloc.schema import parse_round

    import_s = time.perf_counter() - began
    used, began = cpu_s(), time.perf_counter()
    round_ = parse_round(text)
    parse_s = time.perf_counter() - began
    allocation = solve(round_)
    answer = allocation.model_dump_json()
    total_s = time.perf_counter() - began
    out = {
        "case": case.name,
        "group": case.group,
        "nodes": case.config.nodes,
        "seed": case.config.seed,
        "limit_s": case.config.time_limit,
        "jobs": allocation.stats.jobs,
        "total_s": round(total_s, 4),
        "import_s": round(import_s, 4),
        "cpu_s": round(cpu_s() - used, 4),
        "peak_mb": peak_mb(),
        "answer_bytes": len(answer),
        "status": str(allocation.status),
        "stop_reason": str(allocation.stop_reason),
        "variables": allocation.stats.variables,
        "constraints": allocation.stats.constraints,
        "parse_s": round(parse_s, 4),
        "compile_s": allocation.stats.compile_s,
        "build_s": allocation.stats.build_s,
        "solve_s": allocation.stats.solve_s,
        "load_average": os.getloadavg()[0],
    }
    return out | greedy_beside(text, allocation)


def greedy_beside(text: str, allocation: Allocation) -> dict[str, Any]:
    """The tiers of an answer with the greedy's values of the same parts beside them."""
    from cpalloc.problem.compile import compile_round
    from cpalloc.schema import parse_round

    problem = compile_round(parse_round(text)).problem
    entitled = int(problem.budgets.entitled.sum())
    slack = {tier.name: int(tier.slack * entitled) for tier in problem.policy.tiers}
    baseline, seconds = greedy_values(problem)
    tiers = []
    for row in allocation.tiers:
        value, best = [p.value for p in row.parts] or [row.value], row.best
        tiers.append(
            {
                "name": str(row.name),
                "value": value,
                "best": best,
                "bound": row.bound,
                "gap": row.gap,
                "status": str(row.status),
                "seconds": row.seconds,
                "greedy": baseline[str(row.name)],
                "slack": slack[str(row.name)],
            }
        )
    return {"tiers": tiers, "greedy_s": seconds}


def greedy_values(problem: Problem) -> tuple[dict[str, list[int]], float]:
    """Values of every part of every tier at the greedy's decision, promises attached, and the greedy's seconds."""
    from cpalloc.metrics.reservations import reserve
    from cpalloc.models.objectives import OBJECTIVES
    from cpalloc.solver.greedy import greedy

    began = time.perf_counter()
    decision = greedy(problem)
    seconds = time.perf_counter() - began
    holds, blocked = reserve(problem, decision, kept=problem.holds)
    decision = replace(decision, reservations=holds, blocked=blocked)
    values = {name: list(objective.evaluate(problem, decision)) for name, objective in OBJECTIVES.items()}
    return values, round(seconds, 4)


def measure_phases(case: Case, rounds: int = 3) -> dict[str, Any]:
    """Median seconds of every phase; those that may take the whole time limit run once."""
    from bench.phases import PHASES, SOLVING, Prepared

    prepared, out = Prepared(case), {}
    try:
        assert prepared.client  # starting the service is no part of a request
        for name, phase in PHASES.items():
            times = []
            for repeat in range(1 if name in SOLVING else rounds + 1):
                began = time.perf_counter()
                phase(prepared)
                if name in SOLVING or repeat:  # the first round prepared what the phase starts from
                    times.append(time.perf_counter() - began)
            out[name] = round(statistics.median(times), 5)
    finally:
        prepared.close()
    return {"case": case.name, "group": case.group, "phases": out}


def measure_baselines(case: Case) -> dict[str, Any]:
    """Solve the first tiers of a case by several solvers."""
    from bench.baselines import measure_baselines as measured

    return measured(case)


def measure_watched(case: Case) -> dict[str, Any]:
    """:func:`measure` between two calibrations: ``calibration_s`` is their mean, seconds of work that never changes."""
    from bench.calibration import calibration_s

    before_s = calibration_s()
    out = measure(case)
    return out | {"calibration_s": round((before_s + calibration_s()) / 2, 4)}


MEASURES = {
    "tiers": measure,
    "phases": measure_phases,
    "baselines": measure_baselines,
    "watched": measure_watched,
}
"""What an order may ask for."""


def main() -> None:
    """Read one order, write one result."""
    from bench.cases import case

    order = json.load(sys.stdin)
    chosen = case(order["family"], order["nodes"], order["seed"], order["limit_s"])
    print(json.dumps(MEASURES[order["measure"]](chosen)))


if __name__ == "__main__":
    main()
