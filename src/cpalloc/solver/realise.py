"""From counts to nodes to devices: a decision that a solution of the model stands for.

Deepest obligations first (a gang that must lie in one rack before one that may use the whole block), each gang in as
few domains as it can, then nodes inside a cell by best fit, largest replicas first, then devices, lowest first inside
one GPU group where that works. Kept jobs never move. Everything is taken in sorted order, so equal counts give equal
decisions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from ortools.sat.python import cp_model

from cpalloc.models.variables import ModelContext
from cpalloc.problem.problem import Action, Decision, Mode, Replica, status_quo
from cpalloc.problem.usage import Usage
from cpalloc.solver.devices import Want, assign_devices

Value = Callable[[cp_model.IntVar], int]


@dataclass(frozen=True, slots=True)
class Gang:
    """A start on its way to nodes: job, mode, shape and the domain (index) of the shape's level it lies in."""

    job: int
    mode: Mode
    shape: int
    domain: int


class UnrealisableError(Exception):
    """The counts have no placement; the model that gave them was too coarse for this round."""


def realise(ctx: ModelContext, value: Value) -> Decision:
    """Build the decision of a solution.

    Parameters
    ----------
    ctx
        The model that was solved.
    value
        Value of a variable in the solution.

    Raises
    ------
    UnrealisableError
        When the counts cannot be placed node by node.
    """
    problem = ctx.problem
    base = status_quo(problem)
    action, mode, promoted = base.action.copy(), base.mode.copy(), base.promoted.copy()
    usage = Usage.status_quo(problem)
    for j, var in ctx.e.items():
        if value(var):
            action[j], mode[j] = Action.PREEMPT, Mode.NONE
            usage.evict(j)
    for j, var in ctx.p.items():
        if value(var):
            promoted[j], mode[j] = True, Mode.ALLOCATED
    kept = ctx.partition.region.starts if ctx.partition.region else ()
    for job, how, places in kept:
        action[job], mode[job] = Action.START, how
        usage.place(job, places)
    gangs = _gangs(ctx, value)
    for gang in gangs:
        action[gang.job], mode[gang.job] = Action.START, gang.mode
    on_node = _to_nodes(ctx, value, _to_cells(ctx, value, gangs), usage)
    placement = _to_devices(ctx, value, on_node, usage)
    placement = dict(sorted({**placement, **{job: places for job, _, places in kept}}.items()))
    return Decision(action=action, mode=mode, promoted=promoted, placement=placement)


def _gangs(ctx: ModelContext, value: Value) -> list[Gang]:
    """Give the started jobs of every shape their domains, best rank first."""
    rank = ctx.problem.jobs.rank
    places: dict[int, list[int]] = defaultdict(list)
    for (s, domain), var in sorted(ctx.z.items()):
        places[s].extend([domain] * value(var))
    started: dict[tuple[int, ...], list[tuple[int, int, Mode]]] = defaultdict(list)
    for start in ctx.layout.starts:
        chosen = ctx.y.get((start.job, start.mode))
        if chosen is None or not value(chosen):
            continue
        known = ctx.shapes_of(start.job, start.mode)
        taken = tuple(s for s in known if value(ctx.in_shape[start.job, start.mode, s])) if known else start.shapes
        started[taken].append((int(rank[start.job]), start.job, start.mode))
    out = []
    for shapes, jobs in started.items():
        free = [(s, d) for s in shapes for d in places[s]]
        if len(free) != len(jobs):
            raise UnrealisableError("gangs and places differ in number")
        for (_, job, mode), (s, domain) in zip(sorted(jobs), free, strict=True):
            out.append(Gang(job, mode, s, domain))
    return out


def _to_cells(ctx: ModelContext, value: Value, gangs: list[Gang]) -> dict[int, list[tuple[int, Gang]]]:
    """Replicas of every cell as (count, gang)."""
    lay, problem = ctx.layout, ctx.problem
    domain_of = problem.topology.domain_of
    left: dict[int, dict[int, int]] = defaultdict(dict)
    for (k, c), var in ctx.a.items():
        if n := value(var):
            left[k][c] = n
    out: dict[int, list[tuple[int, Gang]]] = defaultdict(list)
    finest = len(problem.topology.levels) - 2
    # Big gangs first among those bound to one level: small ones fill what they leave.
    order = sorted(gangs, key=lambda g: (-lay.shapes[g.shape].level, -lay.shapes[g.shape].replicas, g.job))
    for gang in order:
        shape = lay.shapes[gang.shape]
        preferred = int(problem.jobs.preferred_level[gang.job])
        level = preferred if preferred >= 0 else finest
        groups: dict[int, list[int]] = defaultdict(list)
        for c, n in left[shape.kind].items():
            node = lay.cells[c].first
            if n and int(domain_of[shape.level, node]) == gang.domain:
                groups[int(domain_of[level, node])].append(c)
        need = shape.replicas
        room = {d: sum(left[shape.kind][c] for c in cs) for d, cs in groups.items()}
        while need:
            if not room:
                raise UnrealisableError("a domain has too few replicas for its gangs")
            whole = [d for d in room if room[d] >= need]
            best = min(whole, key=lambda d: (room[d], d)) if whole else min(room, key=lambda d: (-room[d], d))
            for c in sorted(groups[best]):
                take = min(need, left[shape.kind][c])
                if take:
                    left[shape.kind][c] -= take
                    need -= take
                    out[c].append((take, gang))
            del room[best]
    return out


def _to_nodes(
    ctx: ModelContext, value: Value, in_cell: dict[int, list[tuple[int, Gang]]], usage: Usage
) -> dict[int, list[tuple[int, Gang]]]:
    """Spread the replicas of a cell over its like nodes: largest first into the fullest node that holds them."""
    lay = ctx.layout
    out: dict[int, list[tuple[int, Gang]]] = defaultdict(list)
    for c, entries in in_cell.items():
        nodes = lay.cells[c].nodes
        if len(nodes) == 1:
            out[nodes[0]] = entries
            continue
        free = {n: int(usage.free_gpus[n]) for n in nodes}
        for count, gang in sorted(entries, key=lambda e: -lay.kinds[lay.shapes[e[1].shape].kind].gpus):
            gpus = lay.kinds[lay.shapes[gang.shape].kind].gpus
            for _ in range(count):
                fitting = [n for n in nodes if free[n] >= gpus]
                if not fitting:
                    raise UnrealisableError("like nodes cannot share the replicas of their cell")
                n = min(fitting, key=lambda n: (free[n], n))
                free[n] -= gpus
                out[n].append((1, gang))
    return out


def _to_devices(
    ctx: ModelContext, value: Value, on_node: dict[int, list[tuple[int, Gang]]], usage: Usage
) -> dict[int, tuple[Replica, ...]]:
    lay, problem = ctx.layout, ctx.problem
    placement: dict[int, list[Replica]] = defaultdict(list)
    for n in sorted(on_node):
        quota: dict[int, list[int]] = {}
        wants: list[Want] = []
        for count, gang in on_node[n]:
            k = lay.shapes[gang.shape].kind
            kind = lay.kinds[k]
            each = int(problem.jobs.gpus_per_replica[gang.job])
            for _ in range(count):
                # A gang bound to one node is counted as one replica of its whole size.
                parts = kind.gpus // each
                group = 0
                if kind.same_group and len(problem.nodes.groups[n]) > 1:
                    if k not in quota:
                        quota[k] = [
                            mask
                            for mask, part in ctx.b.get((k, lay.cell_of[n]), {}).items()
                            for _ in range(value(part))
                        ]
                    group = quota[k].pop()
                wants.extend(Want(gang.job, each, group) for _ in range(parts))
        masks = assign_devices(usage.free_devices[n], problem.nodes.groups[n], wants)
        if masks is None:
            raise UnrealisableError(f"no devices left on node {problem.nodes.names[n]}")
        for want, mask in zip(wants, masks, strict=True):
            placement[want.job].append(Replica(n, want.gpus, mask))
    return {job: tuple(sorted(reps, key=lambda r: (r.node, r.devices))) for job, reps in sorted(placement.items())}
