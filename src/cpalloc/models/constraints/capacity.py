"""Capacity: GPUs, devices and resources of every node."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import ClassVar

import numpy as np
from ortools.sat.python import cp_model

from cpalloc.models.base import Violation
from cpalloc.models.kinds import Cell
from cpalloc.models.variables import ModelContext, dot
from cpalloc.problem.problem import Action, Decision, JobState, NodeState, Problem, Replica


class Capacity:
    """Starts take only GPUs and resources that are free once the decision's preemptions are carried out."""

    name: ClassVar[str] = "capacity"

    def applies(self, problem: Problem) -> bool:
        """Always."""
        return True

    def build(self, ctx: ModelContext) -> None:
        """Σ GPUs of the replicas on a node ≤ free GPUs + GPUs of what is preempted there; resources likewise.

        On cells of several like nodes the sizes divide one another, and counts fit iff, for every size s,
        Σ_{g ≥ s} (g / s) · a_g ≤ Σ_nodes ⌊capacity / s⌋ (Coffman, Garey, Johnson 1987, divisible item sizes).
        """
        for c, cell in enumerate(ctx.layout.cells):
            kinds = ctx.kinds_on[c]
            if not kinds:
                continue
            if len(cell.nodes) == 1:
                ctx.model.add(ctx.used(c) <= ctx.capacity(cell))
                self._build_slots(ctx, c, cell)
            else:
                self._build_merged(ctx, c, cell)
            self._build_resources(ctx, c, cell)
            self._build_groups(ctx, c, cell)

    @staticmethod
    def _build_merged(ctx: ModelContext, c: int, cell: Cell) -> None:
        held = ctx.problem.held
        for size in sorted({ctx.kind(k).gpus for k in ctx.kinds_on[c]}):
            slots = cell.free // size
            terms = [((cell.free + int(held.gpus[r])) // size - slots, ctx.e[int(held.job[r])]) for r in cell.rows]
            larger = [(ctx.kind(k).gpus // size, ctx.a[k, c]) for k in ctx.kinds_on[c] if ctx.kind(k).gpus >= size]
            nodes = len(cell.nodes)
            ctx.model.add(dot(larger) <= dot([(nodes * x, e) for x, e in terms]) + nodes * slots)

    @staticmethod
    def _build_slots(ctx: ModelContext, c: int, cell: Cell) -> None:
        """Σ_{g ≥ s} ⌊g / s⌋ · a_g ≤ slots of s GPUs without job j + those it adds · e_j, for every size s and job j.

        Implied for integers; without it the linear relaxation preempts fractions of jobs.
        """
        held = ctx.problem.held
        sizes = sorted({ctx.kind(k).gpus for k in ctx.kinds_on[c]})
        total = cell.free + sum(int(held.gpus[r]) for r in cell.rows)
        for size in sizes:
            if size == 1:
                continue
            larger = [(ctx.kind(k).gpus // size, ctx.a[k, c]) for k in ctx.kinds_on[c] if ctx.kind(k).gpus >= size]
            most = total // size
            if not cell.rows:
                if cell.free % size:
                    ctx.model.add(dot(larger) <= most)
                continue
            for r in cell.rows:
                without = (total - int(held.gpus[r])) // size
                if without < most:
                    ctx.model.add(dot(larger) <= (most - without) * ctx.e[int(held.job[r])] + without)

    @staticmethod
    def _build_resources(ctx: ModelContext, c: int, cell: Cell) -> None:
        held = ctx.problem.held
        for r in range(len(ctx.problem.resource_names)):
            need = [(ctx.kind(k).resources[r], ctx.a[k, c]) for k in ctx.kinds_on[c] if ctx.kind(k).resources[r]]
            if need:
                freed = [(int(held.resources[row, r]), ctx.e[int(held.job[row])]) for row in cell.rows]
                ctx.model.add(dot(need) <= dot(freed) + cell.resources[r])

    @staticmethod
    def _build_groups(ctx: ModelContext, c: int, cell: Cell) -> None:
        """Replicas bound to one GPU group take whole slots of single groups; the others take what is left anywhere."""
        problem, node = ctx.problem, cell.first
        groups = problem.nodes.groups[node]
        bound = [k for k in ctx.kinds_on[c] if ctx.kind(k).same_group]
        if not bound or len(groups) < 2:
            return
        parts: dict[int, list[tuple[int, cp_model.IntVar]]] = {k: [] for k in bound}
        for mask in groups:
            free = (cell.devices & mask).bit_count()
            freed = [((problem.held.devices[r] & mask).bit_count(), ctx.e[int(problem.held.job[r])]) for r in cell.rows]
            total = free + sum(x for x, _ in freed)
            inside = []
            for k in bound:
                size = ctx.kind(k).gpus
                part = ctx.model.new_int_var(0, total // size, f"b{k},{c},{mask}")
                parts[k].append((1, part))
                ctx.b.setdefault((k, c), {})[mask] = part
                inside.append((size, part))
            ctx.model.add(dot(inside) <= dot(freed) + free)
        for k, terms in parts.items():
            ctx.model.add(dot(terms) == ctx.a[k, c])

    def check(self, problem: Problem, decision: Decision) -> Iterator[Violation]:
        """Device by device where devices are known, by counts elsewhere; resources by sums."""
        nodes, jobs = problem.nodes, problem.jobs
        free = dict(enumerate(nodes.free_devices))
        count = nodes.free_gpus.copy()
        resources = nodes.free_resources.copy()
        gone = (decision.action == Action.PREEMPT) & (jobs.state == JobState.EVICTABLE)
        for row, j in enumerate(problem.held.job.tolist()):
            if gone[j]:
                n = int(problem.held.node[row])
                count[n] += problem.held.gpus[row]
                resources[n] += problem.held.resources[row]
                if free[n] >= 0 and problem.held.devices[row] >= 0:
                    free[n] |= problem.held.devices[row]
        placed: dict[int, list[tuple[int, Replica]]] = defaultdict(list)
        for j, placement in decision.placement.items():
            for rep in placement:
                placed[rep.node].append((j, rep))
        for n, here in sorted(placed.items()):
            if n < 0:
                message = "a start is placed on a node that is not in the snapshot"
                yield Violation(self.name, message, self._ids(problem, here))
                continue
            name = (nodes.names[n],)
            if int(nodes.state[n]) != NodeState.READY:
                message = f"{name[0]} is not ready and takes nothing new"
                yield Violation(self.name, message, self._ids(problem, here), name)
                continue
            total = sum(rep.gpus for _, rep in here)
            if total > count[n]:
                message = f"starts take {total} GPUs of {name[0]}, {int(count[n])} are free"
                yield Violation(self.name, message, self._ids(problem, here), name)
            yield from self._devices(problem, n, free[n], here)
            need = sum((jobs.resources[j] for j, _ in here), np.zeros(len(problem.resource_names), dtype=np.int64))
            for r in np.flatnonzero((need > resources[n]) & (need > 0)).tolist():
                left = f"{int(resources[n, r])} are free"
                message = f"starts take {int(need[r])} {problem.resource_names[r]} of {name[0]}, {left}"
                yield Violation(self.name, message, self._ids(problem, here), name)

    def _devices(self, problem: Problem, n: int, free: int, here: list[tuple[int, Replica]]) -> Iterator[Violation]:
        """Every device named is free and named once; where the node's are unknown (-1), a healthy one of its own."""
        known, name = free >= 0, (problem.nodes.names[n],)
        left = free if known else problem.nodes.healthy_devices[n]
        for j, rep in here:
            if rep.devices < 0 and not known:
                continue
            if rep.devices < 0 or rep.devices.bit_count() != rep.gpus:
                message = f"{rep.gpus} GPUs of {name[0]} are given without naming them"
            elif rep.devices & ~left:
                message = f"GPU {(rep.devices & ~left).bit_length() - 1} of {name[0]} is not free"
            else:
                left &= ~rep.devices
                continue
            yield Violation(self.name, message, (problem.jobs.ids[j],), name)

    @staticmethod
    def _ids(problem: Problem, here: list[tuple[int, Replica]]) -> tuple[str, ...]:
        return tuple(problem.jobs.ids[j] for j in sorted({j for j, _ in here}))
