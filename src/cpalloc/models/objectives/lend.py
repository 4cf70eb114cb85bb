"""Lend: borrowed GPUs by share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import partial
from math import lcm
from typing import ClassVar

import numpy as np
from ortools.sat.python import cp_model

from cpalloc.models.base import PartSpec
from cpalloc.models.variables import Linear, ModelContext, dot
from cpalloc.problem.grants import borrowed
from cpalloc.problem.problem import Decision, JobState, Mode, Problem

MAX_TABLE = 4096
"""Most totals for which the split is tabulated; where more are possible the tier is not modelled (bound 0)."""


class Lend:
    """Deficits of the leaves below the max-min split of all lent GPUs by share: Σ_leaf Σ_{k=0..3} 2^k · seg_k."""

    name: ClassVar[str] = "lend"
    parts: ClassVar[tuple[PartSpec, ...]] = (PartSpec("lend", "weighted quarter GPUs"),)
    limits_model: ClassVar[bool] = True

    def floor(self, problem: Problem) -> tuple[int, ...]:
        """Lent exactly by share."""
        return (0,)

    def build(self, ctx: ModelContext) -> tuple[Linear, ...]:
        """Deficits below the split of all that is lent; the split is a table over the total B."""
        problem, model = ctx.problem, ctx.model
        demand = borrow_demand(problem)
        leaves = [leaf for leaf, wanted in enumerate(demand) if wanted]
        least, most = ctx.borrowed_range()
        if not leaves or most - least > MAX_TABLE:
            return (0,)
        rule = Split(problem.budgets.share, demand)
        splits = [ctx.memo(("lent", total), partial(rule.at, total)) for total in range(least, most + 1)]
        above = model.new_int_var(0, most - least, "lent")
        model.add(above + least == ctx.borrowed(range(len(demand))))
        terms: list[tuple[int, cp_model.IntVar]] = []
        for leaf in leaves:
            column = [row[leaf] for row in splits]
            target = model.new_int_var(min(column), max(column), f"target{leaf}")
            model.add_element(above, column, target)
            quarters = [model.new_int_var(0, max(column), f"lack{leaf},{k}") for k in range(4)]
            for quarter in quarters:
                model.add(quarter <= target)
            model.add(dot([(1, q) for q in quarters]) >= 4 * (target - ctx.borrowed([leaf])))
            terms.extend((2**k, quarters[k]) for k in range(4))
        return (dot(terms),)

    def evaluate(self, problem: Problem, decision: Decision) -> tuple[int, ...]:
        """Leaf by leaf, quarter by quarter."""
        have = borrowed(problem, decision).tolist()
        target = split(sum(have), problem.budgets.share, borrow_demand(problem))
        total = 0
        for t, got in zip(target, have, strict=True):
            short = max(0, t - got)
            total += sum(2**k * min(max(4 * short - k * t, 0), t) for k in range(4))
        return (total,)


def borrow_demand(problem: Problem) -> list[int]:
    """GPUs every leaf could borrow: what it borrows now and stays, and its pending jobs that may."""
    jobs = problem.jobs
    runs = (jobs.state == JobState.FIXED) | (jobs.state == JobState.EVICTABLE)
    counts = (jobs.leaf >= 0) & (
        (runs & (jobs.mode == Mode.BORROWED)) | ((jobs.state == JobState.PENDING) & jobs.may_borrow)
    )
    out = np.zeros(len(problem.budgets.share), dtype=np.int64)
    np.add.at(out, jobs.leaf[counts], jobs.size[counts])
    return [int(x) for x in out]


class Split:
    """Max-min split of a number of lent GPUs by share, nobody over its demand; whole GPUs by largest remainder.

    Leaves are raised together, each at the pace of its share, until its demand is met; leaves without a share get what
    is left over, all at one pace. Ties by leaf order, which is name order. Exact: in units of 1 / denominator.

    Parameters
    ----------
    share, demand
        Of every leaf.
    """

    def __init__(self, share: Sequence[Fraction], demand: Sequence[int]) -> None:
        scale = lcm(*(s.denominator for s in share)) if share else 1
        pace = [s.numerator * (scale // s.denominator) for s in share]
        self._demand = demand
        self._funded = _Pool({i: p for i, p in enumerate(pace) if p}, demand)
        self._others = _Pool({i: 1 for i, p in enumerate(pace) if not p}, demand)

    def at(self, total: int) -> list[int]:
        """Every leaf's part of a total."""
        out = [0] * len(self._demand)
        first = min(total, self._funded.demand)
        self._funded.fill(first, out)
        self._others.fill(min(total - first, self._others.demand), out)
        return out


class _Pool:
    """Leaves that are raised together, those whose demand is met first in front."""

    def __init__(self, pace: Mapping[int, int], demand: Sequence[int]) -> None:
        wanting = [i for i in pace if demand[i]]
        self._order = sorted(wanting, key=lambda i: (Fraction(demand[i], pace[i]), i))
        self._pace, self._want = pace, demand
        self._weight = sum(pace[i] for i in wanting)
        self.demand = sum(demand[i] for i in wanting)

    def fill(self, total: int, out: list[int]) -> None:
        """Water filling: all at their pace, until each one's demand or the total is met."""
        pace, want = self._pace, self._want
        left, weight = total, self._weight
        for position, i in enumerate(self._order):
            if left * pace[i] >= want[i] * weight:
                out[i] = want[i]
                left -= want[i]
                weight -= pace[i]
                continue
            still = self._order[position:]
            for k in still:
                out[k] = left * pace[k] // weight
            spare = left - sum(out[k] for k in still)
            for k in sorted(still, key=lambda k: (-(left * pace[k] % weight), k))[:spare]:
                out[k] += 1
            return


def split(total: int, share: Sequence[Fraction], demand: Sequence[int]) -> list[int]:
    """:class:`Split` of one total."""
    return Split(share, demand).at(total)
