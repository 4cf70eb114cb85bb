"""What is asked of speed and proof at every size, ten seeds a family: measured, judged, and put into a document.

``python -m bench.musts --update docs/benchmarks.md`` takes about three quarters of an hour. With ``--json FILE`` every
result is kept as soon as it is there, and what the file has already is not measured again, so that it can be stopped
and taken up. ``--sizes 64,256`` measures and prints some rows only.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.cases import FAMILIES
from bench.document import MUSTS, write_block
from bench.ranges import numbers
from bench.render import Result, against_greedy, all_proved, seconds, table
from bench.runner import Plan, Tick, measured, progress
from bench.targets import MET, gap_of, machine, tier_of

TOTAL_MB = 1000
OVER_LIMIT, OVER_S = 1.05, 0.1
"""What a limit may be exceeded by: a part of it, or seconds, whichever is more."""

SEEDS = 10
"""Seeds of each family that are asked for: with fewer, what is met is met so far."""

USUAL_NODES, USUAL_S = 1000, 0.150
GREEDY_S = 2.0


@dataclass(frozen=True, slots=True)
class Must:
    """A row: what is asked of rounds of a size and some families with a time limit.

    Attributes
    ----------
    good
        Whether a round meets it.
    seeds_of_ten
        How many of ten seeds have to, in each family.
    told
        Figures of some rounds, for whoever wants to know how far away they are.
    """

    nodes: int
    families: tuple[str, ...]
    limit_s: int
    asked: str
    good: Callable[[Result], bool]
    seeds_of_ten: int
    told: Callable[[Sequence[Result]], str]

    def plan(self, seeds: tuple[int, ...]) -> Plan:
        """The rounds it looks at."""
        return Plan(self.families, (self.nodes,), seeds, self.limit_s)

    def row(self, results: Sequence[Result]) -> tuple[str, str, str]:
        """What is asked, what was measured, and the verdict."""
        figures, met, whole = [], True, True
        for family in self.families:
            some = [r for r in results if self._is_of(r, family)]
            whole &= len(some) >= SEEDS
            if some:
                good = sum(map(self.good, some))
                met &= 10 * good >= self.seeds_of_ten * len(some)
                figures.append(f"{family} {good} of {len(some)} ({self.told(some)})")
        many = "every seed" if self.seeds_of_ten == 10 else f"{self.seeds_of_ten} of ten"
        asked = f"{self.nodes:,} nodes: {self.asked}, {many}"
        verdict = "met so far" if met and not whole else MET[met]
        return (asked, "; ".join(figures), verdict) if figures else (asked, "not measured", "–")

    def _is_of(self, r: Result, family: str) -> bool:
        return (r["group"], r["limit_s"]) == (f"{family}-{self.nodes}", self.limit_s)


def _proved_within(limit_s: float) -> Callable[[Result], bool]:
    return lambda r: all_proved(r) and r["total_s"] <= limit_s


def _gaps_within(
    shortfall: float, lost: float | None = None, *, most_mb: float = float("inf")
) -> Callable[[Result], bool]:
    def good(r: Result) -> bool:
        return (
            gap_of(r, "shortfall") <= shortfall
            and (lost is None or gap_of(r, "preemption") <= lost)
            and r["peak_mb"] < most_mb
        )

    return good


def _begun(r: Result) -> bool:
    """The greedy's decision or a better one, with a bound of shortfall, and in time."""
    starvation, shortfall = tier_of(r, "starvation"), tier_of(r, "shortfall")
    served = [starvation["best"], shortfall["best"]] <= [starvation["greedy"][0], shortfall["greedy"][0]]
    return served and shortfall["bound"] is not None and _in_time(r)


def _in_time(r: Result) -> bool:
    """Whether the limit was kept, which counts from when the request was read."""
    took = r["total_s"] - r["parse_s"]
    return bool(took <= max(OVER_LIMIT * r["limit_s"], r["limit_s"] + OVER_S))


def _better(r: Result) -> bool:
    """Better than the greedy within slack, with a bound for every tier, and in time."""
    return against_greedy(r) < 0 and all(t["bound"] is not None for t in r["tiers"]) and _in_time(r)


def _proofs(results: Sequence[Result]) -> str:
    proved = sum(map(all_proved, results))
    return f"proved in {results[0]['limit_s']} s: {proved}; median {_middle(results, 'total_s')} s"


def _gaps(results: Sequence[Result]) -> str:
    short, lost = (sorted(gap_of(r, name) for r in results) for name in ("shortfall", "preemption"))
    return f"gap of shortfall {_spread(short)}, of lost work {_spread(lost)}"


def _sizes(results: Sequence[Result]) -> str:
    longest = max((r["total_s"] - r["parse_s"]) / r["limit_s"] for r in results)
    return f"longest {100 * longest:.0f} % of the limit, {max(r['peak_mb'] for r in results):.0f} MB; {_gaps(results)}"


def _greedy(results: Sequence[Result]) -> str:
    return f"median {_middle(results, 'greedy_s')} s, longest {seconds(max(r['greedy_s'] for r in results))} s"


def _middle(results: Sequence[Result], what: str) -> str:
    return seconds(median(r[what] for r in results))


def _spread(gaps: Sequence[float]) -> str:
    return f"{100 * median(gaps):.1f} % at the median, {100 * max(gaps):.1f} % at most"


BOTH = FAMILIES
MUST = (
    Must(64, BOTH, 20, "all tiers proved in 1 s", _proved_within(1), 10, _proofs),
    Must(256, BOTH, 20, "all tiers proved in 3 s", _proved_within(3), 8, _proofs),
    Must(1000, BOTH, 3, "shortfall within 1 % in 3 s", _gaps_within(0.01), 9, _gaps),
    Must(1000, ("mixed",), 6, "lost work too within 1 % in 6 s", _gaps_within(0.01, 0.01), 9, _gaps),
    Must(1000, ("gang-heavy",), 10, "lost work too within 5 % in 10 s", _gaps_within(0.01, 0.05), 9, _gaps),
    # Compiling takes 0.6 s, and what comes after the tiers 2 s.
    Must(10_000, BOTH, 6, "the greedy or better, and a bound, 3 s after compiling", _begun, 10, _sizes),
    Must(10_000, BOTH, 6, "the greedy in 2 s", lambda r: bool(r["greedy_s"] <= GREEDY_S), 10, _greedy),
    Must(
        10_000,
        ("mixed",),
        15,
        "shortfall within 5 % in 15 s, below 1 GB",
        _gaps_within(0.05, most_mb=TOTAL_MB),
        10,
        _sizes,
    ),
    Must(
        10_000,
        ("gang-heavy",),
        30,
        "shortfall within 10 % in 30 s, below 1 GB",
        _gaps_within(0.1, most_mb=TOTAL_MB),
        10,
        _sizes,
    ),
    Must(20_000, BOTH, 30, "better than the greedy, with bounds, in 30 s", _better, 10, _sizes),
)
"""Every row; those with the same rounds share them."""


def orders(musts: Sequence[Must], seeds: tuple[int, ...]) -> list[dict[str, object]]:
    """The rounds of some rows, each once, the small ones first."""
    out: list[dict[str, object]] = []
    for must in musts:
        out += [order for order in must.plan(seeds).orders() if order not in out]
    return out


def measure(wanted: Sequence[dict[str, object]], keep: Path | None, tick: Tick) -> Iterator[Result]:
    """Measure what is wanted and not kept yet, a process each; all of it comes out, in order."""
    have: dict[str, Result] = json.loads(keep.read_text()) if keep and keep.exists() else {}
    for order in wanted:
        key = "{family}-{nodes}-s{seed} at {limit_s} s".format(**order)
        if key in have:
            tick(key)
        else:
            have[key] = measured(order, tick)
            if keep:
                keep.write_text(json.dumps(have, indent=1) + "\n")
        yield have[key]


def usual_row(rounds: int) -> tuple[str, str, str]:
    """The usual round over HTTP."""
    from bench.usual import Queue, measured, over_http, service
    from cpalloc.engine import Solver

    queue = Queue("mixed", USUAL_NODES, 1, limit_s=20, events=10)
    for _ in measured(queue, 6, Solver()):
        pass
    with service() as url:
        took = list(over_http(queue, rounds + 1, url))[1:]  # the first one loads the solver
    figures = f"median {seconds(median(took))} s, longest {seconds(max(took))} s of {rounds} rounds"
    return (
        f"{USUAL_NODES:,} nodes: the usual round in {1000 * USUAL_S:.0f} ms over HTTP",
        figures,
        MET[median(took) <= USUAL_S],
    )


def report(results: Sequence[Result], musts: Sequence[Must], more: Sequence[tuple[str, str, str]] = ()) -> str:
    """A row per must, and how the answers compare with the greedy's."""
    above = [r for r in results if _above(r)]
    worse = [r for r in results if against_greedy(r) > 0]
    rows = [must.row(results) for must in musts]
    rows += [
        *more,
        (
            "shortfall never above the greedy's at the same starvation",
            f"{len(above)} of {len(results)} rounds above",
            MET[not above],
        ),
        (
            "never worse than the greedy, slack counts as equal",
            f"{len(worse)} of {len(results)} rounds worse",
            MET[not worse],
        ),
    ]
    return machine(results) + "\n\n" + table(("must", "measured", "verdict"), rows)


def _above(r: Result) -> bool:
    """Whether more shortfall is left than by the greedy, though no less starvation."""
    starvation, shortfall = tier_of(r, "starvation"), tier_of(r, "shortfall")
    return bool(starvation["best"] >= starvation["greedy"][0] and shortfall["best"] > shortfall["greedy"][0])


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print, and write what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench.musts", description=__doc__)
    parser.add_argument("--seeds", type=numbers, default=tuple(range(1, 11)), help="e.g. 1-10")
    parser.add_argument("--sizes", type=numbers, help="nodes of the rows wanted; all by default")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep every result here, and go on from there")
    parser.add_argument("--update", type=Path, metavar="FILE", help=f"replace the block {MUSTS} of a document")
    options = parser.parse_args(argv)
    musts = [must for must in MUST if not options.sizes or must.nodes in options.sizes]
    plans = {(m.families, m.nodes, m.limit_s): m.plan(options.seeds) for m in musts}
    with progress(list(plans.values())) as tick:
        results = list(measure(orders(musts, options.seeds), options.json, tick))
        usual = [] if options.sizes and USUAL_NODES not in options.sizes else [usual_row(10)]
    text = report(results, musts, usual)
    print(text)
    if options.update:
        write_block(options.update, MUSTS, text)


if __name__ == "__main__":
    main()
