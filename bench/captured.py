"""Rounds met in simulations of the constructed lab: capture them, and solve them again.

``python -m bench.captured capture --days 4 --seeds 1-2`` simulates ``examples/lab.toml`` under ``cpalloc`` and writes
``bench/rounds/lab.jsonl.xz``: rounds at equal distances, and those that were left with most unproven tiers.
``--greedy-days`` lets the greedy fill the lab first, which takes a tenth of the time; ``--file`` keeps them elsewhere.
``python -m bench.captured run`` solves them, one after the other, and prints what took how long and what was proved;
``python -m bench.captured promises`` tells what it brings that promises move to other nodes.
"""

from __future__ import annotations

import argparse
import json
import lzma
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.ranges import numbers
from cpalloc.engine import solve_round
from cpalloc.metrics.reservations import reserve
from cpalloc.problem.compile import CompileCache, compile_round
from cpalloc.problem.compile.promises import read_holds
from cpalloc.problem.problem import US, Hold, Problem, status_quo
from cpalloc.schema import Round, parse_round
from cpalloc.sim.config import SimConfig
from cpalloc.sim.lab import load_lab, make_lab
from cpalloc.sim.policies.allocator import AllocatorPolicy, Decided, cpalloc_policy, solve_greedily
from cpalloc.sim.simulate import simulate

ROUNDS = Path(__file__).parent / "rounds" / "lab.jsonl.xz"
LAB = Path(__file__).parent.parent / "examples" / "lab.toml"
DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class Met:
    """A round of a simulation: where it was met, how many tiers were left unproven, and its document."""

    name: str
    unproved: int
    document: dict[str, Any]


def met(seed: int, days: float, skip_days: float, greedy_days: float) -> Iterator[Met]:
    """The rounds a simulation solves, after some days of filling up."""
    found: list[Met] = []
    policy = cpalloc_policy()
    decide = policy.decide_round
    switch = load_lab(LAB).start.timestamp() + greedy_days * DAY_S

    def watched(round_: Round, cache: CompileCache) -> Decided:
        if round_.now.timestamp() < switch:
            return solve_greedily(round_, cache)
        decided = decide(round_, cache)
        if decided.solved:
            document = round_.model_dump(mode="json", exclude_defaults=True)
            found.append(Met(f"lab-s{seed}-{round_.now:%d-%H%M}", decided.unproved_tiers, document))
        return decided

    policy.decide_round = watched
    _run(policy, seed, days)
    start = load_lab(LAB).start.timestamp() + skip_days * DAY_S
    return (m for m in found if parse_round(json.dumps(m.document)).now.timestamp() >= start)


def _run(policy: AllocatorPolicy, seed: int, days: float) -> None:
    config = SimConfig(round_interval_s=60, heartbeat_s=900, until_s=int(days * DAY_S))
    simulate(make_lab(load_lab(LAB), seed), policy, config=config)


def chosen(rounds: list[Met], keep: int) -> list[Met]:
    """Half at equal distances, half those with most unproven tiers (the later ones first), in order of time."""
    even = rounds[:: max(1, 2 * len(rounds) // keep)]
    hard = sorted(enumerate(rounds), key=lambda pair: (-pair[1].unproved, -pair[0]))[: keep // 2]
    names = {m.name for m in even} | {m.name for _, m in hard}
    return [m for m in rounds if m.name in names]


def capture(
    file: Path, seeds: tuple[int, ...], days: float, *, skip_days: float, greedy_days: float, keep: int
) -> None:
    """Simulate and write the rounds chosen of every seed."""
    lines = [
        json.dumps({"name": m.name, "unproved": m.unproved, "round": m.document}, separators=(",", ":"))
        for seed in seeds
        for m in chosen(list(met(seed, days, skip_days, greedy_days)), keep // len(seeds))
    ]
    file.parent.mkdir(exist_ok=True)
    with lzma.open(file, "wt", preset=9) as out:
        out.write("\n".join(lines) + "\n")
    print(f"{len(lines)} rounds in {file}, {file.stat().st_size / 1000:.0f} kB")


def read(path: Path = ROUNDS) -> list[Met]:
    """The rounds kept."""
    with lzma.open(path, "rt") as file:
        rows = [json.loads(line) for line in file]
    return [Met(row["name"], row["unproved"], row["round"]) for row in rows]


def solved(rounds: list[Met]) -> Table:
    """Solve every round and sum up: seconds of a round and of its tiers, and how often each was proved."""
    totals: list[float] = []
    tiers: dict[str, list[tuple[float, bool]]] = {}
    whole = 0
    for m in rounds:
        round_ = parse_round(json.dumps(m.document))
        began = time.perf_counter()
        solution = solve_round(round_).solution
        totals.append(time.perf_counter() - began)
        proofs = [all(part.proved(Fraction(round_.options.gap)) for part in tier.parts) for tier in solution.tiers]
        whole += all(proofs)
        for tier, proved in zip(solution.tiers, proofs, strict=True):
            tiers.setdefault(tier.name, []).append((tier.seconds, proved))
    table = Table("", "mean ms", "p50 ms", "p99 ms", "proved", title=f"{len(rounds)} rounds of the constructed lab")
    table.add_row("round", *_figures(totals), f"{whole} of {len(rounds)}")
    table.add_section()
    for name, seen in tiers.items():
        table.add_row(name, *_figures([s for s, _ in seen]), f"{sum(p for _, p in seen)} of {len(seen)}")
    return table


def _figures(seconds: list[float]) -> tuple[str, str, str]:
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    return f"{1000 * statistics.fmean(seconds):.1f}", f"{1000 * cuts[49]:.1f}", f"{1000 * cuts[98]:.1f}"


def promises(rounds: list[Met]) -> Table:
    """GPU-hours that promised gangs still wait when a round begins: on the nodes promised, and where they are kept."""
    kept = renewed = moved = 0.0
    for m in rounds:
        round_ = parse_round(json.dumps(m.document))
        problem = compile_round(round_).problem
        ranked, _ = read_holds(problem, round_.previous.reservations)
        on_own_nodes = {h.job: h for h in reserve(problem, status_quo(problem), kept=ranked, jobs=())[0]}
        for hold in problem.holds:
            if hold.job in on_own_nodes:
                kept += 1
                renewed += _gpu_hours(problem, on_own_nodes[hold.job])
                moved += _gpu_hours(problem, hold)
    table = Table("promises kept", "on the nodes promised, GPU-hours", "where they are kept", "")
    table.add_row(f"{kept:.0f}", f"{renewed:,.0f}", f"{moved:,.0f}", f"{100 * (moved / max(1.0, renewed) - 1):+.0f} %")
    return table


def _gpu_hours(problem: Problem, hold: Hold) -> float:
    return int(problem.jobs.size[hold.job]) * (hold.starts_us - problem.now_us) / US / 3600


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    taking = commands.add_parser("capture")
    taking.add_argument("--seeds", type=numbers, default=(1, 2))
    taking.add_argument("--days", type=float, default=4.0)
    taking.add_argument("--skip-days", type=float, default=1.0, help="take no round before")
    taking.add_argument("--greedy-days", type=float, default=0.0, help="let the greedy decide before")
    taking.add_argument("--keep", type=int, default=240)
    taking.add_argument("--file", type=Path, default=ROUNDS)
    running = commands.add_parser("run")
    running.add_argument("--every", type=int, default=1, help="solve every n-th only")
    running.add_argument("--file", type=Path, default=ROUNDS)
    moving = commands.add_parser("promises")
    moving.add_argument("--file", type=Path, default=ROUNDS)
    args = parser.parse_args()
    if args.command == "capture":
        days = {"skip_days": args.skip_days, "greedy_days": args.greedy_days}
        capture(args.file, args.seeds, args.days, **days, keep=args.keep)
    elif args.command == "promises":
        Console().print(promises(read(args.file)))
    else:
        Console().print(solved(read(args.file)[:: args.every]))


if __name__ == "__main__":
    main()
