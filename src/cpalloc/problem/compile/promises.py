"""Reservations of the previous answer: which still stand, and why the others do not (policy section 6)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cpalloc.metrics.reservations import gpus_kept
from cpalloc.metrics.standing import stand
from cpalloc.problem.compile.clock import to_us
from cpalloc.problem.problem import BrokenPromise, Hold, JobState, NodeState, Problem, status_quo
from cpalloc.schema.answer import ReservationRow


def kept_holds(
    problem: Problem, previous: Sequence[ReservationRow]
) -> tuple[tuple[Hold, ...], tuple[BrokenPromise, ...]]:
    """Holds that bind this round, best rank first, and promises broken before anything is decided.

    A reservation of a job that has started or left the queue has served its purpose and is neither.
    """
    ranked, broken = read_holds(problem, previous)
    if not ranked:
        return (), tuple(broken)
    holds = stand(problem, status_quo(problem), ranked)
    standing = {h.job for h in holds}
    for hold in ranked:
        if hold.job not in standing:
            level = problem.topology.levels[hold.level]
            broken.append(
                BrokenPromise(
                    problem.jobs.ids[hold.job],
                    level,
                    problem.topology.names[hold.level][hold.domain],
                    tuple(problem.nodes.names[n] for n in hold.nodes),
                    hold.starts_us,
                    "stays_longer",
                    "work that runs there no longer leaves in time, so the GPUs are not kept any more",
                )
            )
    return holds, tuple(broken)


def read_holds(problem: Problem, rows: Sequence[ReservationRow]) -> tuple[tuple[Hold, ...], list[BrokenPromise]]:
    """Reservations of an answer in the terms of this problem, best rank first, and those its nodes cannot hold."""
    if not rows:
        return (), []
    jobs = problem.jobs
    index = {name: j for j, name in enumerate(jobs.ids)}
    node_index = {name: n for n, name in enumerate(problem.nodes.names)}
    holds: dict[int, Hold] = {}
    broken: list[BrokenPromise] = []
    for row in rows:
        j = index.get(row.job, -1)
        if row.broken is not None or j < 0 or jobs.state[j] not in (JobState.PENDING, JobState.REFUSED):
            continue
        promised_us = to_us(row.starts_by)

        def fail(code: str, message: str, row: ReservationRow = row, at_us: int = promised_us) -> None:
            broken.append(BrokenPromise(row.job, row.domain.level, row.domain.name, row.nodes, at_us, code, message))

        if jobs.state[j] == JobState.REFUSED:
            fail("inadmissible", f"the job may not run any more: {problem.refusals[j].message}")
            continue
        if not jobs.may_allocate[j]:
            fail("not_allocated", "the job no longer asks for allocated GPUs")
            continue
        nodes = [node_index.get(name, -1) for name in row.nodes]
        gone = sorted({name for name, n in zip(row.nodes, nodes, strict=True) if not _usable(problem, j, n)})
        if gone:
            fail("capacity_left", f"{', '.join(gone)} left service or no longer suit the job")
            continue
        hold = _hold(problem, j, sorted(set(nodes)), promised_us)
        if hold is None:
            fail("capacity_left", f"{len(nodes)} nodes promised can no longer hold {jobs.replicas[j]} replicas")
            continue
        holds.setdefault(j, hold)
    return tuple(sorted(holds.values(), key=lambda h: int(jobs.rank[h.job]))), broken


def _usable(problem: Problem, job: int, node: int) -> bool:
    if node < 0 or problem.nodes.state[node] != NodeState.READY:
        return False
    return bool(problem.eligibility[problem.jobs.eligibility[job], node])


def _hold(problem: Problem, job: int, nodes: list[int], promised_us: int) -> Hold | None:
    """Spread the gang over the promised nodes in name order; None when they are too small or in several domains."""
    jobs, level = problem.jobs, int(problem.jobs.required_level[job])
    domains = np.unique(problem.topology.domain_of[level, nodes])
    pools = np.unique(problem.nodes.pool[nodes])
    if len(domains) != 1 or len(pools) != 1:
        return None
    g, left = int(jobs.gpus_per_replica[job]), int(jobs.replicas[job])
    amounts = []
    for n in nodes:
        fit = int(problem.nodes.healthy[n]) // g
        if jobs.max_per_node[job]:
            fit = min(fit, int(jobs.max_per_node[job]))
        take = min(fit, left)
        left -= take
        amounts.append(gpus_kept(problem, job, n, take))
    if left:
        return None
    return Hold(job, level, int(domains[0]), tuple(nodes), tuple(amounts), max(promised_us, problem.now_us))
