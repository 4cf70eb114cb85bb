"""From the inside back to the wire, and an answer back to the inside for checking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from fractions import Fraction
from typing import Protocol

import numpy as np

from cpalloc.metrics.fragmentation import Fragmentation
from cpalloc.metrics.occupancy import Measures
from cpalloc.problem.compile.clock import from_us
from cpalloc.problem.compile.nodes import mask_of
from cpalloc.problem.compile.promises import read_holds
from cpalloc.problem.grants import borrowed, granted
from cpalloc.problem.problem import US, Action, Decision, JobState, Mode, Problem, Replica
from cpalloc.schema import answer as wire
from cpalloc.schema.request import Job

_ACTION = {
    Action.WAIT: "wait",
    Action.START: "start",
    Action.KEEP: "keep",
    Action.PREEMPT: "preempt",
    Action.LOST: "lost",
}
_MODE = {Mode.ALLOCATED: "allocated", Mode.BORROWED: "borrowed"}
_FORCED = {JobState.DRAINED: "drain", JobState.STOPPING: "stopping"}


class WaitReason(Protocol):
    """What :mod:`cpalloc.explain` says of a waiting job."""

    @property
    def code(self) -> str: ...  # noqa: D102
    @property
    def message(self) -> str: ...  # noqa: D102
    @property
    def blockers(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def missing_gpus(self) -> int | None: ...  # noqa: D102


def devices(mask: int) -> tuple[int, ...]:
    """Device indices of a bitmask."""
    return tuple(i for i in range(mask.bit_length()) if mask >> i & 1)


def decisions(
    problem: Problem,
    decision: Decision,
    given: Sequence[Job],
    reasons: Mapping[int, WaitReason],
    beneficiaries: Mapping[int, tuple[int, ...]],
) -> tuple[wire.Decision, ...]:
    """One decision a job, sorted by id.

    ``given`` are the jobs as the request has them, in the problem's order: kept jobs stay where it says they run.
    """
    jobs, promises = problem.jobs, {h.job: h for h in decision.reservations}
    positions, blocked = _positions(problem, decision), set(decision.blocked)
    protected_until = _protected_until(problem, decision)
    start, keep, wait = int(Action.START), int(Action.KEEP), int(Action.WAIT)
    modes = decision.mode.tolist()
    out = []
    for j, action in enumerate(decision.action.tolist()):
        fields: dict[str, object] = {"job": jobs.ids[j], "action": _ACTION[action]}
        if action in (start, keep):
            starts = action == start
            fields["mode"] = _MODE[modes[j]]
            fields["placement"] = placement(problem, decision.placement[j]) if starts else _given(given[j])
            fields["protected_until"] = protected_until.get(j)
            if not starts:
                fields["promoted"] = bool(decision.promoted[j])
        elif action == wait:
            why = reasons[j]
            fields["blocked"] = j in blocked
            fields["position"] = positions.get(j)
            if j in promises:
                fields["starts_by"] = from_us(promises[j].starts_us)
            fields["reason"] = wire.Reason(
                code=why.code, message=why.message, blockers=why.blockers, missing_gpus=why.missing_gpus
            )
        else:
            fields["requeue"] = bool(jobs.resumable[j])
            fields["lost_gpu_seconds"] = int(jobs.lost_gpu_seconds[j])
            if action == Action.PREEMPT:
                fields["beneficiaries"] = tuple(jobs.ids[b] for b in beneficiaries.get(j, ()))
                fields["forced"] = _FORCED.get(JobState(int(jobs.state[j])))
        out.append(wire.Decision.model_validate(fields))
    return tuple(out)


def _given(job: Job) -> tuple[wire.DecisionPlacement, ...] | None:
    """Where the request says a job runs, in wire form."""
    if job.running is None:
        return None
    return tuple(wire.DecisionPlacement(node=e.node, gpus=e.gpus) for e in job.running.placement)


def placement(problem: Problem, replicas: Sequence[Replica]) -> tuple[wire.DecisionPlacement, ...]:
    """Wire form of a start's places: device indices, or counts where devices are unknown."""
    return tuple(
        wire.DecisionPlacement(node=problem.nodes.names[r.node], gpus=r.gpus if r.devices < 0 else devices(r.devices))
        for r in replicas
    )


def _protected_until(problem: Problem, decision: Decision) -> dict[int, datetime]:
    """When the protection ends of the jobs that run allocated after the round."""
    jobs = problem.jobs
    allocated = np.flatnonzero(decision.mode == Mode.ALLOCATED)
    fresh = ((decision.action == Action.START) | decision.promoted)[allocated]
    from_now_us = problem.now_us + jobs.min_runtime_s[allocated] * US
    until_us = np.where(fresh, from_now_us, jobs.protected_until_us[allocated])
    return dict(zip(allocated.tolist(), map(from_us, until_us.tolist()), strict=True))


def _positions(problem: Problem, decision: Decision) -> dict[int, int]:
    """1-based place in the queue of its pool, the best of those a job accepts; by rank."""
    jobs = problem.jobs
    waiting = np.flatnonzero((decision.action == Action.WAIT) & (jobs.rank >= 0)).tolist()
    waiting.sort(key=lambda j: int(jobs.rank[j]))
    pools = {
        e: sorted(set(problem.nodes.pool[problem.eligibility[e]].tolist()))
        for e in {int(jobs.eligibility[j]) for j in waiting}
    }
    length: dict[int, int] = {}
    out = {}
    for j in waiting:
        accepted = pools[int(jobs.eligibility[j])] or [-1]
        for p in accepted:
            length[p] = length.get(p, 0) + 1
        out[j] = min(length[p] for p in accepted)
    return out


def budget_rows(problem: Problem, decision: Decision) -> tuple[wire.BudgetRow, ...]:
    """Where every leaf stands before and after the round."""
    budgets, h = problem.budgets, problem.policy.charge_horizon_s
    have, lent = granted(problem, decision), borrowed(problem, decision)
    rows = []
    for leaf, name in enumerate(budgets.leaf_names):
        owed, charged, got = int(budgets.owed[leaf]), int(budgets.charged[leaf]), int(have[leaf])
        entitled = int(budgets.entitled[leaf])
        rows.append(
            wire.BudgetRow(
                name=name,
                share=float(budgets.share[leaf]),
                owed_gpu_seconds=owed,
                charged_gpu_seconds=charged,
                ratio=float(Fraction(charged, owed)) if owed else None,
                demand_gpus=int(budgets.demand[leaf]),
                claim_gpus=int(budgets.claim[leaf]),
                entitled_gpus=entitled,
                granted_gpus=got,
                borrowed_gpus=int(lent[leaf]),
                shortfall_gpus=max(0, entitled - got),
                ratio_after=float(Fraction(charged + got * h, owed)) if owed else None,
            )
        )
    return tuple(rows)


def reservation_rows(problem: Problem, decision: Decision) -> tuple[wire.ReservationRow, ...]:
    """Promises made, then promises of the last answer that are broken and why."""
    topology, jobs = problem.topology, problem.jobs
    rows = [
        wire.ReservationRow(
            job=jobs.ids[h.job],
            domain=wire.DomainRef(level=topology.levels[h.level], name=topology.names[h.level][h.domain]),
            nodes=tuple(problem.nodes.names[n] for n in h.nodes),
            starts_by=from_us(h.starts_us),
        )
        for h in decision.reservations
    ]
    promised = {h.job for h in decision.reservations}
    for hold in problem.holds:
        if decision.action[hold.job] == Action.WAIT and hold.job not in promised:
            rows.append(
                wire.ReservationRow(
                    job=jobs.ids[hold.job],
                    domain=wire.DomainRef(
                        level=topology.levels[hold.level], name=topology.names[hold.level][hold.domain]
                    ),
                    nodes=tuple(problem.nodes.names[n] for n in hold.nodes),
                    starts_by=from_us(hold.starts_us),
                    broken=wire.Broken(
                        code="outranked", message="a better-ranked job took GPUs that were held, or one stays longer"
                    ),
                )
            )
    for b in problem.broken:
        rows.append(
            wire.ReservationRow(
                job=b.job,
                domain=wire.DomainRef(level=b.level, name=b.domain),
                nodes=b.nodes,
                starts_by=from_us(b.starts_us),
                broken=wire.Broken(code=b.code, message=b.message),
            )
        )
    return tuple(rows)


def fragmentation_row(problem: Problem, frag: Fragmentation) -> wire.Fragmentation:
    """Fragmentation in wire form."""
    levels = problem.topology.levels
    return wire.Fragmentation(
        free_gpus=frag.free_gpus,
        stranded_gpus=round(float(frag.stranded_gpus), 6),
        largest_gang={g.level: g.gpus for g in frag.largest_gang},
        largest_gang_with_borrowed={g.level: g.gpus for g in frag.largest_gang_with_borrowed},
        expected_time_to_place_s=round(float(frag.expected_time_to_place_s), 6),
        by_shape=tuple(
            wire.ShapeRow(
                replicas=f.shape.replicas,
                gpus_per_replica=f.shape.gpus_per_replica,
                level=levels[f.shape.level],
                gpu_type=None if f.shape.pool < 0 else problem.pool_names[f.shape.pool],
                weight=f.shape.weight,
                placeable_now=f.placeable_now,
                stranded_gpus=f.stranded_gpus,
                time_to_place_s=f.time_to_place_s,
            )
            for f in frag.by_shape
        ),
        by_domain=tuple(
            wire.DomainRow(
                level=d.level,
                name=d.name,
                free_gpus=d.free_gpus,
                whole_free_nodes=d.whole_free_nodes,
                free_at=from_us(d.free_at_us),
            )
            for d in frag.by_domain
        ),
    )


def measures_row(m: Measures) -> wire.Measures:
    """Measures in wire form; occupancy 0 where nothing is in service."""
    return wire.Measures(
        installed_gpus=m.installed_gpus,
        in_service_gpus=m.in_service_gpus,
        held_gpus=m.held_gpus,
        held_draining_gpus=m.held_draining_gpus,
        allocated_gpus=m.allocated_gpus,
        borrowed_gpus=m.borrowed_gpus,
        occupancy=float(m.occupancy or 0),
    )


def read_decision(problem: Problem, allocation: wire.Allocation) -> tuple[Decision, list[tuple[str, str]]]:
    """An answer as a decision of this problem, and (job id, what is wrong) where it does not even speak of its jobs.

    A job that the answer leaves out is read as waiting (pending) or untouched (running).
    """
    jobs, index = problem.jobs, {name: j for j, name in enumerate(problem.jobs.ids)}
    node_index = {name: n for n, name in enumerate(problem.nodes.names)}
    action = np.full(len(jobs), int(Action.WAIT), dtype=np.int64)
    action[jobs.mode != Mode.NONE] = Action.KEEP
    mode, promoted = jobs.mode.copy(), np.zeros(len(jobs), dtype=np.bool_)
    places: dict[int, tuple[Replica, ...]] = {}
    wrong, seen, rank = [], set(), jobs.rank.tolist()
    actions = {v: k for k, v in _ACTION.items()}
    modes = {v: k for k, v in _MODE.items()}
    for row in allocation.decisions:
        j = index.get(row.job, -1)
        if j < 0 or j in seen:
            wrong.append((row.job, "is decided twice" if j in seen else "is not a job of the round"))
            continue
        seen.add(j)
        action[j] = actions[row.action]
        runs = row.mode is not None and action[j] in (Action.START, Action.KEEP)
        mode[j] = modes[row.mode] if runs and row.mode is not None else Mode.NONE
        promoted[j] = bool(row.promoted)
        if action[j] == Action.KEEP and _moved(problem, j, row.placement or (), node_index):
            wrong.append((row.job, "is kept and must stay where the round says it runs"))
        if action[j] != Action.START:
            continue
        replicas = []
        for entry in row.placement or ():
            n = node_index.get(entry.node, -1)
            if n < 0:
                wrong.append((row.job, f"is placed on {entry.node}, which is not in the snapshot"))
            count = entry.gpus if isinstance(entry.gpus, int) else len(entry.gpus)
            replicas.append(Replica(n, count, -1 if isinstance(entry.gpus, int) else mask_of(entry.gpus)))
        places[j] = tuple(sorted(replicas, key=lambda r: (r.node, r.devices)))
    wrong.extend((jobs.ids[j], "has no decision") for j in range(len(jobs)) if j not in seen)
    blocked = sorted(
        (index[r.job] for r in allocation.decisions if r.blocked and r.job in index), key=lambda j: rank[j]
    )
    decision = Decision(
        action=action,
        mode=mode,
        promoted=promoted,
        placement=places,
        reservations=read_holds(problem, allocation.reservations)[0],
        blocked=tuple(blocked),
    )
    return decision, wrong


def _moved(
    problem: Problem, job: int, placement: Sequence[wire.DecisionPlacement], node_index: Mapping[str, int]
) -> bool:
    """Whether a kept job's places differ from those it runs on (places on absent nodes aside)."""
    here = sorted((r.node, r.gpus, max(r.devices, 0)) for r in problem.jobs.placement[job] if r.node >= 0)
    there = sorted(
        (node_index[e.node], e.gpus, 0)
        if isinstance(e.gpus, int)
        else (node_index[e.node], len(e.gpus), mask_of(e.gpus))
        for e in placement
        if e.node in node_index
    )
    return here != there
