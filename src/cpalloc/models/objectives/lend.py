"""Lend: borrowed GPUs by share."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
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
        splits = [split(total, problem.budgets.share, demand) for total in range(most + 1)]
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


def split(total: int, share: Sequence[Fraction], demand: Sequence[int]) -> list[int]:
    """Max-min split of ``total`` GPUs by share, nobody over its demand; whole GPUs by largest remainder.

    Leaves are raised together, each at the pace of its share, until its demand is met; leaves without a share get what
    is left over. Ties by leaf order, which is name order.
    """
    exact = [Fraction(0)] * len(share)
    left = Fraction(min(total, sum(demand)))
    for pace in (list(share), [Fraction(1)] * len(share)):
        open_ = {i for i in range(len(share)) if pace[i] > 0 and exact[i] < demand[i]}
        while left > 0 and open_:
            weight = sum((pace[i] for i in open_), Fraction(0))
            step = min(left / weight, *((demand[i] - exact[i]) / pace[i] for i in open_))
            for i in open_:
                exact[i] += step * pace[i]
            left -= step * weight
            open_ = {i for i in open_ if exact[i] < demand[i]}
    out = [int(x) for x in exact]
    spare = min(total, sum(demand)) - sum(out)
    for i in sorted(range(len(out)), key=lambda i: (out[i] - exact[i], i))[:spare]:
        out[i] += 1
    return out
