"""Budgets, proofs, fragmentation and warnings of an allocation as tables."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from cpalloc.cli import cells
from cpalloc.schema import Allocation, Fragmentation, TierRow

BUDGETS_WIDTH = 94
"""Columns that all of the budgets' table needs."""

TOP_SHAPES = 8
"""Shapes shown where not all are asked for, the weightiest ones."""

TOP_WARNINGS = 5
"""Warnings shown where not all are asked for."""


def print_budgets(console: Console, allocation: Allocation) -> None:
    """Print where every budget stands; GPUs, and ratios of what was charged to what was owed."""
    if not allocation.budgets:
        return
    # on a narrow terminal what can be done without goes before numbers are cut
    narrow = console.width < BUDGETS_WIDTH
    columns = ["budget", ">share", ">ratio", ">demand", ">entitled", ">granted", ">borrowed", ">short"]
    if not narrow:
        columns[3:3] = [">after"]
        columns[5:5] = [">claim"]
    table = cells.table("Budgets (GPUs)", columns, wide="budget")
    for b in sorted(allocation.budgets, key=lambda b: b.name.split("/")):
        ratios = [b.ratio] if narrow else [b.ratio, b.ratio_after]
        wants = [b.demand_gpus] if narrow else [b.demand_gpus, b.claim_gpus]
        cells.add(
            table,
            b.name,
            cells.percent(b.share),
            *(cells.NONE if ratio is None else f"{ratio:.2f}" for ratio in ratios),
            *map(cells.count, (*wants, b.entitled_gpus, b.granted_gpus, b.borrowed_gpus)),
            Text(cells.count(b.shortfall_gpus), style="yellow" if b.shortfall_gpus else ""),
        )
    console.print(table)
    console.print()


def print_proofs(console: Console, tiers: tuple[TierRow, ...]) -> None:
    """Print the tiers in their order: value of the decision, and what was proved of the best one found.

    Bound and gap speak of the best value; later tiers may give back a tier's slack, up to the limit.
    """
    if not tiers:
        return
    columns = ["tier", ">value", ">best", ">limit", ">bound", ">gap", "status", "source", ">seconds"]
    table = cells.table("Proofs", columns)
    for tier in tiers:
        amounts = map(cells.number, (tier.value, tier.best, tier.limit, tier.bound))
        source = tier.bound_source or cells.NONE
        proof = (cells.percent(tier.gap), cells.status(tier.status), source, f"{tier.seconds:.2f}")
        cells.add(table, tier.name, *amounts, *proof)
        for part in tier.parts:
            bound, gap = cells.number(part.bound), cells.percent(part.gap)
            status = cells.status(part.status)
            cells.add(
                table, f"  {part.name}", cells.number(part.value), "", "", bound, gap, status, "", "", style="dim"
            )
    console.print(table)
    console.print()


def print_fragmentation(console: Console, found: Fragmentation, *, show_all: bool) -> None:
    """Print how usable the free GPUs are: in a line, by level, and by the shapes of the mix."""
    free = f"{cells.number(found.free_gpus)} free GPUs, {cells.number(found.stranded_gpus)} of them stranded"
    place = f"a gang of the mix waits {cells.span(found.expected_time_to_place_s)} on average"
    console.print(Text.assemble(("Fragmentation ", "bold"), f"{free}; {place}"), soft_wrap=False)
    if found.largest_gang:
        gangs = [
            f"{level} {gpus}" + (f" ({more} on borrowed GPUs)" if more > gpus else "")
            for level, gpus in found.largest_gang.items()
            for more in (found.largest_gang_with_borrowed.get(level, 0),)
        ]
        console.print(Text(f"largest gang now, GPUs: {', '.join(gangs)}"))
    if found.by_shape:
        console.print()
        table = cells.table("", ["shape", "in one", ">weight", ">fit now", ">stranded", ">time to place"])
        table.title = None
        shapes = found.by_shape if show_all else sorted(found.by_shape, key=lambda s: -s.weight)[:TOP_SHAPES]
        for s in shapes:
            shape = f"{s.replicas}×{s.gpus_per_replica}"
            amounts = map(cells.number, (s.weight, s.placeable_now, s.stranded_gpus))
            cells.add(table, shape, s.level, *amounts, cells.span(s.time_to_place_s))
        console.print(table)
        if len(found.by_shape) > len(shapes):
            console.print(cells.more(len(found.by_shape) - len(shapes)))
    console.print()


def print_warnings(console: Console, allocation: Allocation, *, show_all: bool) -> None:
    """Print what was read in the way that harms nobody."""
    found = allocation.warnings
    if not found:
        return
    table = cells.table(f"Warnings ({len(found)})", ["code", "path", "message"], wide="message")
    shown = found if show_all else found[:TOP_WARNINGS]
    for warning in shown:
        cells.add(table, Text(warning.code, style="yellow"), warning.path or cells.NONE, warning.message)
    console.print(table)
    if len(found) > len(shown):
        console.print(cells.more(len(found) - len(shown)))
    console.print()
