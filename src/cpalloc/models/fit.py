"""When a waiting job would not fit although worse-ranked starts were taken away: the exact part of ``inversion``."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from ortools.sat.python import cp_model

from cpalloc.models.kinds import Cell
from cpalloc.models.variables import Linear, ModelContext, dot
from cpalloc.problem.problem import BoolArray, Mode, Problem


def takes_place_of(problem: Problem, covers: BoolArray, job: int, other: int) -> bool:
    """Whether a job fits wherever ``other`` runs: no more GPUs, resources or replicas, no tighter terms."""
    jobs = problem.jobs
    if jobs.exclusive[job] or jobs.max_per_node[job] or jobs.same_gpu_group[job]:
        return False
    per_slot = int(jobs.gpus_per_replica[other]) // int(jobs.gpus_per_replica[job])
    for need, have in zip(jobs.resources[job].tolist(), jobs.resources[other].tolist(), strict=True):
        if need:
            per_slot = min(per_slot, have // need)
    if per_slot * int(jobs.replicas[other]) < int(jobs.replicas[job]):
        return False
    if jobs.required_level[job] > jobs.required_level[other]:
        return False
    return bool(covers[jobs.eligibility[job], jobs.eligibility[other]])


def eligibility_covers(problem: Problem) -> BoolArray:
    """Whether eligibility class e allows every node that class f allows; shape (E, E)."""
    rows = problem.eligibility
    return np.array([[bool(np.all(e | ~f)) for f in rows] for e in rows], dtype=np.bool_)


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
    leaf = int(jobs.leaf[job])
    order = int(jobs.order[job])
    bucket = sum(int(jobs.order[w]) < order for w in ctx.partition.watched if jobs.leaf[w] == leaf)
    stays = [
        k
        for k, kind in enumerate(ctx.layout.kinds)
        if not (kind.party.leaf == leaf and kind.party.mode == mode and kind.party.bucket > bucket)
    ]
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


def _slots_left(ctx: ModelContext, job: int, c: int, cell: Cell, stays: list[int]) -> cp_model.IntVar | None:
    """At least the replicas of a job that a node takes beside the starts that stay; None where it takes none ever."""
    problem, jobs, model, held = ctx.problem, ctx.problem.jobs, ctx.model, ctx.problem.held
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
            free = int(problem.nodes.free_resources[cell.first, r])
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
