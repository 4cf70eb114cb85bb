"""Plans of measurements, and running them: a fresh process for every case, one after the other."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench.cases import FAMILIES, VARIANTS
from bench.ranges import numbers, words

ROOT = Path(__file__).resolve().parent.parent

INSTEAD = {"phases": "seconds of every phase", "baselines": "the first tiers by several solvers"}
"""What a plan may measure instead of tiers, each an option."""

GRACE_S = 300
"""Seconds beyond the time limit after which a process counts as stuck."""

Result = dict[str, Any]
Tick = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured: families × sizes × seeds, each ``repeat`` times; ``measure`` names one of ``bench.measure``."""

    families: tuple[str, ...]
    sizes: tuple[int, ...]
    seeds: tuple[int, ...]
    limit_s: int
    repeat: int = 1
    measure: str = "tiers"

    def orders(self) -> list[dict[str, Any]]:
        """One order a process."""
        return [
            {"family": family, "nodes": nodes, "seed": seed, "limit_s": self.limit_s, "measure": self.measure}
            for nodes in self.sizes
            for family in self.families
            for seed in self.seeds
            for _ in range(self.repeat)
        ]


def plan_options(parser: argparse.ArgumentParser, *, choose: bool = True) -> None:
    """Options that make a plan, on the command line and in the markers of a document alike.

    ``choose``: with those that say what is measured.
    """
    others = ", ".join(name for name in VARIANTS if name not in FAMILIES)
    parser.add_argument("--families", type=families, default="mixed,gang-heavy", help=f"also {others}")
    parser.add_argument("--sizes", type=numbers, default="64,256", help="nodes, e.g. 64,256,1000")
    parser.add_argument("--seeds", type=numbers, default="1-5", help="e.g. 1-5 or 1,3")
    parser.add_argument("--time-limit", type=int, default=20, help="of every round, whole seconds")
    parser.add_argument("--repeat", type=int, default=1, help="processes a case")
    instead = parser.add_mutually_exclusive_group()
    for name, what in INSTEAD.items() if choose else ():
        instead.add_argument(f"--{name}", action="store_true", help=f"{what} instead of tiers")


def families(text: str) -> tuple[str, ...]:
    """Read names of families, and of the other kinds of cases.

    Raises
    ------
    argparse.ArgumentTypeError
        When there is no such family.
    """
    missing = [name for name in words(text) if name not in VARIANTS]
    if missing:
        raise argparse.ArgumentTypeError(f"no family {', '.join(missing)}; there are {', '.join(VARIANTS)}")
    return words(text)


def plan_of(options: argparse.Namespace, measure: str | None = None) -> Plan:
    """Read parsed options as a plan; ``measure`` where a command always measures the same."""
    chosen = measure or next((name for name in INSTEAD if getattr(options, name)), "tiers")
    return Plan(options.families, options.sizes, options.seeds, options.time_limit, options.repeat, chosen)


def run(plan: Plan, tick: Tick) -> list[Result]:
    """Measure every case of a plan.

    Raises
    ------
    RuntimeError
        When a process fails, with the end of what it said.
    """
    return [measured(order, tick) for order in plan.orders()]


def measured(order: dict[str, Any], tick: Tick) -> Result:
    """Measure one case in a process of its own.

    Raises
    ------
    RuntimeError
        When the process fails, with the end of what it said.
    """
    done = subprocess.run(
        [sys.executable, "-m", "bench.measure"],
        input=json.dumps(order),
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=6 * order["limit_s"] + GRACE_S,
        check=False,
    )
    name = f"{order['family']}-{order['nodes']}-s{order['seed']}"
    if done.returncode:
        raise RuntimeError(f"{name} failed: {done.stderr[-2000:]}")
    tick(name)
    result: Result = json.loads(done.stdout)
    return result


@contextmanager
def progress(plans: Sequence[Plan]) -> Iterator[Tick]:
    """Show a bar on standard error over all the processes of some plans."""
    columns = (TextColumn("{task.description:22}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("starting", total=sum(len(p.orders()) for p in plans))
        yield lambda name: bar.update(task, description=name, advance=1)
