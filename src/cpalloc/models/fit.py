"""When a waiting job would not fit although worse-ranked starts were taken away: the exact part of ``inversion``."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from ortools.sat.python import cp_model

from cpalloc.models.kinds import Cell
from cpalloc.models.places import eligibility_covers
from cpalloc.models.variables import Linear, ModelContext, dot
from cpalloc.problem.problem import Mode


def does_not_fit(ctx: ModelContext, job: int, mode: Mode, worse: list[int]) -> cp_model.IntVar | None:
    """A variable that may be 1 only if the job would not fit with the starts of ``worse`` in ``mode`` taken away.

    Either a cap stops it, or every domain of its level has too few slots: Σ_n F_n ≤ replicas − 1 with
    F_n ≥ ⌊room_n / gpus⌋ for the room the other starts leave. None where the job's terms are not modelled.
    """
    problem, jobs, model = ctx.problem, ctx.problem.jobs, ctx.model
    if jobs.exclusive[job] or jobs.same_gpu_group[job]:
        return None
    excuses = _caps(ctx, job, mode, worse)
    full = model.new_bool_var(f"full{job},{int(mode)}")
    stays = sorted(_staying(ctx, job, mode))
    level = int(jobs.required_level[job])
    domains: dict[tuple[int, int], list[cp_model.IntVar]] = defaultdict(list)
    for c, cell in enumerate(ctx.layout.cells):
        if problem.eligibility[jobs.eligibility[job], cell.first]:
            slots = _slots_left(ctx, job, c, cell, stays)
            if slots is not None:
                domains[int(problem.topology.domain_of[level, cell.first]), cell.pool].append(slots)
    for slots_of in domains.values():
        total = dot([(1, v) for v in slots_of])
        model.add(total <= int(jobs.replicas[job]) - 1).only_enforce_if(full)
    out = model.new_bool_var(f"excused{job},{int(mode)}")
    model.add(dot([(1, v) for v in [*excuses, full]]) >= out)
    return out


def _staying(ctx: ModelContext, job: int, mode: Mode) -> frozenset[int]:
    """Kinds that stay when the worse-ranked starts of a job are taken away; beside allocated work nothing borrowed."""
    jobs, told = ctx.problem.jobs, ctx.partition.apart | ctx.partition.exact
    if job not in told:
        return ctx.memo_of_model(("staying", mode), lambda: _kinds_beside(ctx, mode))
    leaf, order = int(jobs.leaf[job]), int(jobs.order[job])
    bucket = sum(int(jobs.order[w]) < order for w in told if jobs.leaf[w] == leaf)
    return frozenset(
        k
        for k in _kinds_beside(ctx, mode)
        if not ((party := ctx.kind(k).party).leaf == leaf and party.mode == mode and party.bucket > bucket)
    )


def _kinds_beside(ctx: ModelContext, mode: Mode) -> frozenset[int]:
    """Kinds that count for whether somebody fits in a mode."""
    kinds = enumerate(ctx.layout.kinds)
    return frozenset(k for k, kind in kinds if mode is Mode.BORROWED or kind.party.mode == Mode.ALLOCATED)


def may_not_fit(ctx: ModelContext, job: int, mode: Mode, worse: list[int]) -> cp_model.IntVar | None:
    """A variable that is 1 wherever the job would not fit with the starts of ``worse`` in ``mode`` taken away.

    A relaxation of :func:`does_not_fit` that tells no starts apart: in every domain
    Σ_cells F_c + Σ_{i worse} R_i ⌊g_i / g⌋ y_i ≤ replicas − 1, with F_c the slots of g GPUs that starts leave at least.
    Not counted are slots that several worse starts make only together, and what they give back in domains below the
    cluster, but for gangs that the partition tells apart (``single``). Where it tells all worse-ranked starts apart
    (``apart``), F_c is what the others leave, and nothing is given back.
    """
    problem, jobs, model = ctx.problem, ctx.problem.jobs, ctx.model
    if jobs.exclusive[job] or jobs.same_gpu_group[job] or jobs.max_per_node[job] or jobs.resources[job].any():
        return None
    g, replicas, level = int(jobs.gpus_per_replica[job]), int(jobs.replicas[job]), int(jobs.required_level[job])
    if level == len(problem.topology.levels) - 1:
        g, replicas, level = g * replicas, 1, 0
    excuses = _caps(ctx, job, mode, worse)
    full = model.new_bool_var(f"full{job},{int(mode)}")
    domains: dict[tuple[int, int], list[tuple[int, cp_model.IntVar]]] = defaultdict(list)
    apart = job in ctx.partition.apart
    stays = _staying(ctx, job, mode)
    regained = [] if apart else _regained(ctx, g, mode, worse)
    for c, cell in enumerate(ctx.layout.cells):
        if problem.eligibility[jobs.eligibility[job], cell.first]:
            slots = _slots_at_least(ctx, c, cell, g, stays)
            if slots is not None:
                key = int(problem.topology.domain_of[level, cell.first]), cell.pool
                domains[key] += [(1, slots), *((x, ctx.a[k, c]) for k, x in regained if (k, c) in ctx.a)]
    for (_, pool), terms in domains.items():
        if level == 0 and not apart:
            terms += _regained_anywhere(ctx, job, g, mode, worse, pool)
        model.add(dot(terms) <= replicas - 1).only_enforce_if(full)
    out = model.new_bool_var(f"excused{job},{int(mode)}")
    model.add(dot([(1, v) for v in [*excuses, full]]) >= out)
    return out


def _regained(ctx: ModelContext, g: int, mode: Mode, worse: list[int]) -> list[tuple[int, int]]:
    """(kind, slots of g GPUs) that a replica gives back when it is taken away, of starts that are told apart."""
    return [
        (k, kind.gpus // g)
        for k, kind in enumerate(ctx.layout.kinds)
        if kind.party.job in worse and kind.party.mode == mode and kind.gpus >= g
    ]


def _regained_anywhere(
    ctx: ModelContext, job: int, g: int, mode: Mode, worse: list[int], pool: int
) -> list[tuple[int, cp_model.IntVar]]:
    """(slots of g GPUs, variable) that whole starts of a pool give back; those told apart aside."""
    covers = ctx.memo("covers", lambda: eligibility_covers(ctx.problem))
    eligibility, lay = ctx.problem.jobs.eligibility, ctx.layout
    out: list[tuple[int, cp_model.IntVar]] = []
    for i in worse:
        for s in ctx.shapes_of(i, mode):
            shape, kind = lay.shapes[s], lay.kinds[lay.shapes[s].kind]
            told_apart = kind.party.job >= 0
            if (
                kind.pool == pool
                and kind.gpus >= g
                and not told_apart
                and covers[eligibility[job], eligibility[i], pool]
            ):
                out.append((shape.replicas * (kind.gpus // g), ctx.in_shape[i, mode, s]))
    return out


def _slots_at_least(ctx: ModelContext, c: int, cell: Cell, g: int, stays: frozenset[int]) -> cp_model.IntVar | None:
    """A variable for slots of g GPUs in a cell that is never forced above what the starts of some kinds leave.

    None where there are none. Where somebody may have the node to itself nothing is forced.
    """
    kinds = [k for k in ctx.kinds_on[c] if k in stays]
    key = ("at least", c, g, tuple(kinds))
    if key not in ctx.slots_at:
        held, n = ctx.problem.held, len(cell.nodes)
        most = n * ((cell.free + sum(int(held.gpus[r]) for r in cell.rows)) // g)
        if not most or any(ctx.kind(k).exclusive for k in kinds) or _shut(ctx, cell):
            return None
        var = ctx.slots_at[key] = ctx.model.new_int_var(0, most, f"least{c},{g},{len(ctx.slots_at)}")
        ctx.model.add(g * var + n * (g - 1) >= n * ctx.capacity(cell) - ctx.used(c, kinds))
        gain = [(n * (int(held.gpus[r]) // g), ctx.e[int(held.job[r])]) for r in cell.rows]
        taken = [(-(-ctx.kind(k).gpus // g), ctx.a[k, c]) for k in kinds]
        ctx.model.add(var + dot(taken) >= dot(gain) + n * (cell.free // g))
    return ctx.slots_at[key]


def _shut(ctx: ModelContext, cell: Cell) -> bool:
    """Whether a running job has the cell's node to itself, so that nobody else fits whatever is free."""
    jobs, held = ctx.problem.jobs, ctx.problem.held
    alone = ctx.memo(
        "alone on",
        lambda: (
            {
                rep.node
                for j in np.flatnonzero(jobs.exclusive & (jobs.mode != Mode.NONE)).tolist()
                for rep in jobs.placement[j]
            }
            | {int(n) for n in held.node[jobs.exclusive[held.job]].tolist()}
        ),
    )
    return any(n in alone for n in cell.nodes)


def _slots_left(ctx: ModelContext, job: int, c: int, cell: Cell, stays: list[int]) -> cp_model.IntVar | None:
    """At least the replicas of a job that a node takes beside the starts that stay; None where it takes none ever."""
    jobs, model, held = ctx.problem.jobs, ctx.model, ctx.problem.held
    if any(ctx.kind(k).exclusive for k in ctx.kinds_on[c]) or _shut(ctx, cell):
        return None  # somebody may have the node to itself, and the rest of it is no room
    g = int(jobs.gpus_per_replica[job])
    most = (cell.free + sum(int(held.gpus[r]) for r in cell.rows)) // g
    limit = int(jobs.max_per_node[job])
    rooms: list[tuple[int, Linear]] = [(g, ctx.capacity(cell) - ctx.used(c, stays))]
    for r, need in enumerate(jobs.resources[job].tolist()):
        if need:
            freed = [(int(held.resources[row, r]), ctx.e[int(held.job[row])]) for row in cell.rows]
            used = [
                (ctx.kind(k).resources[r], ctx.a[k, c]) for k in stays if (k, c) in ctx.a and ctx.kind(k).resources[r]
            ]
            free = cell.resources[r]
            rooms.append((need, dot(freed) - dot(used) + free))
    if limit:
        most = min(most, limit)
    if most <= 0:
        return None
    slots = model.new_int_var(0, most, f"slots{job},{c}")
    if len(rooms) == 1 and not limit:
        model.add(g * slots + (g - 1) >= rooms[0][1])
        return slots
    # The scarcest of several decides: at least one row must be kept.
    picks = []
    for need, room in rooms:
        pick = model.new_bool_var("")
        model.add(need * slots + (need - 1) >= room).only_enforce_if(pick)
        picks.append(pick)
    if limit:
        pick = model.new_bool_var("")
        model.add(slots >= min(limit, most)).only_enforce_if(pick)
        picks.append(pick)
    model.add_bool_or(picks)
    return slots


def _caps(ctx: ModelContext, job: int, mode: Mode, worse: list[int]) -> list[cp_model.IntVar]:
    """For each cap above the job a variable that may be 1 only if the cap leaves no room for it."""
    problem, jobs, model = ctx.problem, ctx.problem.jobs, ctx.model
    budgets = problem.budgets
    held = ctx.granted if mode is Mode.ALLOCATED else ctx.borrowed
    removed = dot(ctx.starts_of(worse, mode))
    out = []
    for vertex, cap in budgets.caps_above(int(jobs.leaf[job]), mode):
        stopped = model.new_bool_var(f"capped{job},{vertex}")
        left = held(budgets.leaves_below[vertex]) - removed
        model.add(left >= cap + 1 - int(jobs.size[job])).only_enforce_if(stopped)
        out.append(stopped)
    return out
