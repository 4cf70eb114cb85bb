"""Lend: borrowed GPUs by share."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import lcm
from typing import ClassVar

from ortools.sat.python import cp_model

from cpalloc.models.base import PartSpec
from cpalloc.models.variables import Linear, ModelContext, dot
from cpalloc.problem.grants import borrowed
from cpalloc.problem.problem import Decision, JobState, Mode, Problem

MAX_TABLE = 4096
"""Most GPUs that may be lent for the split to be tabulated; beyond it the tier is not modelled (bound 0)."""


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
        most = sum(demand)
        if not leaves or most > MAX_TABLE:
            return (0,)
        splits = ctx.memo("lend", lambda: table(most, problem.budgets.share, demand))
        total = model.new_int_var(0, most, "lent")
        model.add(total == ctx.borrowed(range(len(demand))))
        terms: list[tuple[int, cp_model.IntVar]] = []
        for leaf in leaves:
            column = [row[leaf] for row in splits]
            target = model.new_int_var(0, max(column), f"target{leaf}")
            model.add_element(total, column, target)
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
    out = [0] * len(problem.budgets.share)
    for j in range(len(jobs)):
        stays = jobs.state[j] in (JobState.FIXED, JobState.EVICTABLE) and jobs.mode[j] == Mode.BORROWED
        if jobs.leaf[j] >= 0 and (stays or (jobs.state[j] == JobState.PENDING and jobs.may_borrow[j])):
            out[int(jobs.leaf[j])] += int(jobs.size[j])
    return out


def table(most: int, share: Sequence[Fraction], demand: Sequence[int]) -> list[list[int]]:
    """:func:`split` of every total from 0 to ``most``."""
    return [split(total, share, demand) for total in range(most + 1)]


def split(total: int, share: Sequence[Fraction], demand: Sequence[int]) -> list[int]:
    """Max-min split of ``total`` GPUs by share, nobody over its demand; whole GPUs by largest remainder.

    Leaves are raised together, each at the pace of its share, until its demand is met; leaves without a share get what
    is left over, all at one pace. Ties by leaf order, which is name order. Exact: in units of 1 / denominator.
    """
    scale = lcm(*(s.denominator for s in share)) if share else 1
    pace = [int(s * scale) for s in share]
    total = min(total, sum(demand))
    funded = [i for i, p in enumerate(pace) if p]
    first = min(total, sum(demand[i] for i in funded))
    out = _raise(first, {i: pace[i] for i in funded}, demand)
    rest = _raise(total - first, {i: 1 for i, p in enumerate(pace) if not p}, demand)
    return [out.get(i, rest.get(i, 0)) for i in range(len(share))]


def _raise(total: int, pace: dict[int, int], demand: Sequence[int]) -> dict[int, int]:
    """Water filling: all at their pace, until each one's demand or the total is met."""
    out = dict.fromkeys(pace, 0)
    left, weight = total, sum(pace.values())
    order = sorted((i for i in pace if demand[i]), key=lambda i: (Fraction(demand[i], pace[i]), i))
    weight -= sum(p for i, p in pace.items() if not demand[i])
    for position, i in enumerate(order):
        if left * pace[i] >= demand[i] * weight:
            out[i] = demand[i]
            left -= demand[i]
            weight -= pace[i]
            continue
        still = order[position:]
        for k in still:
            out[k] = left * pace[k] // weight
        spare = left - sum(out[k] for k in still)
        for k in sorted(still, key=lambda k: (-(left * pace[k] % weight), k))[:spare]:
            out[k] += 1
        break
    return out
