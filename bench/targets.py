"""What the project promises of its speed, held against what was measured."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from statistics import median

from bench.cases import FAMILIES
from bench.render import Result, against_greedy, all_proved, seconds, table

PEAK_MB = 500
HELP_S = 0.3
OVER_LIMIT = 1.1
LARGE = 4_000
"""Nodes from which the limits and figures of large rounds are asked for."""

LARGE_MB, LARGE_OVER_LIMIT = 1000, 1.05
WITHIN = {"mixed": 0.05, "gang-heavy": 0.10}
"""Gap that shortfall may have in large rounds, by family."""

NAMED = 3
"""Most cases that a row names."""

MET = {True: "met", False: "**missed**"}
"""A verdict in words."""


def machine(results: Sequence[Result]) -> str:
    """Where and under what load the figures were taken."""
    loads = [r["load_average"] for r in results if "load_average" in r]
    busy = f"; load average while measuring {min(loads):.1f} to {max(loads):.1f}" if loads else ""
    return (
        f"{os.cpu_count()} vCPUs, {platform.machine()}, {platform.system()}, Python {platform.python_version()}{busy}."
    )


def help_seconds(times: int = 5) -> float:
    """Median seconds of ``cpalloc --help``, the interpreter's start included."""
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-m", "cpalloc.cli", "--help"], check=True, capture_output=True)
        taken.append(time.perf_counter() - began)
    return median(taken)


def targets(results: Sequence[Result]) -> str:
    """A row per target: the figures and whether they meet it."""
    some = [r for r in results if "tiers" in r and r["group"].rpartition("-")[0] in FAMILIES]
    rows: list[tuple[str, str, str]] = []
    for nodes, within, share in ((64, 2.0, 1.0), (256, 20.0, 0.5)):
        rows.extend(_proved_within(some, nodes, within, share))
    thousand = [r for r in some if r["nodes"] == 1000]
    if thousand:
        over = max(r["total_s"] / r["limit_s"] for r in thousand)
        figures = f"longest {100 * over:.0f} % of the limit, in {len(thousand)} rounds"
        rows.append(("1,000 nodes: an answer within the limit + 10 %", figures, MET[over <= OVER_LIMIT]))
    if some:
        rows.extend(_beside_greedy(some))
        rows.extend(_large([r for r in some if r["nodes"] >= LARGE]))
        peak = max((r["peak_mb"] for r in some if r["nodes"] < LARGE), default=0)
        rows.append((f"peak memory below {PEAK_MB} MB", f"{peak:.0f} MB at most", MET[peak < PEAK_MB]))
    help_s = help_seconds()
    rows.append((f"`cpalloc --help` within {HELP_S} s", f"{seconds(help_s)} s", MET[help_s < HELP_S]))
    return machine(results) + "\n\n" + table(("target", "measured", "verdict"), rows)


def _large(results: Sequence[Result]) -> list[tuple[str, str, str]]:
    """Rows for rounds that are too large for models of the whole of them; none where none was measured."""
    rows = []
    for nodes in sorted({r["nodes"] for r in results}):
        some = [r for r in results if r["nodes"] == nodes]
        gaps = [(r["group"].rpartition("-")[0], gap_of(r, "shortfall"), gap_of(r, "preemption")) for r in some]
        figures = ", ".join(f"{100 * gap:.1f} % ({family})" for family, gap, _ in gaps)
        asked = ", ".join(f"{100 * most:.0f} % ({family})" for family, most in WITHIN.items())
        met = all(gap <= WITHIN[family] for family, gap, _ in gaps)
        rows.append((f"{nodes:,} nodes: gap of shortfall at most {asked}", figures, MET[met]))
        lost = ", ".join(f"{100 * gap:.1f} % ({family})" for family, _, gap in gaps)
        rows.append((f"{nodes:,} nodes: gap of lost work", lost, "no target"))
        over, peak = max(r["total_s"] / r["limit_s"] for r in some), max(r["peak_mb"] for r in some)
        met = over <= LARGE_OVER_LIMIT and peak < LARGE_MB
        figures = f"{100 * over:.0f} % of the limit, {peak:.0f} MB"
        rows.append((f"{nodes:,} nodes: an answer within the limit + 5 %, below {LARGE_MB} MB", figures, MET[met]))
    return rows


def tier_of(result: Result, name: str) -> Result:
    """A tier of a result."""
    return next(t for t in result["tiers"] if t["name"] == name)


def gap_of(result: Result, name: str) -> float:
    """Gap of a tier: how far its best value is above its bound, as a part of it."""
    tier = tier_of(result, name)
    return float((tier["best"] - (tier["bound"] or 0)) / max(1, tier["best"]))


def _beside_greedy(results: Sequence[Result]) -> list[tuple[str, str, str]]:
    """Two readings: values within a tier's slack as equal, and the bare order, where slack that was used counts."""
    rows = []
    for slack, reading in ((True, "slack counts as equal"), (False, "bare strict order")):
        worse = [f"{r['case']} at {r['limit_s']} s" for r in results if against_greedy(r, slack=slack) > 0]
        named = ", ".join(worse[:NAMED]) + (", …" if len(worse) > NAMED else "")
        figures = f"{len(worse)} of {len(results)} rounds worse" + (f": {named}" if worse else "")
        rows.append((f"never worse than the greedy, {reading}", figures, MET[not worse]))
    return rows


def _proved_within(results: Sequence[Result], nodes: int, within_s: float, share: float) -> list[tuple[str, str, str]]:
    """A row per time limit, since a round that has more time may use it."""
    rows = []
    for limit in sorted({r["limit_s"] for r in results if r["nodes"] == nodes and r["limit_s"] >= within_s}):
        some = [r for r in results if r["nodes"] == nodes and r["limit_s"] == limit]
        good = sum(all_proved(r) and r["total_s"] < within_s for r in some)
        ever = sum(all_proved(r) for r in some)
        asked = "every round" if share == 1 else "most rounds"
        figures = (
            f"{good} of {len(some)} (proved at all: {ever}; "
            f"total {seconds(median(r['total_s'] for r in some))} s median)"
        )
        met = good == len(some) if share == 1 else good > share * len(some)
        rows.append(
            (f"{nodes} nodes: all tiers proved in < {within_s:.0f} s, {asked}, limit {limit} s", figures, MET[met])
        )
    return rows
