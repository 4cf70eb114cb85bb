"""Rounds of two public traces, as context: what they hold is real, when things happen is made up.

``python -m bench.public --data DIR`` wants ``openb_pod_list_default.csv.gz`` and ``openb_node_list_gpu_node.csv.gz``
(Alibaba openb, ATC'23; pods that take part of a GPU take a whole one here) and ``jobs_crux.csv`` and ``topo.csv``
(Alibaba Lingjun 2023, SIGCOMM'24; three layers of switches), see docs/traces.md; in DIR or folders in it. Jobs are
drawn until they ask for so many times the cluster, submitted over three hours, and run on for half a day. The greedy
fills the cluster, and its last round is what is solved.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from rich.console import Console
from rich.table import Table

from bench.render import seconds
from cpalloc.engine import solve
from cpalloc.problem.compile import CompileCache, compile_round
from cpalloc.schema import Round
from cpalloc.schema.request import Options
from cpalloc.sim.config import SimConfig
from cpalloc.sim.files import read_workload
from cpalloc.sim.policies.allocator import Decided, fair_share
from cpalloc.sim.simulate import simulate
from cpalloc.sim.workload import WorkJob, Workload
from cpalloc.solver.greedy import greedy
from cpalloc.solver.values import Values

SUBMITTED_S, LEAST_WORK_S = 3 * 3600, 12 * 3600
DEPTH = 64
"""Like jobs of a budget that the round has."""


@dataclass(frozen=True, slots=True)
class Public:
    """A trace, the cluster it ran on, and how many times what that has is asked for."""

    name: str
    jobs: str
    nodes: str
    demand: float


TRACES = (
    Public("openb", "openb_pod_list_default.csv.gz", "openb_node_list_gpu_node.csv.gz", 1.3),
    Public("lingjun", "jobs_crux.csv", "topo.csv", 2.5),
)


def crowded(workload: Workload, demand: float, seed: int) -> Workload:
    """Jobs drawn until they ask for so many times the cluster's GPUs, all of them within a few hours."""
    draw, left = Random(seed), demand * sum(node.gpus for node in workload.cluster.nodes)
    jobs: list[WorkJob] = []
    for job in draw.sample(workload.jobs, len(workload.jobs)):
        if left <= 0:
            break
        left -= job.size
        work_s = max(LEAST_WORK_S, job.work_s)
        jobs.append(replace(job, submitted_s=draw.randrange(SUBMITTED_S), work_s=work_s, timeout_s=-1))
    jobs.sort(key=lambda job: (job.submitted_s, job.order))
    note = f"{len(jobs):,} jobs drawn for {demand:g} times the cluster, submitted within {SUBMITTED_S // 3600} hours"
    return replace(workload, jobs=tuple(jobs), node_events=(), notes=(*workload.notes, note))


def last_round(workload: Workload, limit_s: float) -> Round:
    """The last round of an afternoon under the greedy."""
    policy, met = fair_share(depth=DEPTH), list[Round]()
    decide = policy.decide_round

    def watched(round_: Round, cache: CompileCache) -> Decided:
        met[:] = [round_]
        return decide(round_, cache)

    policy.decide_round = watched
    simulate(workload, policy, config=SimConfig(round_interval_s=300, until_s=SUBMITTED_S + 600, sample_interval_s=0))
    return met[0].model_copy(update={"options": Options.model_validate({"time_limit": limit_s})})


def solved(name: str, round_: Round) -> Table:
    """Solve a round: a row a tier."""
    problem = compile_round(round_).problem
    before = Values(problem, greedy(problem))
    began = time.perf_counter()
    answer = solve(round_)
    took, waiting = time.perf_counter() - began, sum(job.running is None for job in round_.jobs)
    size = f"{len(problem.nodes.names):,} nodes, {problem.in_service_gpus:,} GPUs"
    title = f"{name}: {size}, {len(round_.jobs):,} jobs, {waiting:,} waiting: {answer.status} in {seconds(took)} s"
    table = Table("tier", "greedy", "value", "bound", "gap", "seconds", title=title)
    for tier in answer.tiers:
        gap = f"{100 * (1 - (tier.bound or 0) / tier.value):.1f} %" if tier.value else "0"
        # The greedy promises nothing of its own.
        first = "–" if tier.name == "delay" else f"{before[tier.name][0]:,}"
        cells = (first, f"{tier.value:,}", "–" if tier.bound is None else f"{tier.bound:,}", gap, seconds(tier.seconds))
        table.add_row(tier.name, *cells)
    return table


def main(argv: Sequence[str] | None = None) -> None:
    """Read the traces, fill their clusters, solve and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--limit", type=float, default=20.0, help="seconds a round")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(argv)
    for trace in TRACES:
        jobs, nodes = (next(args.data.rglob(name)) for name in (trace.jobs, trace.nodes))
        workload = read_workload(jobs, nodes=nodes, seed=args.seed)
        Console().print(solved(trace.name, last_round(crowded(workload, trace.demand, args.seed), args.limit)))


if __name__ == "__main__":
    main()
