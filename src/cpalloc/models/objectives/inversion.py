"""Inversion: jobs passed over by worse-ranked starts of their own budget."""

from __future__ import annotations

from collections import defaultdict
from typing import ClassVar

import numpy as np
from ortools.sat.python import cp_model

from cpalloc.models.base import PartSpec
from cpalloc.models.fit import does_not_fit, eligibility_covers, takes_place_of
from cpalloc.models.variables import Linear, ModelContext, dot
from cpalloc.problem.grants import borrowed, granted
from cpalloc.problem.problem import Action, Decision, JobState, Mode, Problem
from cpalloc.problem.usage import Usage


class Inversion:
    """Σ GPUs × class (1…5) of waiting jobs that would fit without the worse starts of their budget and mode."""

    name: ClassVar[str] = "inversion"
    parts: ClassVar[tuple[PartSpec, ...]] = (PartSpec("inversion", "weighted GPUs"),)
    limits_model: ClassVar[bool] = True

    def floor(self, problem: Problem) -> tuple[int, ...]:
        """No job need be passed over."""
        return (0,)

    def build(self, ctx: ModelContext) -> tuple[Linear, ...]:
        """Jobs passed over, as far as the model can tell.

        A job that would fit in the very place of a worse-ranked start (same leaf and mode) is inverted when the latter
        starts and it does not. Whether it would fit by joining what several worse starts leave is stated exactly for
        the jobs the partition watches; for the others it is relaxed (they count as not fitting).
        """
        problem, jobs = ctx.problem, ctx.problem.jobs
        by_leaf: dict[int, list[int]] = defaultdict(list)
        for j in sorted({job for job, _ in ctx.y} | set(ctx.partition.watched)):
            by_leaf[int(jobs.leaf[j])].append(j)
        terms = []
        for members in by_leaf.values():
            members.sort(key=lambda j: int(jobs.order[j]))
            for position, j in enumerate(members):
                passed = _passed_over(ctx, j, members[position + 1 :])
                if passed is not None:
                    terms.append((weight(problem, j), passed))
        return (dot(terms),)

    def evaluate(self, problem: Problem, decision: Decision) -> tuple[int, ...]:
        """From the decision alone."""
        return (sum(weight(problem, j) for j in inverted(problem, decision)),)


def _passed_over(ctx: ModelContext, job: int, worse: list[int]) -> cp_model.IntVar | None:
    """The variable that says a job is inverted; None where nothing in the model can show that it is."""
    problem, jobs, model = ctx.problem, ctx.problem.jobs, ctx.model
    covers = ctx.memo("covers", lambda: eligibility_covers(problem))
    rows: list[tuple[Linear, Linear]] = []
    for mode, may in ((Mode.ALLOCATED, jobs.may_allocate[job]), (Mode.BORROWED, jobs.may_borrow[job])):
        if not may:
            continue
        starts = [(i, ctx.y[i, mode]) for i in worse if (i, mode) in ctx.y]
        for i, start in starts:
            if takes_place_of(problem, covers, job, i):
                rows.append((start, 0))
        if job in ctx.partition.watched and starts:
            excuse = does_not_fit(ctx, job, mode, [i for i, _ in starts])
            if excuse is not None:
                rows.extend((start, excuse) for _, start in starts)
    if not rows:
        return None
    passed = model.new_bool_var(f"passed{job}")
    started = dot([(1, v) for v in ctx.started(job)])
    for begun, alibi in rows:
        model.add(passed + started + alibi >= begun)
    return passed


def weight(problem: Problem, job: int) -> int:
    """GPUs × class, the class from 1 (low) to 5 (immediate)."""
    return int(problem.jobs.size[job]) * (int(problem.jobs.priority[job]) + 1)


def inverted(problem: Problem, decision: Decision) -> list[int]:
    """Waiting jobs that would fit — nodes, domain, caps — once all worse-ranked starts of the same budget and mode were
    taken away, everything else as decided; only where there is such a start."""
    jobs, order = problem.jobs, problem.jobs.order
    starts: dict[tuple[int, Mode], list[int]] = defaultdict(list)
    for j in decision.placement:
        starts[int(jobs.leaf[j]), Mode(int(decision.mode[j]))].append(j)
    waits = (decision.action == Action.WAIT) & (jobs.state == JobState.PENDING)
    out: set[int] = set()
    for (leaf, mode), begun in starts.items():
        begun.sort(key=lambda i: int(order[i]))
        may = jobs.may_allocate if mode is Mode.ALLOCATED else jobs.may_borrow
        better = np.flatnonzero(waits & may & (jobs.leaf == leaf) & (order < order[begun[-1]])).tolist()
        usage, gone = Usage.of(problem, decision), 0
        # From the worst-ranked up, ever more starts are worse: take them away one after the other.
        for j in sorted(better, key=lambda j: -int(order[j])):
            while begun and order[begun[-1]] > order[j]:
                usage.remove(begun[-1], decision.placement[begun[-1]])
                gone += int(jobs.size[begun.pop()])
            if j not in out and _admitted(problem, decision, j, mode, gone) and usage.fits(j):
                out.add(j)
    return sorted(out)


def _admitted(problem: Problem, decision: Decision, job: int, mode: Mode, gone: int) -> bool:
    """Whether the caps above a job would admit it once ``gone`` GPUs of its budget and mode were free again."""
    budgets, jobs = problem.budgets, problem.jobs
    have = granted(problem, decision) if mode is Mode.ALLOCATED else borrowed(problem, decision)
    return all(
        int(have[list(budgets.leaves_below[vertex])].sum()) - gone + int(jobs.size[job]) <= cap
        for vertex, cap in budgets.caps_above(int(jobs.leaf[job]), mode)
    )
