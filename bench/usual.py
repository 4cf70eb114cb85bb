"""The usual round: a cluster at work, a handful of arrivals and departures since the last answer.

``python -m bench.usual --nodes 1000`` takes a generated round, lets answers take effect until the cluster has settled,
and then measures one round after the other, ten events apart: from JSON to JSON in this process, phase by phase, and
over HTTP with ``--http``, which starts a service of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import httpx2 as httpx
from rich.console import Console
from rich.table import Table

from bench.cases import case
from bench.measure import cpu_s
from cpalloc.engine import Solver
from cpalloc.generate import generate_doc

PERIOD = timedelta(seconds=60)


class Queue:
    """A cluster in wire format between rounds: answers take effect, jobs end and arrive.

    Half of the ``events`` are ends of running jobs drawn at random, half arrivals taken from another generated round.
    """

    def __init__(self, variant: str, nodes: int, seed: int, *, limit_s: int, events: int) -> None:
        self.document = generate_doc(case(variant, nodes, seed, limit_s).config)
        others = generate_doc(replace(case(variant, nodes, seed + 1000, limit_s).config))
        self._arriving = [job for job in others["jobs"] if "running" not in job]
        self._draw = random.Random(seed)
        self._events = events
        self._arrived = 0

    def answered(self, answer: dict[str, Any]) -> None:
        """Let an answer take effect, and a minute go by with its events."""
        doc, before = self.document, self.document["now"]
        jobs = {job["id"]: job for job in doc["jobs"]}
        for decision in answer["decisions"]:
            self._carry_out(jobs, decision, before)
        doc["previous"] = {"reservations": [row for row in answer["reservations"] if not row.get("broken")]}
        doc["now"] = _later(before)
        self._charge(jobs)
        for ending in self._draw.sample([j for j, job in jobs.items() if "running" in job], self._events // 2):
            del jobs[ending]
        for _ in range(self._events - self._events // 2):
            job = dict(self._draw.choice(self._arriving), id=f"n-{self._arrived}", submitted_at=doc["now"])
            self._arrived += 1
            jobs[job["id"]] = job
        doc["jobs"] = list(jobs.values())

    def _carry_out(self, jobs: dict[str, dict[str, Any]], decision: dict[str, Any], now: str) -> None:
        job, action = jobs[decision["job"]], decision["action"]
        if action == "start":
            job["running"] = {
                "mode": decision["mode"],
                "placed_at": now,
                "started_at": now,
                "placement": decision["placement"],
            }
        elif action == "keep" and decision["promoted"]:
            job["running"] = {**job["running"], "mode": "allocated", "allocated_since": now}
        elif action in ("preempt", "lost"):
            del job["running"]
            if not decision["requeue"]:
                del jobs[job["id"]]

    def _charge(self, jobs: dict[str, dict[str, Any]]) -> None:
        held: dict[str, int] = defaultdict(int)
        for job in jobs.values():
            if "running" in job and job["running"]["mode"] == "allocated":
                held[job["budget"]] += job["replicas"] * job["gpus_per_replica"]
        for budget in self.document["budgets"]:
            if budget["name"] in held:
                charged = budget.get("charged_gpu_seconds", 0) + held[budget["name"]] * int(PERIOD.total_seconds())
                budget["charged_gpu_seconds"] = charged


def _later(instant: str) -> str:
    return (datetime.fromisoformat(instant) + PERIOD).isoformat().replace("+00:00", "Z")


@dataclass(frozen=True, slots=True)
class Took:
    """One round: seconds from JSON to JSON, processor seconds, and seconds of its phases and tiers."""

    total_s: float
    cpu_s: float
    proved: bool
    phases: dict[str, float]


def measured(queue: Queue, rounds: int, solver: Solver | None) -> Iterator[Took]:
    """Solve one round after the other in this process; without a ``solver`` each as if it were the only one."""
    for _ in range(rounds):
        own = Solver() if solver is None else solver
        text = json.dumps(queue.document)
        used, began = cpu_s(), time.perf_counter()
        round_ = own.read(text)
        parse_s = time.perf_counter() - began
        allocation = own.solve(round_, trusted=True)
        solved_s = time.perf_counter() - began - parse_s
        out = allocation.model_dump_json()
        total_s = time.perf_counter() - began
        stats = allocation.stats
        tiers = {tier.name: tier.seconds for tier in allocation.tiers}
        phases = {
            "parse": parse_s,
            "compile": stats.compile_s,
            **tiers,
            "greedy, guard, reasons, decode": solved_s - stats.compile_s - sum(tiers.values()),
            "to JSON": total_s - solved_s - parse_s,
        }
        yield Took(total_s, cpu_s() - used, allocation.status == "optimal", phases)
        queue.answered(json.loads(out))


def over_http(queue: Queue, rounds: int, url: str) -> Iterator[float]:
    """Send one round after the other; seconds until its answer is there."""
    with httpx.Client(base_url=url, timeout=120) as client:
        for _ in range(rounds):
            text = json.dumps(queue.document)
            began = time.perf_counter()
            answer = client.post("/v1/solve", content=text, headers={"content-type": "application/json"})
            yield time.perf_counter() - began
            answer.raise_for_status()
            queue.answered(answer.json())


@contextmanager
def service() -> Iterator[str]:
    """A service of its own, on a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "cpalloc.cli", "serve", "--port", str(port)]
    with subprocess.Popen(command, env=os.environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        try:
            for _ in range(200):
                try:
                    if httpx.get(url + "/healthz").is_success:
                        break
                except httpx.TransportError:
                    time.sleep(0.05)
            yield url
        finally:
            running.terminate()


def phases_table(name: str, took: list[Took]) -> Table:
    """Medians of the phases, in milliseconds."""
    proved = sum(t.proved for t in took)
    table = Table("", "median ms", "worst ms", title=f"{name}: {len(took)} rounds, {proved} proved")
    for phase in took[0].phases:
        table.add_row(phase, *_figures([t.phases[phase] for t in took]))
    table.add_section()
    table.add_row("total", *_figures([t.total_s for t in took]))
    table.add_row("CPU", *_figures([t.cpu_s for t in took]))
    return table


def _figures(seconds: list[float]) -> tuple[str, str]:
    return f"{1000 * statistics.median(seconds):.1f}", f"{1000 * max(seconds):.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", default="mixed")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=int, default=20, help="time limit, whole seconds")
    parser.add_argument("--events", type=int, default=10, help="between two rounds")
    parser.add_argument("--settle", type=int, default=6, help="rounds before the ones that count")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--alone", action="store_true", help="keep nothing from one round to the next")
    parser.add_argument("--http", action="store_true", help="measure over HTTP as well")
    parser.add_argument("--keep", help="keep the last round's document in this file")
    args = parser.parse_args()
    queue = Queue(args.family, args.nodes, args.seed, limit_s=args.limit, events=args.events)
    solver = None if args.alone else Solver()
    for _ in measured(queue, args.settle, solver):
        pass
    console = Console()
    name = f"{args.family}-{args.nodes}-s{args.seed}"
    console.print(phases_table(name, list(measured(queue, args.rounds, solver))))
    if args.http:
        with service() as url:
            took = list(over_http(queue, args.rounds + 1, url))[1:]  # the first one loads the solver
        median, worst = _figures(took)
        console.print(f"over HTTP: median {median} ms, worst {worst} ms of {args.rounds} rounds")
    if args.keep:
        with open(args.keep, "w") as file:
            json.dump(queue.document, file)


if __name__ == "__main__":
    main()
