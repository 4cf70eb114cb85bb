"""Locality: gangs that would like one domain span few, and leave few cut."""

from __future__ import annotations

from collections import defaultdict
from typing import ClassVar

from ortools.sat.python import cp_model

from cpalloc.metrics.occupancy import gives_back, node_use
from cpalloc.models.base import PartSpec
from cpalloc.models.variables import Linear, ModelContext, dot
from cpalloc.problem.problem import Decision, Problem, status_quo


class Locality:
    """Σ over starts with a preferred level of the domains spanned, less one; then free GPUs left in these."""

    name: ClassVar[str] = "locality"
    parts: ClassVar[tuple[PartSpec, ...]] = (PartSpec("domains", "domains"), PartSpec("gpus", "GPUs"))
    limits_model: ClassVar[bool] = True

    def floor(self, problem: Problem) -> tuple[int, ...]:
        """Every gang in one domain, and these full."""
        return (0, 0)

    def build(self, ctx: ModelContext) -> tuple[Linear, ...]:
        """Domains touched by the starts that the partition tells apart, less one a start; then GPUs left in them."""
        jobs, topology, model = ctx.problem.jobs, ctx.problem.topology, ctx.model
        spans: list[tuple[int, cp_model.IntVar]] = []
        touched: dict[tuple[int, int], list[cp_model.IntVar]] = defaultdict(list)
        for k, kind in enumerate(ctx.layout.kinds):
            job = kind.party.job
            level = int(jobs.preferred_level[job]) if job >= 0 else -1
            if level < 0:
                continue
            domains: dict[int, list[int]] = defaultdict(list)
            for c, cell in enumerate(ctx.layout.cells):
                if (k, c) in ctx.a:
                    domains[int(topology.domain_of[level, cell.first])].append(c)
            ctx.check_time()
            for domain, cells in domains.items():
                in_it = model.new_bool_var(f"in{k},{domain}")
                # The rows cell by cell say the same of whole numbers; this one makes fractions dear.
                most = min(int(jobs.replicas[job]), sum(ctx.layout.slots[k, c] for c in cells))
                model.add(cp_model.LinearExpr.sum([ctx.a[k, c] for c in cells]) <= most * in_it)
                for c in cells:
                    model.add(ctx.a[k, c] <= ctx.layout.slots[k, c] * in_it)
                spans.append((1, in_it))
                touched[level, domain].append(in_it)
        started = [
            (-1, v) for j in sorted(ctx.partition.single) if jobs.preferred_level[j] >= 0 for v in ctx.started(j)
        ]
        return dot(spans + started), self._left(ctx, touched)

    @staticmethod
    def _left(ctx: ModelContext, touched: dict[tuple[int, int], list[cp_model.IntVar]]) -> Linear:
        """Free GPUs left in domains that are touched."""
        problem, topology = ctx.problem, ctx.problem.topology
        free_now = node_use(problem, status_quo(problem)).free
        terms = []
        for (level, domain), marks in touched.items():
            inside = topology.domain_of[level] == domain
            freed = [(gives_back(problem, j, inside), v) for j, v in ctx.e.items()]
            taken = [(-ctx.kind(k).gpus, ctx.a[k, c]) for c in ctx.cells_below[level, domain] for k in ctx.kinds_on[c]]
            free = dot([*((g, v) for g, v in freed if g), *taken]) + int(free_now[inside].sum())
            left = ctx.model.new_int_var(0, int(problem.nodes.healthy[inside].sum()), f"left{level},{domain}")
            for mark in marks:
                ctx.model.add(left >= free).only_enforce_if(mark)
            terms.append((1, left))
        return dot(terms)

    def evaluate(self, problem: Problem, decision: Decision) -> tuple[int, ...]:
        """Start by start; a domain touched by several is counted once for its free GPUs."""
        jobs, topology = problem.jobs, problem.topology
        spans, touched = 0, set()
        for j, placement in decision.placement.items():
            level = int(jobs.preferred_level[j])
            if level >= 0:
                domains = {int(topology.domain_of[level, r.node]) for r in placement}
                spans += len(domains) - 1
                touched |= {(level, d) for d in domains}
        free = node_use(problem, decision).free
        left = sum(int(free[topology.domain_of[level] == d].sum()) for level, d in touched)
        return spans, left
