"""Replay Helios' Venus (September 2020) and compare with the published replays: ``python -m bench.venus --data DIR``.

The directory holds ``venus_sept_jobs.csv.gz`` (the jobs), ``venus_sept_vc_nodes.csv`` (nodes per virtual cluster) and
``venus_sept_policy_results.csv.gz`` (per job, ``queue_<policy>`` and ``jct_<policy>`` of the replays published with the
trace, one partition a virtual cluster). FIFO and SJF must reproduce every wait, SRTF the means within 1 %.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import gcd
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from cpalloc.sim.history import History, IntArray, JobEnd
from cpalloc.sim.policies.base import Policy
from cpalloc.sim.policies.best_fit import BestFit
from cpalloc.sim.policies.fgd import Fgd
from cpalloc.sim.policies.fifo import fifo
from cpalloc.sim.policies.sjf import sjf
from cpalloc.sim.policies.srtf import Srtf
from cpalloc.sim.simulate import simulate
from cpalloc.sim.traces.registry import read_trace
from cpalloc.sim.workload import WorkJob, Workload

GPUS_PER_NODE = 8
CHECKPOINT_S = (40, 60)
"""What a preemption costs in the published replays: jobs of one node, larger ones."""


@dataclass(frozen=True, slots=True)
class Case:
    """A replay, and the published policy it is compared with (empty: none)."""

    name: str
    policy: Callable[[], Policy]
    published: str = ""
    late_s: int = 0
    """Seconds by which the published replay sees ends late; it lets jobs run on for them."""


CASES = (
    Case("fifo, partitions", lambda: fifo(partitioned=True), "fifo"),
    Case("sjf, partitions", lambda: sjf(partitioned=True), "sjf"),
    Case("srtf, partitions", lambda: Srtf(partitioned=True), "srtf"),
    Case("srtf, partitions, ends seen 1 s late", lambda: Srtf(partitioned=True), "srtf", late_s=1),
    Case("fifo, one pool, consolidate", fifo),
    Case("fifo, one pool, best-fit", lambda: fifo(BestFit())),
    Case("fifo, one pool, fgd", lambda: fifo(Fgd())),
    Case("sjf, one pool, consolidate", sjf),
    Case("srtf, one pool, consolidate", Srtf),
)


def read_venus(directory: Path) -> Workload:
    """Read the jobs as the published replays have them: preemption loses no work and costs a restart."""
    nodes = directory / "venus_sept_vc_nodes.csv"
    trace = read_trace(directory / "venus_sept_jobs.csv.gz", "helios", nodes=nodes, gpus_per_node=GPUS_PER_NODE)
    workload = trace.as_workload()
    return replace(workload, jobs=tuple(_as_published(job) for job in workload.jobs))


def _as_published(job: WorkJob) -> WorkJob:
    """Cut gangs that don't fill their nodes finely, as the replays fill one node after the other (14 as 8 + 6)."""
    large = job.size > GPUS_PER_NODE
    gpus = gcd(job.size, GPUS_PER_NODE) if large else job.size
    return replace(
        job, replicas=job.size // gpus, gpus_per_replica=gpus, resumable=True, restart_cost_s=CHECKPOINT_S[large]
    )


def waits_and_jcts(history: History) -> tuple[IntArray, IntArray]:
    """Seconds each job waited (in all, preemptions included), and from submission to completion."""
    assert (history.job_end == JobEnd.DONE).all()
    submitted = np.array([job.submitted_s for job in history.workload.jobs])
    held = np.zeros(len(submitted), dtype=np.int64)
    np.add.at(held, history.runs.job, history.runs.end_s - history.runs.start_s)
    jct = history.finished_s - submitted
    return jct - held, jct


def read_published(directory: Path, workload: Workload, policy: str) -> tuple[IntArray, IntArray]:
    """Waits and completion times of the published replay, in the order of the workload."""
    with gzip.open(directory / "venus_sept_policy_results.csv.gz", "rt", newline="") as file:
        rows = {row["job_id"]: (int(row[f"queue_{policy}"]), int(row[f"jct_{policy}"])) for row in csv.DictReader(file)}
    both = np.array([rows[job.id] for job in workload.jobs], dtype=np.int64)
    return both[:, 0], both[:, 1]


def compare(case: Case, workload: Workload, directory: Path) -> list[str]:
    """Replay a case; its row of the table."""
    jobs = tuple(replace(job, work_s=job.work_s + case.late_s) for job in workload.jobs)
    began = time.perf_counter()
    history = simulate(replace(workload, jobs=jobs), case.policy())
    seconds = time.perf_counter() - began
    wait, jct = waits_and_jcts(history)
    row = [case.name, f"{seconds:.1f}", f"{len(history.rounds.at_s):,}", f"{wait.mean():,.1f}", f"{jct.mean():,.1f}"]
    if not case.published:
        return [*row, "", "", "", ""]
    published_wait, published_jct = read_published(directory, workload, case.published)
    off = (wait.mean() / published_wait.mean() - 1, jct.mean() / published_jct.mean() - 1)
    published = [f"{published_wait.mean():,.1f}", f"{published_jct.mean():,.1f}", f"{off[0]:+.2%} {off[1]:+.2%}"]
    return [*row, *published, f"{(wait != published_wait).sum():,}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="directory of the files named above")
    directory = parser.parse_args().data
    workload = read_venus(directory)
    title = f"{len(workload.jobs):,} jobs of the trace on {len(workload.cluster.nodes)} nodes; means over jobs, seconds"
    table = Table(title=title)
    for i, column in enumerate(
        ("replay", "took", "rounds", "wait", "JCT", "published wait", "JCT", "off by", "other waits")
    ):
        table.add_column(column, justify="right" if i else "left")
    for case in CASES:
        table.add_row(*compare(case, workload, directory))
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
