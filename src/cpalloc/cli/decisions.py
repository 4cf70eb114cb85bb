"""The decisions of an allocation as tables, one for each action."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TypeVar

from rich.console import Console
from rich.table import Table

from cpalloc.cli import cells
from cpalloc.cli.condense import condense
from cpalloc.cli.context import Context
from cpalloc.schema import ActionName, Allocation, Decision, ReservationRow

TOP = 10
"""Rows of a table where not all are asked for."""

T = TypeVar("T")


def print_decisions(console: Console, allocation: Allocation, context: Context, *, show_all: bool) -> None:
    """Print starts, preemptions, lost jobs, waits and promises; jobs that are kept only where all is asked for."""
    of = {action: [d for d in allocation.decisions if d.action == action] for action in ActionName}
    now, top = allocation.now, None if show_all else TOP
    _placed(console, "Starts", of[ActionName.START], context, now, top)
    _preempted(console, of[ActionName.PREEMPT], context, top)
    _lost(console, of[ActionName.LOST], context, top)
    _waiting(console, of[ActionName.WAIT], context, now, top)
    _promised(console, allocation.reservations, now, top)
    promoted = [d for d in of[ActionName.KEEP] if d.promoted]
    kept, title = (of[ActionName.KEEP], "Kept") if show_all else (promoted, "Promoted: kept, and allocated from now on")
    _placed(console, title, kept, context, now, top)


def _first(rows: Sequence[T], top: int | None) -> tuple[Sequence[T], int]:
    shown = rows if top is None else rows[:top]
    return shown, len(rows) - len(shown)


def _facts(context: Context, job: str) -> tuple[str, str]:
    facts = context.jobs.get(job)
    return (cells.NONE, cells.NONE) if facts is None else (facts.budget, facts.size)


def _gpus(decision: Decision) -> int:
    return sum(e.gpus if isinstance(e.gpus, int) else len(e.gpus) for e in decision.placement or ())


def _placed(
    console: Console, title: str, found: list[Decision], context: Context, now: datetime, top: int | None
) -> None:
    if not found:
        return
    found = sorted(found, key=lambda d: (-_gpus(d), d.job))
    table = cells.table(
        f"{title} ({len(found)})", ["job", "budget", ">GPUs", "mode", "protected", "nodes", "domains"], wide="nodes"
    )
    shown, hidden = _first(found, top)
    for d in shown:
        budget, size = _facts(context, d.job)
        nodes = [entry.node for entry in d.placement or ()]
        domains = condense(context.domains_of(nodes), most=None if top is None else 2)
        mode = f"{d.mode or cells.NONE}{' (promoted)' if d.promoted and top is None else ''}"
        until = cells.instant(d.protected_until, now)
        if d.protected_until is not None and d.protected_until <= now:
            until = "no longer"
        where = condense(nodes, most=None if top is None else 2)
        gpus = size if size != cells.NONE else str(_gpus(d))
        cells.add(table, d.job, budget, gpus, mode, until, where, domains or cells.NONE)
    _print(console, table, hidden)


def _preempted(console: Console, found: list[Decision], context: Context, top: int | None) -> None:
    if not found:
        return
    lost = sum(d.lost_gpu_seconds or 0 for d in found)
    found = sorted(found, key=lambda d: (-(d.lost_gpu_seconds or 0), d.job))
    table = cells.table(
        f"Preemptions ({len(found)}, {cells.hours(lost)} GPU-hours lost)",
        ["job", "budget", ">GPUs", ">GPU-hours lost", "requeued", "for"],
        wide="for",
    )
    shown, hidden = _first(found, top)
    for d in shown:
        why = f"forced: {d.forced}" if d.forced else ""
        whom = condense(d.beneficiaries or (), most=None if top is None else 4)
        then = "yes" if d.requeue else "no"
        reason = ", ".join(filter(None, (why, whom))) or cells.NONE
        cells.add(table, d.job, *_facts(context, d.job), cells.hours(d.lost_gpu_seconds), then, reason)
    _print(console, table, hidden)


def _lost(console: Console, found: list[Decision], context: Context, top: int | None) -> None:
    if not found:
        return
    table = cells.table(f"Lost: their nodes or GPUs are gone ({len(found)})", ["job", "budget", ">GPUs", "requeued"])
    shown, hidden = _first(found, top)
    for d in shown:
        cells.add(table, d.job, *_facts(context, d.job), "yes" if d.requeue else "no")
    _print(console, table, hidden)


def _waiting(console: Console, found: list[Decision], context: Context, now: datetime, top: int | None) -> None:
    if not found:
        return
    found = sorted(found, key=lambda d: (d.position is None, d.position or 0, d.job))
    table = cells.table(
        f"Waiting ({len(found)})", [">#", "job", "budget", ">GPUs", "starts by", "reason"], wide="reason", most=22
    )
    shown, hidden = _first(found, top)
    for d in shown:
        position = cells.NONE if d.position is None else str(d.position)
        reason = cells.NONE if d.reason is None else f"{d.reason.code}: {d.reason.message}"
        cells.add(table, position, d.job, *_facts(context, d.job), cells.instant(d.starts_by, now), reason)
    _print(console, table, hidden)


def _promised(console: Console, found: Sequence[ReservationRow], now: datetime, top: int | None) -> None:
    if not found:
        return
    table = cells.table(f"Promises ({len(found)})", ["job", "starts by", "domain", "nodes"], wide="nodes")
    shown, hidden = _first(found, top)
    for r in shown:
        nodes = condense(r.nodes, most=None if top is None else 4)
        kept = nodes if r.broken is None else f"broken ({r.broken.code}): {r.broken.message}"
        style = "" if r.broken is None else "yellow"
        starts = cells.instant(r.starts_by, now)
        domain = r.domain.level if r.domain.level == r.domain.name else f"{r.domain.level} {r.domain.name}"
        cells.add(table, r.job, starts, domain, kept or cells.NONE, style=style)
    _print(console, table, hidden)


def _print(console: Console, table: Table, hidden: int) -> None:
    console.print(table)
    if hidden:
        console.print(cells.more(hidden))
    console.print()
