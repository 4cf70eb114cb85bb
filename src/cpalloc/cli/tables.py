"""An allocation, or what a check found in one, as tables a person can read."""

from __future__ import annotations

from collections import Counter

from rich.console import Console
from rich.text import Text

from cpalloc.cli import cells
from cpalloc.cli.accounts import print_budgets, print_fragmentation, print_proofs, print_warnings
from cpalloc.cli.condense import condense
from cpalloc.cli.context import Context
from cpalloc.cli.decisions import print_decisions
from cpalloc.schema import ActionName, Allocation, CheckReport, RunMode

_VERBS = {
    ActionName.START: "start",
    ActionName.KEEP: "kept",
    ActionName.PREEMPT: "preempted",
    ActionName.LOST: "lost",
    ActionName.WAIT: "wait",
}


def print_allocation(console: Console, allocation: Allocation, context: Context, *, show_all: bool = False) -> None:
    """Print an allocation: summary, decisions, budgets, proofs, fragmentation, warnings.

    Parameters
    ----------
    console : Console
        Where to print.
    allocation : Allocation
        The answer.
    context : Context
        What the round says about jobs and nodes; columns stay empty without.
    show_all : bool
        Leave no row out.
    """
    for line in summary(allocation):
        console.print(line)
    console.print()
    print_decisions(console, allocation, context, show_all=show_all)
    print_budgets(console, allocation)
    print_proofs(console, allocation.tiers)
    print_fragmentation(console, allocation.fragmentation, show_all=show_all)
    print_warnings(console, allocation, show_all=show_all)


def summary(allocation: Allocation) -> list[Text]:
    """Put the answer in three lines: how good it is, how full the cluster gets, and what is done."""
    m, stats = allocation.measures, allocation.stats
    head = Text.assemble(
        cells.status(allocation.status),
        f", {allocation.stop_reason} after {stats.total_s:.2f} s · round of {allocation.now:%Y-%m-%d %H:%M} UTC",
    )
    held = Text.assemble(
        (f"occupancy {cells.percent(m.occupancy)}", "bold"),
        f": {m.held_gpus:,} of {m.in_service_gpus:,} GPUs",
        f" ({m.allocated_gpus:,} allocated, {m.borrowed_gpus:,} borrowed)",
    )
    counts = Counter(d.action for d in allocation.decisions)
    what = [f"{counts[action]:,} {verb}" for action, verb in _VERBS.items() if counts[action]]
    kept = Counter(d.mode for d in allocation.decisions if d.action is ActionName.KEEP)
    borrowed = f" ({kept[RunMode.BORROWED]:,} of those kept run borrowed)" if kept[RunMode.BORROWED] else ""
    jobs = f"{len(allocation.decisions):,} jobs on {stats.nodes:,} nodes: "
    return [head, held, Text(jobs + (", ".join(what) or "nothing to decide") + borrowed)]


def print_report(console: Console, report: CheckReport) -> None:
    """Print the rules an allocation breaks, and its value on every tier."""
    found = report.violations
    if found:
        table = cells.table(f"Rules broken ({len(found)})", ["rule", "what", "jobs", "nodes"], wide="what")
        for v in found:
            cells.add(
                table, Text(v.constraint, style="red"), v.message, condense(v.jobs, most=3), condense(v.nodes, most=3)
            )
        console.print(table)
    else:
        console.print(Text("no rule is broken", style="green"))
    if report.tiers:
        console.print()
        table = cells.table("Tiers", ["tier", ">value"])
        for tier in report.tiers:
            cells.add(table, tier.name, cells.number(tier.value))
        console.print(table)
