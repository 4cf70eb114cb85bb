"""Spread: at most so many replicas of a job on a node, and nodes that a job wants to itself."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from cpalloc.models.base import Violation
from cpalloc.models.kinds import Cell
from cpalloc.models.variables import ModelContext
from cpalloc.problem.problem import Action, Decision, JobState, Problem


class Spread:
    """``max_replicas_per_node`` and ``exclusive_nodes``."""

    name: ClassVar[str] = "spread"

    def applies(self, problem: Problem) -> bool:
        """Where any job limits its replicas or wants nodes to itself."""
        return bool(problem.jobs.max_per_node.any() or problem.jobs.exclusive.any())

    def build(self, ctx: ModelContext) -> None:
        """Replicas of an exclusive job have a node to themselves.

        The limit per node is the upper bound of the replica variables, which belong to one job where it binds.
        """
        for c, cell in enumerate(ctx.layout.cells):
            self._build_beside(ctx, c, cell)
            for k in ctx.kinds_on[c]:
                if ctx.kind(k).exclusive:
                    self._build_exclusive(ctx, c, cell, k)

    @staticmethod
    def _build_beside(ctx: ModelContext, c: int, cell: Cell) -> None:
        """Nobody starts beside a running job that has its node to itself, unless it is preempted."""
        jobs, shut = ctx.problem.jobs, []
        for j in np.flatnonzero(jobs.exclusive).tolist():
            if jobs.state[j] in (JobState.FIXED, JobState.EVICTABLE, JobState.STOPPING) and any(
                rep.node in cell.nodes for rep in jobs.placement[j]
            ):
                shut.append(j)
        for k in ctx.kinds_on[c] if shut else ():
            for j in shut:
                most = ctx.layout.slots[k, c] * ctx.e[j] if j in ctx.e else 0
                ctx.model.add(ctx.a[k, c] <= most)

    @staticmethod
    def _build_exclusive(ctx: ModelContext, c: int, cell: Cell, k: int) -> None:
        alone = ctx.alone(k, c)
        for other in ctx.kinds_on[c]:
            if other != k and ctx.kind(other).lone != ctx.kind(k).lone:
                ctx.model.add(ctx.a[other, c] == 0).only_enforce_if(alone)
        held = ctx.problem.held
        there = held.job[held.node == cell.first].tolist()
        for j in there:
            if j in ctx.e:
                ctx.model.add_implication(alone, ctx.e[j])
        if ctx.problem.nodes.company[cell.first] or any(j not in ctx.e for j in there):
            ctx.model.add(alone == 0)

    def check(self, problem: Problem, decision: Decision) -> Iterator[Violation]:
        """Node by node: how many replicas of each start, and who shares with whom."""
        jobs, names = problem.jobs, problem.nodes.names
        there: dict[int, set[int]] = defaultdict(set)
        stays = (decision.action == Action.KEEP) | (jobs.state == JobState.STOPPING)
        for j in np.flatnonzero(stays).tolist():
            for rep in jobs.placement[j]:
                there[rep.node].add(j)
        for j, placement in decision.placement.items():
            limit = int(jobs.max_per_node[j])
            for n, count in Counter(r.node for r in placement).items():
                there[n].add(j)
                if limit and count > limit:
                    message = f"{jobs.ids[j]} has {count} replicas on {names[n]}, at most {limit}"
                    yield Violation(self.name, message, (jobs.ids[j],), (names[n],))
        for n, together in there.items():
            fresh = [j for j in together if decision.action[j] == Action.START]
            if n < 0 or len(together) < 2 or not fresh:
                continue
            shut = sorted(j for j in together if jobs.exclusive[j])
            if shut:
                yield Violation(
                    self.name,
                    f"{jobs.ids[shut[0]]} wants {names[n]} to itself and shares it",
                    tuple(jobs.ids[j] for j in sorted(together)),
                    (names[n],),
                )
