"""Fragmentation: free GPUs no gang of the mix can use, and how long protection keeps gangs out."""

from __future__ import annotations

from collections import defaultdict
from typing import ClassVar

from ortools.sat.python import cp_model

from cpalloc.metrics.fragmentation import room_after, tier_value, time_to_place_s
from cpalloc.models.base import PartSpec
from cpalloc.models.variables import Linear, ModelContext, dot
from cpalloc.problem.problem import Decision, Problem, Shape, status_quo


class Fragmentation:
    """Σ p(s) · (stranded(s) · charge_horizon + gpus(s) · time_to_place(s)) (policy section 8)."""

    name: ClassVar[str] = "fragmentation"
    parts: ClassVar[tuple[PartSpec, ...]] = (PartSpec("fragmentation", "GPU-seconds"),)
    limits_model: ClassVar[bool] = True

    def floor(self, problem: Problem) -> tuple[int, ...]:
        """What protection forbids already, with nothing started: starts only make it later."""
        return (waiting_floor(problem),)

    def build(self, ctx: ModelContext) -> tuple[Linear, ...]:
        """The stranded part as the copies of each shape that would still fit; the waiting part at its floor.

        Copies: R · copies ≤ Σ_nodes f with g · f ≤ free GPUs of the node, per domain of the shape's level and pool.
        """
        problem, h = ctx.problem, ctx.problem.policy.charge_horizon_s
        rooms = _Rooms(ctx)
        total: Linear = waiting_floor(problem)
        for i, shape in enumerate(problem.shape_mix):
            if shape.weight:
                stranded = rooms.free(shape.pool) - shape.size * rooms.copies(i, shape)
                total = total + shape.weight * h * stranded
        return (total,)

    def evaluate(self, problem: Problem, decision: Decision) -> tuple[int, ...]:
        """As measured."""
        return (tier_value(problem, decision),)


class _Rooms:
    """Free GPUs and slots of the cells after the round, as expressions; slots are built once per cell and size."""

    def __init__(self, ctx: ModelContext) -> None:
        self.ctx = ctx
        self._slots: dict[tuple[int, int], cp_model.IntVar | None] = {}
        self._rest: list[Linear] = [
            len(cell.nodes) * ctx.capacity(cell) - ctx.used(c) for c, cell in enumerate(ctx.layout.cells)
        ]

    def free(self, pool: int) -> Linear:
        """Free GPUs of a pool (-1: all) after the round."""
        cells = self.ctx.layout.cells
        return sum((rest for rest, cell in zip(self._rest, cells, strict=True) if pool in (-1, cell.pool)), start=0)

    def copies(self, index: int, shape: Shape) -> Linear:
        """Copies of a shape that fit, at most; counted per domain of its level and pool."""
        ctx, topology = self.ctx, self.ctx.problem.topology
        slots: dict[tuple[int, int], list[tuple[int, cp_model.IntVar]]] = defaultdict(list)
        for c, cell in enumerate(ctx.layout.cells):
            var = self._slots_of(c, shape.gpus_per_replica) if shape.pool in (-1, cell.pool) else None
            if var is not None:
                slots[int(topology.domain_of[shape.level, cell.first]), cell.pool].append((1, var))
        total = []
        for (domain, pool), row in slots.items():
            if shape.replicas == 1:
                total.extend(row)
                continue
            most = sum(self._most(c, shape.gpus_per_replica) for c in ctx.cells_below[shape.level, domain])
            if most < shape.replicas:
                continue
            copies = ctx.model.new_int_var(0, most // shape.replicas, f"copies{index},{domain},{pool}")
            ctx.model.add(shape.replicas * copies <= dot(row))
            total.append((1, copies))
        return dot(total)

    def _most(self, c: int, g: int) -> int:
        cell = self.ctx.layout.cells[c]
        gpus = cell.free + sum(int(self.ctx.problem.held.gpus[r]) for r in cell.rows)
        return len(cell.nodes) * (gpus // g)

    def _slots_of(self, c: int, g: int) -> cp_model.IntVar | None:
        if (c, g) not in self._slots:
            self._slots[c, g] = self._build_slots(c, g)
        return self._slots[c, g]

    def _build_slots(self, c: int, g: int) -> cp_model.IntVar | None:
        """Slots of g GPUs left in a cell: g · f ≤ GPUs left; and, a replica of g_k GPUs taking at least ⌊g_k / g⌋ of
        them, f + Σ ⌊g_k / g⌋ a_k ≤ slots of the empty cell, where at most one job's leaving changes that number."""
        ctx, most = self.ctx, self._most(c, g)
        if not most:
            return None
        cell, held = ctx.layout.cells[c], ctx.problem.held
        f = ctx.model.new_int_var(0, most, f"free{c},{g}")
        ctx.model.add(g * f <= self._rest[c])
        if len(cell.rows) <= 1:
            now = cell.free // g
            gain = [((cell.free + int(held.gpus[r])) // g - now, ctx.e[int(held.job[r])]) for r in cell.rows]
            taken = [(ctx.kind(k).gpus // g, ctx.a[k, c]) for k in ctx.kinds_on[c] if ctx.kind(k).gpus >= g]
            n = len(cell.nodes)
            ctx.model.add(f + dot(taken) <= n * now + dot([(n * x, e) for x, e in gain]))
        return f


def waiting_floor(problem: Problem) -> int:
    """Σ p(s) · gpus(s) · time_to_place(s) with nothing started: starts only protect more."""
    room = room_after(problem, status_quo(problem))
    return sum(s.weight * s.size * time_to_place_s(problem, room, s) for s in problem.shape_mix)
