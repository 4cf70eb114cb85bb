"""A CP-SAT model as rows of a mixed-integer program: what is conditional by the least big M that the domains allow."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from ortools.sat import cp_model_pb2
from ortools.sat.python import cp_model

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

UNBOUNDED = 2**62
"""What CP-SAT means by no bound is beyond this."""


class NotLinear(Exception):
    """The model has a constraint that no rows stand for."""


@dataclass(frozen=True, slots=True)
class Mip:
    """Minimise cost · x + offset over integers low ≤ x ≤ high with least ≤ A x ≤ most.

    The first ``own`` variables are the model's, in its order; the others were needed to state it. Row r of A has the
    entries ``start[r]`` to ``start[r + 1]`` of ``column`` and ``factor``.
    """

    own: int
    low: Ints
    high: Ints
    cost: Ints
    offset: int
    start: Ints
    column: Ints
    factor: Ints
    least: Floats
    most: Floats

    def at_most(self, value: int) -> Mip:
        """The same with a row more: cost · x + offset ≤ value, and half a unit, that rounding may not cut it off."""
        paid = np.flatnonzero(self.cost)
        return replace(
            self,
            start=np.append(self.start, self.start[-1] + len(paid)),
            column=np.concatenate((self.column, paid)),
            factor=np.concatenate((self.factor, self.cost[paid])),
            least=np.append(self.least, -np.inf),
            most=np.append(self.most, value - self.offset + 0.5),
        )

    def worth(self, x: Ints) -> int | None:
        """What a point is worth, in exact arithmetic; None where it breaks a row or a domain."""
        if bool((x < self.low).any() or (x > self.high).any()):
            return None
        total = np.concatenate(([0], np.cumsum(self.factor * x[self.column])))
        rows = total[self.start[1:]] - total[self.start[:-1]]
        if bool((rows < self.least).any() or (rows > self.most).any()):
            return None
        return int(self.cost @ x) + self.offset


Terms = list[tuple[int, int]]


class _Rows:
    """Rows as they are stated, and the domains that make their big M."""

    def __init__(self, low: list[int], high: list[int]) -> None:
        self.low, self.high = low, high
        self.start, self.column, self.factor = [0], list[int](), list[int]()
        self.least, self.most = list[float](), list[float]()

    def add(self, terms: Terms, least: float, most: float, only_if: Iterable[int] = ()) -> None:
        """least ≤ Σ terms ≤ most, if all of some literals hold (−v − 1 is the negation of v)."""
        low = high = 0
        for var, factor in terms:
            low += factor * (self.low[var] if factor > 0 else self.high[var])
            high += factor * (self.high[var] if factor > 0 else self.low[var])
        literals = list(only_if)
        if not literals:
            self._append(terms, least if least > low else -np.inf, most if most < high else np.inf)
            return
        if most < high:
            self._append(*_when(literals, terms, high - int(most), -np.inf, most))
        if least > low:
            self._append(*_when(literals, terms, low - int(least), least, np.inf))

    def _append(self, terms: Terms, least: float, most: float) -> None:
        self.column += [var for var, _ in terms]
        self.factor += [factor for _, factor in terms]
        self.start.append(len(self.column))
        self.least.append(least)
        self.most.append(most)

    def binary(self) -> int:
        """A new variable that is 0 or 1."""
        self.low.append(0)
        self.high.append(1)
        return len(self.low) - 1


def _when(literals: list[int], terms: Terms, big: int, least: float, most: float) -> tuple[Terms, float, float]:
    """Σ terms + big · (literals that hold − all of them) within [least, most]."""
    total, shift = dict(terms), big * len(literals)
    for v in literals:
        var, factor = (v, big) if v >= 0 else (-v - 1, -big)
        total[var] = total.get(var, 0) + factor
        shift -= big * (v < 0)
    return _terms(total), least + shift, most + shift


def mip_of(model: cp_model.CpModel) -> Mip:
    """State a model in rows.

    Raises
    ------
    NotLinear
        Where it has something else than linear rows, clauses, implications and tables over one expression.
    """
    proto = _message(model)
    domains = [list(v.domain) for v in proto.variables]
    if any(len(domain) != 2 for domain in domains):
        raise NotLinear("a variable with gaps in its domain")
    if proto.objective.scaling_factor < 0:
        raise NotLinear("an objective to be maximised")
    rows = _Rows([d[0] for d in domains], [d[-1] for d in domains])
    own = len(domains)
    tables: dict[object, list[int]] = {}
    for constraint in proto.constraints:
        kind, only_if = constraint.WhichOneof("constraint"), constraint.enforcement_literal
        if kind == "linear":
            linear, bounds = constraint.linear, constraint.linear.domain
            if len(bounds) != 2:
                raise NotLinear("a row with gaps in its domain")
            least, most = (-np.inf if bounds[0] < -UNBOUNDED else bounds[0]), bounds[1]
            rows.add(_summed(linear), least, np.inf if most > UNBOUNDED else most, only_if)
        elif kind == "bool_or":
            _clause(rows, [*constraint.bool_or.literals, *(-v - 1 for v in only_if)])
        elif kind == "bool_and":
            for v in constraint.bool_and.literals:
                _clause(rows, [v, *(-w - 1 for w in only_if)])
        elif kind == "element" and not only_if:
            _table(rows, constraint.element, tables)
        else:
            raise NotLinear(str(constraint))
    sides = [abs(side) for side in (*rows.least, *rows.most) if np.isfinite(side)]
    if max((*sides, *map(abs, rows.factor)), default=0) >= 2**53:
        raise NotLinear("numbers that floats do not hold exactly")
    cost = np.zeros(len(rows.low), dtype=np.int64)
    for var, factor in zip(proto.objective.vars, proto.objective.coeffs, strict=True):
        cost[var] += factor
    return Mip(
        own=own,
        low=np.array(rows.low, dtype=np.int64),
        high=np.array(rows.high, dtype=np.int64),
        cost=cost,
        offset=round(proto.objective.offset),
        start=np.array(rows.start, dtype=np.int64),
        column=np.array(rows.column, dtype=np.int64),
        factor=np.array(rows.factor, dtype=np.int64),
        least=np.array(rows.least, dtype=np.float64),
        most=np.array(rows.most, dtype=np.float64),
    )


def _summed(linear: Any) -> Terms:
    """Terms with every variable once."""
    total: dict[int, int] = {}
    for var, factor in zip(linear.vars, linear.coeffs, strict=True):
        total[var] = total.get(var, 0) + factor
    return _terms(total)


def _terms(total: dict[int, int]) -> Terms:
    return [(var, factor) for var, factor in total.items() if factor]


def _clause(rows: _Rows, literals: Iterable[int]) -> None:
    """At least one literal holds."""
    total: dict[int, int] = {}
    negated = 0
    for v in literals:
        var, factor = (v, 1) if v >= 0 else (-v - 1, -1)
        total[var] = total.get(var, 0) + factor
        negated += v < 0
    rows.add(_terms(total), 1 - negated, np.inf)


def _table(rows: _Rows, element: Any, known: dict[object, list[int]]) -> None:
    """target = values[index]: a binary for every position, of which one is chosen; ``known``: those of each index."""
    if any(expr.vars for expr in element.exprs):
        raise NotLinear("a table of variables")
    index, target = element.linear_index, element.linear_target
    key = (tuple(index.vars), tuple(index.coeffs), index.offset, len(element.exprs))
    if key not in known:
        chosen = known[key] = [rows.binary() for _ in element.exprs]
        rows.add([(z, 1) for z in chosen], 1, 1)
        rows.add([*_summed(index), *((z, -i) for i, z in enumerate(chosen) if i)], -index.offset, -index.offset)
    at = [(z, -expr.offset) for z, expr in zip(known[key], element.exprs, strict=True) if expr.offset]
    rows.add([*_summed(target), *at], -target.offset, -target.offset)


def _message(model: cp_model.CpModel) -> cp_model_pb2.CpModelProto:
    """The model as a protobuf message: reading the wrapper term by term takes ten times as long."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.pb"
        model.export_to_file(str(path))
        message: cp_model_pb2.CpModelProto = cp_model_pb2.CpModelProto.FromString(path.read_bytes())
        return message
