"""A decision in a model: the values that stand for it as a hint, and its starts as all that the model may do."""

from __future__ import annotations

from collections import defaultdict

from ortools.sat.python import cp_model

from cpalloc.models.variables import ModelContext
from cpalloc.problem.problem import Action, Decision, Mode


def hint_of(ctx: ModelContext, decision: Decision) -> list[tuple[cp_model.IntVar, int]]:
    """Values of y, in which shape, z, a, e and p; what the model has no variable for is left out."""
    problem, lay = ctx.problem, ctx.layout
    groups = (ctx.y, ctx.in_shape, ctx.z, ctx.a, ctx.e, ctx.p)
    variables = {var.index: var for group in groups for var in group.values()}
    out = dict.fromkeys(variables, 0)
    for j, var in ctx.e.items():
        out[var.index] = int(decision.action[j] == Action.PREEMPT)
    for j, var in ctx.p.items():
        out[var.index] = int(decision.promoted[j])
    by_start = {(s.job, s.mode): s for s in lay.starts}
    for j, placement in decision.placement.items():
        mode = Mode(int(decision.mode[j]))
        start, chosen = by_start.get((j, mode)), ctx.y.get((j, mode))
        if decision.action[j] != Action.START or start is None or chosen is None:
            continue
        pool = int(problem.nodes.pool[placement[0].node])
        shape = next(s for s in start.shapes if lay.kinds[lay.shapes[s].kind].pool == pool)
        level, k = lay.shapes[shape].level, lay.shapes[shape].kind
        domain = int(problem.topology.domain_of[level, placement[0].node])
        out[chosen.index] = 1
        if (j, mode, shape) in ctx.in_shape:
            out[ctx.in_shape[j, mode, shape].index] = 1
        if (shape, domain) in ctx.z:
            out[ctx.z[shape, domain].index] += 1
        counts: dict[int, int] = defaultdict(int)
        for rep in placement:
            if rep.node in lay.cell_of:
                counts[lay.cell_of[rep.node]] += rep.gpus
        for c, gpus in counts.items():
            if (k, c) in ctx.a:
                out[ctx.a[k, c].index] += gpus // lay.kinds[k].gpus
    return [(variables[index], value) for index, value in out.items()]


def start_the_same(ctx: ModelContext, decision: Decision) -> None:
    """Leave a model nothing to decide but where the starts of a decision go."""
    for (j, mode), var in ctx.y.items():
        ctx.model.add(var == int(decision.action[j] == Action.START and decision.mode[j] == mode))
