"""Kept reservations: GPUs promised to a blocked gang stay clear of new work that may not leave in time (section 6)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from cpalloc.models.base import Violation
from cpalloc.models.variables import ModelContext, dot
from cpalloc.problem.problem import Action, Decision, Hold, JobState, Mode, Problem, status_quo
from cpalloc.problem.releases import release_us, start_release_us


class Holds:
    """On every node of a reservation: GPUs of bound starts ≤ healthy − held there beyond its instant − kept for it.

    A start is bound when it is allocated, ranked below the job, and its release is later than the promised instant or
    unknown. Jobs that run now count as staying unless their release is known and in time.
    """

    name: ClassVar[str] = "holds"

    def applies(self, problem: Problem) -> bool:
        """Always: reservations of this round bind later tiers as well."""
        return True

    def build(self, ctx: ModelContext) -> None:
        """Bound starts are those whose party carries the hold's bit."""
        for index, hold in enumerate(ctx.partition.holds):
            bound = [k for k, kind in enumerate(ctx.layout.kinds) if kind.party.holds >> index & 1]
            for node, room in room_beside(ctx.problem, hold).items():
                cell = ctx.layout.cell_of.get(node)
                if cell is not None:
                    # Once the gang itself starts, its reservation has served its purpose.
                    served = dot([(int(ctx.problem.nodes.healthy[node]), v) for v in ctx.started(hold.job)])
                    ctx.model.add(ctx.used(cell, bound) <= served + room)

    def check(self, problem: Problem, decision: Decision) -> Iterator[Violation]:
        """Every node on which bound starts take what is kept."""
        jobs = problem.jobs
        for hold in problem.holds:
            bound = [
                j
                for j in decision.placement
                if decision.mode[j] == Mode.ALLOCATED
                and j != hold.job
                and jobs.rank[j] > jobs.rank[hold.job]
                and start_release_us(problem, j) > hold.starts_us
            ]
            if decision.action[hold.job] == Action.START:
                continue
            for node, room in room_beside(problem, hold).items():
                here = [(j, sum(r.gpus for r in decision.placement[j] if r.node == node)) for j in bound]
                taken = sum(g for _, g in here)
                if taken > room:
                    yield Violation(
                        self.name,
                        f"{taken} GPUs of {problem.nodes.names[node]} go to starts that may stay beyond the promise to "
                        f"{jobs.ids[hold.job]}; {room} are not kept for it",
                        tuple(jobs.ids[j] for j, g in here if g),
                        (problem.nodes.names[node],),
                    )


def room_beside(problem: Problem, hold: Hold) -> dict[int, int]:
    """GPUs that bound starts may take on each node of a hold: healthy − held beyond its instant − kept for it."""
    stays = _stays(problem, hold)
    return {
        node: max(0, int(problem.nodes.healthy[node]) - stays[node] - gpus)
        for node, gpus in zip(hold.nodes, hold.gpus, strict=True)
    }


def _stays(problem: Problem, hold: Hold) -> dict[int, int]:
    """Allocated GPUs on each node of a hold held by running jobs that may be there beyond its instant."""
    jobs, quo = problem.jobs, status_quo(problem)
    out = dict.fromkeys(hold.nodes, 0)
    runs = (jobs.mode == Mode.ALLOCATED) & ((jobs.state == JobState.FIXED) | (jobs.state == JobState.EVICTABLE))
    for j in np.flatnonzero(runs).tolist():
        here = [rep for rep in jobs.placement[j] if rep.node in out]
        if here and release_us(problem, quo, j) > hold.starts_us:
            for rep in here:
                out[rep.node] += rep.gpus
    return out
