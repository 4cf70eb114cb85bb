"""Kept reservations: GPUs promised to a blocked gang stay clear of new work that may not leave in time (section 6)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

import numpy as np

from cpalloc.models.base import Violation
from cpalloc.models.objectives.delay import later_than_now
from cpalloc.models.variables import ModelContext, dot
from cpalloc.problem.grants import granted
from cpalloc.problem.problem import Action, BoolArray, Decision, Hold, JobState, Mode, Problem, status_quo
from cpalloc.problem.releases import release_us, start_release_us


class Holds:
    """On every node of a reservation: GPUs of bound starts ≤ healthy − held there beyond its instant − kept for it.

    A start is bound when it is allocated, ranked below the job, and its release is later than the promised instant or
    unknown; a promotion whenever the latter holds. Jobs that are kept count as staying unless their release is known
    and in time.
    """

    name: ClassVar[str] = "holds"

    def applies(self, problem: Problem) -> bool:
        """Always: reservations of this round bind later tiers as well."""
        return True

    def build(self, ctx: ModelContext) -> None:
        """Bound starts are those whose party carries the hold's bit; a preempted job stays no longer."""
        for job in sorted(ctx.partition.served):
            ctx.model.add_bool_or(ctx.started(job))
        for job in sorted(ctx.partition.ready):
            ctx.model.add(later_than_now(ctx, job) <= 0)
        for index, hold in enumerate(ctx.partition.holds):
            bound = [k for k, kind in enumerate(ctx.layout.kinds) if kind.party.holds >> index & 1]
            stays, lasting = staying(ctx.problem, hold), lasting_promotions(ctx.problem, hold)
            for node, gpus in zip(hold.nodes, hold.gpus, strict=True):
                healthy = int(ctx.problem.nodes.healthy[node])
                cell = ctx.layout.cell_of.get(node)
                taken = dot([(g, ctx.p[j]) for j, g in lasting[node] if j in ctx.p])
                if cell is not None:
                    taken = taken + ctx.used(cell, bound)
                gone = dot([(g, ctx.e[j]) for j, g in stays[node] if j in ctx.e])
                room = gone + healthy - sum(g for _, g in stays[node]) - gpus
                # Once the gang itself starts its reservation has served its purpose; and what others hold beyond the
                # promise is no fault of new work: it may take nothing there then, not less than nothing.
                excused = ctx.model.new_bool_var(f"tight{index},{node}")
                served = dot([(healthy, v) for v in ctx.started(hold.job)])
                ctx.model.add(taken <= served + room).only_enforce_if(excused.negated())
                ctx.model.add(taken <= served).only_enforce_if(excused)
                ctx.model.add(room <= 0).only_enforce_if(excused)

    def check(self, problem: Problem, decision: Decision) -> Iterator[Violation]:
        """Every node on which bound work takes what is kept."""
        return intrusions(problem, decision, problem.holds)


def intrusions(
    problem: Problem, decision: Decision, holds: Sequence[Hold], *, bind_all: bool = False
) -> Iterator[Violation]:
    """Nodes on which bound work takes what some reservations keep; ``bind_all``: starts of any rank are bound."""
    jobs, names = problem.jobs, problem.nodes.names
    for hold in holds:
        if decision.action[hold.job] == Action.START:
            continue
        bound = [
            (j, placement)
            for j, placement in decision.placement.items()
            if decision.mode[j] == Mode.ALLOCATED
            and j != hold.job
            and (bind_all or jobs.rank[j] > jobs.rank[hold.job])
            and start_release_us(problem, j) > hold.starts_us
        ]
        bound += [
            (j, jobs.placement[j])
            for j in np.flatnonzero(decision.promoted).tolist()
            if start_release_us(problem, j) > hold.starts_us
        ]
        for node, room in room_beside(problem, hold, decision).items():
            here = [(j, sum(r.gpus for r in placement if r.node == node)) for j, placement in bound]
            taken = sum(g for _, g in here)
            if taken > room:
                yield Violation(
                    Holds.name,
                    f"{taken} GPUs of {names[node]} go to work that may stay beyond the promise to "
                    f"{jobs.ids[hold.job]}; {room} are not kept for it",
                    tuple(jobs.ids[j] for j, g in here if g),
                    (names[node],),
                )


def room_beside(problem: Problem, hold: Hold, decision: Decision) -> dict[int, int]:
    """GPUs that bound work may take on each node of a hold: healthy − held beyond its instant − kept for it."""
    stays = staying(problem, hold)
    return {
        node: max(
            0,
            int(problem.nodes.healthy[node])
            - sum(g for j, g in stays[node] if decision.action[j] != Action.PREEMPT)
            - gpus,
        )
        for node, gpus in zip(hold.nodes, hold.gpus, strict=True)
    }


def staying(problem: Problem, hold: Hold) -> dict[int, list[tuple[int, int]]]:
    """(job, GPUs) on each node of a hold of running allocated jobs that may be there beyond its instant."""

    def stays() -> dict[int, list[tuple[int, int]]]:
        jobs, quo = problem.jobs, status_quo(problem)
        runs = (jobs.mode == Mode.ALLOCATED) & ((jobs.state == JobState.FIXED) | (jobs.state == JobState.EVICTABLE))
        have = granted(problem, quo)
        return _on_nodes(problem, hold, runs, lambda j: release_us(problem, quo, j, have))

    return problem.once(("staying", hold), stays)


def lasting_promotions(problem: Problem, hold: Hold) -> dict[int, list[tuple[int, int]]]:
    """(job, GPUs) on each node of a hold of jobs that would be there beyond its instant if promoted."""
    return _on_nodes(problem, hold, problem.jobs.may_promote, lambda j: start_release_us(problem, j))


def _on_nodes(
    problem: Problem, hold: Hold, among: BoolArray, until_us: Callable[[int], int]
) -> dict[int, list[tuple[int, int]]]:
    out: dict[int, list[tuple[int, int]]] = {node: [] for node in hold.nodes}
    for j in np.flatnonzero(among).tolist():
        here = [rep for rep in problem.jobs.placement[j] if rep.node in out]
        if here and until_us(j) > hold.starts_us:
            for node in {rep.node for rep in here}:
                out[node].append((j, sum(rep.gpus for rep in here if rep.node == node)))
    return out
