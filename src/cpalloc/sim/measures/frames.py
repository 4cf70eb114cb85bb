"""Summaries and comparisons as flat tables, for Parquet and for polars."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import polars as pl

from cpalloc.sim.measures.compare import Comparison, Row
from cpalloc.sim.measures.registry import MEASURES
from cpalloc.sim.measures.summary import Summary

_RUN = {"scenario": pl.String, "workload": pl.String, "provenance": pl.String, "policy": pl.String, "seed": pl.Int64}
_MEASURE = {"measure": pl.String, "group": pl.String, "unit": pl.String, "better": pl.String}
_LEAF = {
    "leaf": pl.String,
    "owed_gpu_hours": pl.Float64,
    "demanded_gpu_hours": pl.Float64,
    "delivered_gpu_hours": pl.Float64,
    "borrowed_gpu_hours": pl.Float64,
    "hour_capped": pl.Float64,
    "total_capped": pl.Float64,
    "last_ratio": pl.Float64,
}
_CELL = {
    "median": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "seeds": pl.Int64,
    "lower_bound": pl.Boolean,
    "difference_median": pl.Float64,
    "difference_low": pl.Float64,
    "difference_high": pl.Float64,
    "difference_pairs": pl.Int64,
    "difference_relative": pl.Float64,
    "verdict": pl.String,
}


def measure_frame(scenarios: Mapping[str, Sequence[Summary]]) -> pl.DataFrame:
    """One row per scenario, seed and measure of the registry; ``value`` is null where there is none."""
    rows = []
    for scenario, s in _runs(scenarios):
        for m in MEASURES:
            q = m.read(s)
            value = (None, False) if q is None else (q.value, q.lower_bound)
            rows.append((*_run(scenario, s), m.name, m.group, str(m.unit), str(m.direction), *value))
    schema = {**_RUN, **_MEASURE, "value": pl.Float64, "lower_bound": pl.Boolean}
    return pl.DataFrame(rows, schema=schema, orient="row")


def leaf_frame(scenarios: Mapping[str, Sequence[Summary]]) -> pl.DataFrame:
    """One row per scenario, seed and leaf budget."""
    rows = [
        (*_run(scenario, s), *(getattr(leaf, name) for name in _LEAF))
        for scenario, s in _runs(scenarios)
        for leaf in s.delivery.leaves
    ]
    return pl.DataFrame(rows, schema={**_RUN, **_LEAF}, orient="row")


def comparison_frame(comparison: Comparison) -> pl.DataFrame:
    """One row per figure (measures, then leaves) and scenario that has a value of it."""
    rows = [row for figure in (*comparison.rows, *comparison.leaves) for row in _cells(comparison, figure)]
    schema = {"workload": pl.String, "provenance": pl.String, "scenario": pl.String, **_MEASURE, **_CELL}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _cells(comparison: Comparison, row: Row) -> Iterable[tuple[object, ...]]:
    head = (comparison.workload, str(comparison.provenance))
    measure = (row.name, row.group, str(row.unit), str(row.direction))
    for scenario, cell in zip(comparison.scenarios, row.cells, strict=True):
        if cell is None:
            continue
        d = cell.difference
        gap = (d.median, d.low, d.high, d.pairs, d.relative, str(d.verdict)) if d else (None,) * 6
        yield *head, scenario, *measure, cell.median, cell.low, cell.high, cell.seeds, cell.lower_bound, *gap


def _runs(scenarios: Mapping[str, Sequence[Summary]]) -> Iterable[tuple[str, Summary]]:
    return ((name, s) for name, runs in scenarios.items() for s in runs)


def _run(scenario: str, s: Summary) -> tuple[str, str, str, str, int]:
    return scenario, s.workload, str(s.provenance), s.policy, s.seed
