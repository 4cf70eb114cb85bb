"""Results as Markdown tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from statistics import median
from typing import Any

LEAST_S = 0.005
"""Seconds below which a ratio of two times says nothing."""

Result = dict[str, Any]
Groups = dict[str, list[Result]]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Lay out a Markdown table; all columns but the first are right-aligned."""
    lines = [head, ["---", *["--:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def grouped(results: Iterable[Result]) -> Groups:
    """Results by family and size, in the order they came."""
    out: Groups = defaultdict(list)
    for result in results:
        out[result["group"]].append(result)
    return out


def number(value: float | None) -> str:
    """Write a value short enough for a table: digits grouped, millions with two decimals."""
    if value is None:
        return "–"
    if abs(value) >= 10**6:
        return f"{value / 10**6:,.2f} M"
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"


def seconds(value: float) -> str:
    """Write seconds with enough digits to compare: milliseconds below a tenth."""
    return f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"


def ratio(value: float, greedy: float) -> str:
    """Value over the greedy's: below 1 the optimiser is better."""
    if value == greedy:
        return "1.00"
    return f"{value / greedy:.2f}" if greedy else "∞"


def against_greedy(result: Result, *, slack: bool = True) -> int:
    """Say how an answer compares with the greedy's in strict order of all tiers: -1 better, 0 equal, 1 worse.

    With ``slack`` nothing within a tier's slack is better or worse: the policy lets later tiers decide there.
    """
    mine: list[list[int]] = []
    theirs: list[list[int]] = []
    for tier in result["tiers"]:
        settled = tier["best"] + tier["slack"]
        for out, values in ((mine, tier["value"]), (theirs, tier["greedy"])):
            out.append([max(values[0], settled), *values[1:]] if slack and tier["slack"] else values)
    return (mine > theirs) - (mine < theirs)


def proved(results: Iterable[Result]) -> tuple[int, int]:
    """Tiers proved, of how many."""
    status = [tier["status"] == "optimal" for r in results for tier in r["tiers"]]
    return sum(status), len(status)


def all_proved(result: Result) -> bool:
    """Whether every tier of a round was proved."""
    return proved([result])[0] == len(result["tiers"])


def report(results: Sequence[Result], *, full: bool = False) -> str:
    """Tables of some results: a summary, medians per tier, a row per case; ``full`` adds every tier of every case."""
    if results and "phases" in results[0]:
        return phases(results)
    if results and "baselines" in results[0]:
        return baselines(results)
    parts = [summary(results), *(medians(g, rows) for g, rows in grouped(results).items()), compact(results)]
    if full:
        parts.append(every_tier(results))
    return "\n".join(parts)


def summary(results: Sequence[Result]) -> str:
    """One row per family and size."""
    rows = []
    for group, some in grouped(results).items():
        totals, peaks = [r["total_s"] for r in some], [r["peak_mb"] for r in some]
        verdicts = [against_greedy(r) for r in some]
        rows.append(
            (
                group,
                f"{some[0]['limit_s']}",
                f"{median(r['jobs'] for r in some):.0f}",
                f"{median(r['variables'] for r in some):,.0f}",
                "{} of {}".format(*proved(some)),
                f"{sum(all_proved(r) for r in some)} of {len(some)}",
                seconds(median(totals)),
                seconds(max(totals)),
                f"{100 * median(r['cpu_s'] / r['total_s'] for r in some):.0f} %",
                f"{median(peaks):.0f}",
                f"{max(peaks):.0f}",
                " / ".join(str(verdicts.count(v)) for v in (-1, 0, 1)),
            )
        )
    head = ("case", "limit s", "jobs", "variables", "tiers proved", "rounds all proved", "total s, median", "max")
    return table((*head, "CPU", "peak MB, median", "max", "better / equal / worse than greedy"), rows)


def medians(group: str, results: Sequence[Result]) -> str:
    """Per tier: medians over the seeds, the first part of tiers with several."""
    rows = []
    for i, first in enumerate(results[0]["tiers"]):
        some = [r["tiers"][i] for r in results]
        bounds = [t["bound"] for t in some if t["bound"] is not None]
        gaps = [t["gap"] for t in some if t["gap"] is not None]
        value, greedy = median(t["value"][0] for t in some), median(t["greedy"][0] for t in some)
        rows.append(
            (
                first["name"],
                number(value),
                number(median(t["best"] for t in some)),
                number(median(bounds)) if bounds else "–",
                f"{100 * median(gaps):.1f} %" if gaps else "–",
                "{} of {}".format(sum(t["status"] == "optimal" for t in some), len(some)),
                seconds(median(t["seconds"] for t in some)),
                number(greedy),
                ratio(value, greedy),
            )
        )
    head = ("tier", "value", "best", "bound", "gap", "proved", "seconds", "greedy", "value / greedy")
    return f"**{group}**, limit {results[0]['limit_s']} s, medians of {len(results)}\n\n" + table(head, rows)


def compact(results: Sequence[Result]) -> str:
    """One row per case: each tier's value, its bound in brackets where it is not proved, and the greedy's value."""
    names = [tier["name"] for tier in results[0]["tiers"]]
    rows = []
    for r in results:
        cells = [_cell(tier) for tier in r["tiers"]]
        rows.append((r["case"], seconds(r["total_s"]), f"{r['peak_mb']:.0f}", r["stop_reason"], *cells))
    note = "Each case: value [bound, where not proved] (greedy's value, where it differs).\n\n"
    return note + table(("case", "total s", "peak MB", "stopped", *names), rows)


def _cell(tier: dict[str, Any]) -> str:
    value, greedy = tier["value"][0], tier["greedy"][0]
    bound = "" if tier["status"] == "optimal" else f" [{number(tier['bound'])}]"
    return number(value) + bound + ("" if value == greedy else f" ({number(greedy)})")


def every_tier(results: Sequence[Result]) -> str:
    """Everything known of every tier of every case, all parts."""
    rows = []
    for r in results:
        for tier in r["tiers"]:
            gap = "–" if tier["gap"] is None else f"{100 * tier['gap']:.2f} %"
            numbers = [" / ".join(number(v) for v in tier[key]) for key in ("value", "greedy")]
            middle = (number(tier["best"]), number(tier["bound"]), gap, tier["status"], seconds(tier["seconds"]))
            last = (numbers[1], ratio(tier["value"][0], tier["greedy"][0]))
            rows.append((r["case"], tier["name"], numbers[0], *middle, *last))
    head = ("case", "tier", "value", "best", "bound", "gap", "status", "seconds", "greedy", "value / greedy")
    return table(head, rows)


def phases(results: Sequence[Result]) -> str:
    """Seconds of every phase, a column per family and size (medians over the seeds)."""
    groups = grouped(results)
    names = results[0]["phases"]
    rows = [(name, *(seconds(median(r["phases"][name] for r in some)) for some in groups.values())) for name in names]
    return table(("phase", *groups), rows)


def baselines(results: Sequence[Result]) -> str:
    """What several solvers reached of the same rounds: a summary, then a row per case, solver and tier."""
    head = ("case", "solver", "variables", "tier", "value", "bound", "proved", "seconds")
    rows = [row for r in results for outcome in r["baselines"] for row in _outcome(r, outcome)]
    every = table((*head, "value / cpalloc", "seconds / cpalloc"), rows)
    return "\n".join((_left_out(results) + "\n", _solvers(results), every))


def _outcome(result: Result, outcome: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """A solver's rows; values are compared with cpalloc's until a tier has another one."""
    size, alike = f"{outcome['variables']:,}" if outcome["variables"] else "–", True
    if not outcome["tiers"]:
        yield (result["case"], outcome["solver"], size, "too large", *"––", "no", *"–––")
    for mine, tier in zip(result["baselines"][0]["tiers"], outcome["tiers"], strict=False):
        yield (
            result["case"],
            outcome["solver"],
            size,
            tier["name"],
            number(tier["value"]),
            number(tier["bound"]),
            "yes" if tier["proved"] else "no",
            seconds(tier["seconds"]) if tier["seconds"] else "–",
            ratio(tier["value"], mine["value"]) if alike and tier["value"] is not None else "–",
            f"{tier['seconds'] / mine['seconds']:.1f}" if min(tier["seconds"], mine["seconds"]) >= LEAST_S else "–",
        )
        alike = alike and tier["value"] == mine["value"]


def _solvers(results: Sequence[Result]) -> str:
    """One row per family, size and solver."""
    rows = []
    for group, some in grouped(results).items():
        for index, first in enumerate(some[0]["baselines"]):
            outcomes = [r["baselines"][index] for r in some]
            tiers = [tier for outcome in outcomes for tier in outcome["tiers"]]
            taken = [outcome["total_s"] for outcome in outcomes if outcome["tiers"]]
            equal = sum(
                _values(r["baselines"][0]) == _values(outcome) for r, outcome in zip(some, outcomes, strict=True)
            )
            rows.append(
                (
                    group,
                    first["solver"],
                    f"{median(outcome['variables'] for outcome in outcomes):,.0f}" if first["variables"] else "–",
                    f"{sum(tier['proved'] for tier in tiers)} of {len(some) * len(some[0]['asked'])}",
                    f"{equal} of {len(some)}",
                    seconds(median(taken)) if taken else "–",
                    seconds(max(taken)) if taken else "–",
                )
            )
    head = ("case", "solver", "variables", "tiers proved", "all values as cpalloc's", "total s, median", "max")
    return table(head, rows)


def _values(outcome: dict[str, Any]) -> list[int | None]:
    return [tier["value"] for tier in outcome["tiers"]]


def _left_out(results: Sequence[Result]) -> str:
    return (
        f"Limit {results[0]['limit_s']} s a solver and round. All answer the same request, whose tiers are "
        f"{' → '.join(results[0]['asked'])}: `inversion` and what comes after `preemption` are left out, and of "
        "`preemption` the cost alone counts. HiGHS has the coarse counting model, a relaxation: its values are bounds "
        "of what decisions reach. A value is compared with cpalloc's as long as all tiers before it have equal values. "
        "*total s* runs from the compiled round to the last tier, building included; *seconds* are a tier's own."
    )
