"""Scenarios side by side: every measure over seeds, and its difference to a base, paired by seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from statistics import median
from typing import Any

from cpalloc.errors import InputError, Issue
from cpalloc.sim.measures.quantiles import Quantile
from cpalloc.sim.measures.registry import MEASURES, Measure
from cpalloc.sim.measures.summary import Summary
from cpalloc.sim.measures.units import Direction, Unit
from cpalloc.sim.workload import Provenance

Reading = Callable[[Summary], Quantile | None]


class Verdict(StrEnum):
    """What the paired differences say, seed by seed."""

    BETTER = "better"
    """Better with every seed."""
    WORSE = "worse"
    MIXED = "mixed"
    """Better with some, worse or equal with others."""
    SAME = "same"
    NEITHER = "neither"
    """The measure has no better side, or a lower bound stands against a lower bound."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Scenario − base, of ``pairs`` seeds both have: median, lowest, highest; ``relative``: median of diff / base."""

    median: float
    low: float
    high: float
    pairs: int
    relative: float | None
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Cell:
    """A measure in a scenario over ``seeds`` seeds that have a value; ``lower_bound``: true of any of them."""

    median: float
    low: float
    high: float
    seeds: int
    lower_bound: bool
    difference: Difference | None


@dataclass(frozen=True, slots=True)
class Row:
    """One figure in all scenarios, in their order; None where a scenario has no value of it."""

    name: str
    title: str
    group: str
    unit: Unit
    direction: Direction
    cells: tuple[Cell | None, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Scenarios of one workload side by side.

    Attributes
    ----------
    workload, provenance
        Of all of them; figures of different provenance are never put into one comparison.
    scenarios, policies, seeds
        Names, in the order of the cells; the policy of each, and the seeds it was run with.
    base
        Name of the scenario the others are compared to.
    rows
        One per measure of the registry.
    leaves
        Delivered of owed (hour-capped) of each leaf budget.
    """

    workload: str
    provenance: Provenance
    scenarios: tuple[str, ...]
    policies: tuple[str, ...]
    seeds: tuple[tuple[int, ...], ...]
    base: str
    rows: tuple[Row, ...]
    leaves: tuple[Row, ...]
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)

    def row(self, name: str) -> Row:
        """Row of a measure by its name."""
        return next(row for row in self.rows if row.name == name)


def compare(scenarios: Mapping[str, Sequence[Summary]], *, base: str | None = None) -> Comparison:
    """Put scenarios side by side.

    Parameters
    ----------
    scenarios
        Summaries of each, one per seed.
    base
        The scenario the others are compared to; the first by default.

    Raises
    ------
    InputError
        ``empty``, ``unknown_base``, ``duplicate_seed`` and ``mixed_provenance``, all of them at once.
    """
    base = next(iter(scenarios), "") if base is None else base
    _check(scenarios, base)
    first = scenarios[base][0]
    leaves = dict.fromkeys(leaf.leaf for runs in scenarios.values() for s in runs for leaf in s.delivery.leaves)
    return Comparison(
        workload=first.workload,
        provenance=first.provenance,
        scenarios=tuple(scenarios),
        policies=tuple(runs[0].policy for runs in scenarios.values()),
        seeds=tuple(tuple(sorted(s.seed for s in runs)) for runs in scenarios.values()),
        base=base,
        rows=tuple(_row(m, scenarios, base, m.read) for m in MEASURES),
        leaves=tuple(_row(_leaf_measure(name), scenarios, base, _leaf_reading(name)) for name in leaves),
        notes=tuple(dict.fromkeys(note for runs in scenarios.values() for s in runs for note in s.notes)),
    )


def _check(scenarios: Mapping[str, Sequence[Summary]], base: str) -> None:
    issues = [
        Issue("empty", f"scenarios.{name}", "has no finished run; run it, or leave it out")
        for name, runs in scenarios.items()
        if not runs
    ]
    if base not in scenarios:
        known = ", ".join(scenarios) or "none"
        issues.append(Issue("unknown_base", "base", f"`{base}` is not a scenario; the scenarios are: {known}"))
    for name, runs in scenarios.items():
        seeds = [s.seed for s in runs]
        if len(set(seeds)) < len(seeds):
            message = "has several runs of one seed; keep one each, or give them scenarios of their own"
            issues.append(Issue("duplicate_seed", f"scenarios.{name}", message))
    kinds = sorted({str(s.provenance) for runs in scenarios.values() for s in runs})
    if len(kinds) > 1:
        message = f"mixes {' and '.join(kinds)} figures; compare each kind on its own"
        issues.append(Issue("mixed_provenance", "scenarios", message))
    if issues:
        raise InputError(issues)


def _leaf_measure(leaf: str) -> Measure:
    return Measure(leaf, leaf, "Delivered of owed by budget, hour-capped", Unit.SHARE, Direction.HIGHER, "")


def _leaf_reading(name: str) -> Reading:
    def read(summary: Summary) -> Quantile | None:
        found = next((leaf.hour_capped for leaf in summary.delivery.leaves if leaf.leaf == name), None)
        return None if found is None else Quantile(found)

    return read


def _row(measure: Measure, scenarios: Mapping[str, Sequence[Summary]], base: str, read: Reading) -> Row:
    values = {name: _by_seed(runs, read) for name, runs in scenarios.items()}
    cells = (_cell(v, None if name == base else values[base], measure.direction) for name, v in values.items())
    return Row(measure.name, measure.title, measure.group, measure.unit, measure.direction, tuple(cells))


def _by_seed(runs: Sequence[Summary], read: Reading) -> dict[int, Quantile]:
    found = {s.seed: read(s) for s in runs}
    return {seed: value for seed, value in sorted(found.items()) if value is not None}


def _cell(values: dict[int, Quantile], base: dict[int, Quantile] | None, direction: Direction) -> Cell | None:
    if not values:
        return None
    plain = [q.value for q in values.values()]
    return Cell(
        median=median(plain),
        low=min(plain),
        high=max(plain),
        seeds=len(plain),
        lower_bound=any(q.lower_bound for q in values.values()),
        difference=None if base is None else _difference(values, base, direction),
    )


def _difference(values: dict[int, Quantile], base: dict[int, Quantile], direction: Direction) -> Difference | None:
    pairs = [(values[seed], base[seed]) for seed in values if seed in base]
    if not pairs:
        return None
    gaps = [value.value - other.value for value, other in pairs]
    parts = [gap / other.value for gap, (_, other) in zip(gaps, pairs, strict=True) if other.value]
    signs = {_verdict(value, other, direction) for value, other in pairs}
    return Difference(
        median=median(gaps),
        low=min(gaps),
        high=max(gaps),
        pairs=len(pairs),
        relative=median(parts) if len(parts) == len(pairs) else None,
        verdict=signs.pop() if len(signs) == 1 else Verdict.MIXED,
    )


def _verdict(value: Quantile, other: Quantile, direction: Direction) -> Verdict:
    """Judge one pair: what is only a lower bound cannot be called smaller, nor equal."""
    gap = value.value - other.value
    smaller_is_sure = not value.lower_bound if gap < 0 else not other.lower_bound
    if direction is Direction.NEITHER or not (smaller_is_sure or gap == 0):
        return Verdict.NEITHER
    if gap == 0:
        return Verdict.NEITHER if value.lower_bound or other.lower_bound else Verdict.SAME
    return Verdict.BETTER if (gap > 0) == (direction is Direction.HIGHER) else Verdict.WORSE
