"""Did it get slower, or prove less? ``python -m bench.watch --record bench/thresholds.json``, then ``bench.watch``.

A few fixed rounds are solved several times. Recorded are, a case: which tiers were proved, their values, and the spread
of the seconds, as multiples of a calibration that runs before and after every solve in the same process, so that a
slow machine does not count as a regression. Comparing says what got worse, and ends with exit code 1 if anything did.

*Seconds* are those of the tiers that every recorded run proved, since a tier that is not proved takes what time it may.
Values are compared as long as all tiers before are proved: later ones rest on a decision that need not be the same.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from bench.runner import Plan, Result, progress, run
from bench.table import PIPED_WIDTH
from bench.targets import machine

THRESHOLDS = Path(__file__).parent / "thresholds.json"
LIMIT_S = 20
RUNS = 3

LEAST_MARGIN = 0.25
"""Part of the median by which a case may always be slower: a few runs do not show all of the spread."""

UNIQUE = ("starvation", "shortfall", "inversion", "preemption")
"""Tiers with one optimum, whoever finds it; the values of later ones rest on which of the best decisions was found."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Seconds over calibration seconds: the middle, and the extremes."""

    median: float
    low: float
    high: float

    @property
    def most(self) -> float:
        """The ratio beyond which a case counts as slower: the spread once more above the highest one recorded."""
        return max(self.high + (self.high - self.low), self.median * (1 + LEAST_MARGIN))


@dataclass(frozen=True, slots=True)
class Threshold:
    """What was recorded of a case.

    ``values`` holds the lowest and highest value of each tier that was proved every time with all tiers before it;
    ``timed`` the tiers whose seconds are in ``ratio``, each with the median of its own.
    """

    runs: int
    least_proved: int
    timed: dict[str, float]
    values: dict[str, tuple[float, float]]
    ratio: Spread


@dataclass(frozen=True, slots=True)
class Finding:
    """What is to be said of a case; ``worse`` says whether it counts as a regression."""

    case: str
    message: str
    worse: bool = True


@dataclass(frozen=True, slots=True)
class Compared:
    """A case now beside what was recorded: tiers proved, the ratio of its seconds, and what there is to say."""

    case: str
    proved: int
    ratio: float | None
    threshold: Threshold | None
    findings: tuple[Finding, ...]


def plans(runs: int) -> list[Plan]:
    """The fixed rounds."""
    families = ("mixed", "gang-heavy")
    return [
        Plan(families, (64,), (1, 2, 3), LIMIT_S, runs, "watched"),
        Plan(families, (256,), (1,), LIMIT_S, runs, "watched"),
    ]


def by_case(results: Sequence[Result]) -> dict[str, list[Result]]:
    """The runs of each case."""
    out: dict[str, list[Result]] = {}
    for result in results:
        out.setdefault(result["case"], []).append(result)
    return out


def threshold_of(runs: Sequence[Result]) -> Threshold:
    """What some runs of one case show."""
    always = [name for name in proved_tiers(runs[0]) if all(name in proved_tiers(run) for run in runs)]
    timed = {name: round(median(ratio_of(run, [name]) for run in runs), 4) for name in always}
    known = [settled_values(run) for run in runs]
    values = {
        name: (min(v[name] for v in known), max(v[name] for v in known))
        for name in known[0]
        if all(name in v for v in known)
    }
    ratios = [ratio_of(run, timed) for run in runs]
    spread = Spread(*(round(x, 4) for x in (median(ratios), min(ratios), max(ratios))))
    return Threshold(len(runs), min(len(proved_tiers(run)) for run in runs), timed, values, spread)


def proved_tiers(result: Result) -> list[str]:
    """Names of the tiers that a run proved."""
    return [tier["name"] for tier in result["tiers"] if tier["status"] == "optimal"]


def settled_values(result: Result) -> dict[str, float]:
    """Values of the tiers from the first one on, up to one that was not proved."""
    out: dict[str, float] = {}
    for tier in result["tiers"]:
        if tier["status"] != "optimal":
            break
        out[tier["name"]] = tier["best"]
    return out


def ratio_of(result: Result, timed: Collection[str]) -> float:
    """Seconds of some tiers over those of the calibration."""
    taken_s = sum(tier["seconds"] for tier in result["tiers"] if tier["name"] in timed)
    return float(taken_s / result["calibration_s"])


def compared(case: str, runs: Sequence[Result], threshold: Threshold | None) -> Compared:
    """Hold the runs of a case against what was recorded; the middle run counts."""
    proved = int(median(len(proved_tiers(run)) for run in runs))
    if threshold is None:
        missing = Finding(case, "is not among the thresholds; record them again", worse=False)
        return Compared(case, proved, None, None, (missing,))
    findings = [Finding(case, message) for message in _values_differ(runs, threshold)]
    if proved < threshold.least_proved:
        lost = [name for name in threshold.timed if sum(name not in proved_tiers(run) for run in runs) * 2 > len(runs)]
        named = f" (no longer: {', '.join(lost)})" if lost else ""
        findings.append(Finding(case, f"proves {proved} tiers{named}, at least {threshold.least_proved} before"))
    ratio = median(ratio_of(run, threshold.timed) for run in runs)
    seen = threshold.ratio
    if ratio > seen.most:
        findings.append(
            Finding(
                case,
                f"takes {ratio:.2f} calibrations, {seen.median:.2f} before ({seen.low:.2f} to {seen.high:.2f}, "
                f"{seen.most:.2f} allowed); {_slowest(runs, threshold)}",
            )
        )
    elif ratio < seen.low:
        findings.append(Finding(case, f"is faster: {ratio:.2f} calibrations, {seen.median:.2f} before", worse=False))
    return Compared(case, proved, ratio, threshold, tuple(findings))


def _slowest(runs: Sequence[Result], threshold: Threshold) -> str:
    """The tier that takes most more than it did."""
    now = {name: median(ratio_of(run, [name]) for run in runs) for name in threshold.timed}
    name = max(now, key=lambda name: now[name] - threshold.timed[name])
    return f"most of it {name}, {now[name]:.2f} instead of {threshold.timed[name]:.2f}"


def _values_differ(runs: Sequence[Result], threshold: Threshold) -> list[str]:
    """Proved values that are not what they were: of tiers with one optimum any other, of later ones higher ones."""
    out: list[str] = []
    for name, (low, high) in threshold.values.items():
        now = sorted({values[name] for values in map(settled_values, runs) if name in values})
        before = f"{low:,.0f}" if low == high else f"{low:,.0f} to {high:,.0f}"
        if name in UNIQUE:
            wrong = [value for value in now if not low <= value <= high]
            why = "; one of the two proofs is wrong"
        else:
            wrong, why = [value for value in now if value > high], ""
        if wrong:
            out.append(f"proves {name} = {', '.join(f'{value:,.0f}' for value in wrong)}, {before} before{why}")
    return out


def record(path: Path, results: Sequence[Result]) -> dict[str, Threshold]:
    """Write the thresholds that some runs show."""
    thresholds = {case: threshold_of(runs) for case, runs in by_case(results).items()}
    document = {
        "machine": machine(results),
        "limit_s": LIMIT_S,
        "cases": {case: asdict(threshold) for case, threshold in thresholds.items()},
    }
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return thresholds


def read(path: Path) -> dict[str, Threshold]:
    """Read thresholds.

    Raises
    ------
    SystemExit
        When there are none to be read.
    """
    try:
        cases = json.loads(path.read_text(encoding="utf-8"))["cases"]
        return {
            case: Threshold(
                runs=row["runs"],
                least_proved=row["least_proved"],
                timed=dict(row["timed"]),
                values={name: (low, high) for name, (low, high) in row["values"].items()},
                ratio=Spread(**row["ratio"]),
            )
            for case, row in cases.items()
        }
    except FileNotFoundError:
        raise SystemExit(f"no thresholds in {path}; record some: python -m bench.watch --record {path}") from None
    except (json.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise SystemExit(
            f"{path} does not read as thresholds ({error}); record anew: python -m bench.watch --record {path}"
        ) from None


def table(rows: Sequence[Compared], good: str = "as before") -> Table:
    """Every case now and as recorded; ``good`` is the verdict on a case that got no worse."""
    out = Table("case", "tiers proved", "before", "calibrations", "before", "allowed", "verdict")
    for row in rows:
        seen = row.threshold
        worse = any(finding.worse for finding in row.findings)
        out.add_row(
            row.case,
            str(row.proved),
            "–" if seen is None else f"≥ {seen.least_proved}",
            "–" if row.ratio is None else f"{row.ratio:.2f}",
            "–" if seen is None else f"{seen.ratio.median:.2f} ({seen.ratio.low:.2f}–{seen.ratio.high:.2f})",
            "–" if seen is None else f"{seen.ratio.most:.2f}",
            "[bold red]worse[/]" if worse else "not recorded" if seen is None else good,
        )
    return out


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and record or compare; 1 when anything got worse."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.watch", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--record", type=Path, metavar="FILE", help="write thresholds instead of comparing with them")
    parser.add_argument("--against", type=Path, default=THRESHOLDS, metavar="FILE", help="thresholds to compare with")
    parser.add_argument("--runs", type=int, default=RUNS, help=f"solves a case; {RUNS} by default")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the comparison, or the runs recorded")
    options = parser.parse_args(argv)
    if options.runs < 1:
        parser.error(f"--runs is {options.runs}; at least 1 is needed")
    thresholds = {} if options.record else read(options.against)
    wanted = plans(options.runs)
    with progress(wanted) as tick:
        results = [result for plan in wanted for result in run(plan, tick)]
    console = Console()
    if options.record:
        thresholds = record(options.record, results)
        console.print(f"{len(thresholds)} cases recorded in {options.record}, {options.runs} runs each", soft_wrap=True)
    rows = [compared(case, runs, thresholds.get(case)) for case, runs in by_case(results).items()]
    findings = [finding for row in rows for finding in row.findings]
    wide = Console(width=None if console.is_terminal else PIPED_WIDTH)
    wide.print(table(rows, "recorded" if options.record else "as before"))
    for finding in () if options.record else findings:
        console.print(f"{finding.case} {finding.message}", style="red" if finding.worse else "", soft_wrap=True)
    if options.json:
        document = results if options.record else [asdict(row) for row in rows]
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return int(not options.record and any(finding.worse for finding in findings))


if __name__ == "__main__":
    sys.exit(main())
