"""Fragmentation: free GPUs no gang of the mix can use, and how long protection keeps gangs out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
from ortools.sat.python import cp_model

from cpalloc.metrics.fragmentation import room_after, tier_value, time_to_place_s
from cpalloc.metrics.occupancy import gives_back, node_use
from cpalloc.models.base import PartSpec
from cpalloc.models.earliest import Gang, cost_of_waiting, most_steps, steps
from cpalloc.models.variables import Linear, ModelContext, dot
from cpalloc.problem.problem import US, Decision, IntArray, JobState, NodeState, Problem, Shape, status_quo


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
        total = self._waiting(ctx)
        if ctx.partition.free == 0:
            return (total,)  # nothing free, nothing stranded
        rooms = _Rooms(ctx)
        weights: dict[int, int] = defaultdict(int)
        for i, shape in enumerate(problem.shape_mix):
            if shape.weight:
                weights[shape.pool] += shape.weight
                total = total - shape.weight * h * shape.size * rooms.copies(i, shape)
        for pool, weight in sorted(weights.items()):
            total = total + weight * h * rooms.free(pool)
        return (total,)

    @staticmethod
    def _waiting(ctx: ModelContext) -> Linear:
        """Σ p · gpus · time to place: stated for the shapes the partition times, at its floor for the others."""
        problem, timed = ctx.problem, dict(ctx.partition.timed)
        base = BaseRoom.of(problem)
        total: Linear = 0
        for i, shape in enumerate(problem.shape_mix):
            floor = base.time_s(shape)
            if i not in timed or timed[i] <= floor:
                total = total + shape.weight * shape.size * floor
                continue

            def cost(at_us: int, shape: Shape = shape) -> int:
                seconds = -(-max(0, at_us - problem.now_us) // US)
                return shape.weight * shape.size * seconds

            unit = shape.weight * shape.size
            gang = Gang(f"s{i}", shape.replicas, shape.gpus_per_replica, base.places(shape))
            choices = steps(ctx.partition.instants, cost, unit * floor, unit * timed[i], most_steps(ctx.partition))
            total = total + cost_of_waiting(ctx, gang, choices, unit * timed[i], base).cost
        return total

    def evaluate(self, problem: Problem, decision: Decision) -> tuple[int, ...]:
        """As measured."""
        return (tier_value(problem, decision),)


class _Rooms:
    """Free GPUs and slots of the cells after the round, as expressions; slots are built once per cell and size."""

    def __init__(self, ctx: ModelContext) -> None:
        self.ctx = ctx
        self._slots: dict[tuple[int, int], cp_model.IntVar | None] = {}
        self._free_now = node_use(ctx.problem, status_quo(ctx.problem)).free
        self._rest: list[Linear] = [
            len(cell.nodes) * ctx.capacity(cell) - ctx.used(c) for c, cell in enumerate(ctx.layout.cells)
        ]

    def free(self, pool: int) -> Linear:
        """Free GPUs of a pool (-1: all) after the round, whether a gang may use them or not."""
        ctx, problem = self.ctx, self.ctx.problem
        inside = np.ones(len(problem.nodes.names), dtype=np.bool_) if pool < 0 else problem.nodes.pool == pool
        taken = [(-ctx.kind(k).gpus, var) for (k, _), var in ctx.a.items() if pool in (-1, ctx.kind(k).pool)]
        freed = [(gives_back(problem, j, inside), var) for j, var in ctx.e.items()]
        return dot([*taken, *((g, v) for g, v in freed if g)]) + int(self._free_now[inside].sum())

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
        gpus, free = cell.free + sum(int(self.ctx.problem.held.gpus[r]) for r in cell.rows), self.ctx.partition.free
        most = len(cell.nodes) * (gpus // g)
        return most if free < 0 else min(most, free // g)

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
        for k in ctx.kinds_on[c]:
            if ctx.kind(k).exclusive:
                ctx.model.add(f <= most * (1 - ctx.alone(k, c)))
        if len(cell.rows) <= 1:
            now = cell.free // g
            gain = [((cell.free + int(held.gpus[r])) // g - now, ctx.e[int(held.job[r])]) for r in cell.rows]
            taken = [(ctx.kind(k).gpus // g, ctx.a[k, c]) for k in ctx.kinds_on[c] if ctx.kind(k).gpus >= g]
            n = len(cell.nodes)
            ctx.model.add(f + dot(taken) <= n * now + dot([(n * x, e) for x, e in gain]))
        return f


class BaseRoom:
    """Room with nothing started: when the GPUs of every node are free of what is protected now."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.room = room_after(problem, status_quo(problem))
        self._at: dict[int, IntArray] = {}
        self._time_s: dict[Shape, int] = {}

    @classmethod
    def of(cls, problem: Problem) -> BaseRoom:
        """That of a problem."""
        return problem.once("base room", lambda: cls(problem))

    def at(self, at_us: int) -> IntArray:
        """GPUs of every node available by an instant."""
        if at_us not in self._at:
            room = self.room
            there = room.instants_us[room.release] <= at_us - self.problem.now_us
            count = np.concatenate(([0], np.cumsum(there)))
            self._at[at_us] = count[room.first[1:]] - count[room.first[:-1]]
        return self._at[at_us]

    def doubtful(
        self, nodes: IntArray, at_us: int, whose: str = ""
    ) -> Mapping[int, Sequence[tuple[int, cp_model.IntVar]]]:
        """Nothing is in doubt: whether an owner would yield is the policy's business."""
        return {}

    def promised_on(self, nodes: Sequence[int]) -> bool:
        """Promises are no protection."""
        return False

    def time_s(self, shape: Shape) -> int:
        """Seconds until a shape fits with nothing started: starts only protect more."""
        if shape not in self._time_s:
            self._time_s[shape] = time_to_place_s(self.problem, self.room, shape)
        return self._time_s[shape]

    def places(self, shape: Shape) -> list[IntArray]:
        """Nodes of every (domain of the shape's level, pool)."""
        nodes, out = self.problem.nodes, defaultdict(list)
        for n in np.flatnonzero(nodes.state == NodeState.READY).tolist():
            if shape.pool in (-1, int(nodes.pool[n])):
                out[int(self.problem.topology.domain_of[shape.level, n]), int(nodes.pool[n])].append(n)
        return [np.array(members, dtype=np.int64) for _, members in sorted(out.items())]


def waiting_floor(problem: Problem) -> int:
    """Σ p(s) · gpus(s) · time_to_place(s) with nothing started."""
    base = BaseRoom.of(problem)
    return sum(s.weight * s.size * base.time_s(s) for s in problem.shape_mix)


def late_shapes(problem: Problem, decision: Decision) -> tuple[tuple[int, int], ...]:
    """(shape, seconds) of the shapes whose time to place the decision's starts have raised."""
    base, room = BaseRoom.of(problem), room_after(problem, decision)
    out = []
    for i, shape in enumerate(problem.shape_mix):
        seconds = time_to_place_s(problem, room, shape)
        if shape.weight and seconds > base.time_s(shape):
            out.append((i, seconds))
    return tuple(out)


def protection_ends(problem: Problem, timed: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """Now, and every later instant at which protection of running, starting or promoted work may end.

    Only as far as the seconds of the shapes ``timed`` reach: what lies beyond is of no use to any of them.
    """
    jobs, now = problem.jobs, problem.now_us
    ends = {now} | {int(t) for t in jobs.protected_until_us[jobs.protected].tolist() if t > now}
    may = (jobs.state == JobState.PENDING) & jobs.may_allocate | jobs.may_promote
    ends |= {now + int(s) * US for s in jobs.min_runtime_s[may].tolist()}
    until = now + max((seconds for _, seconds in timed), default=0) * US
    return tuple(sorted(t for t in ends if t <= until))
