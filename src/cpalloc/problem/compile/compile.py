"""Compile a round: schema in, sorted read-only arrays out, with everything worth a warning."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from cpalloc.entitlement import projected_ratio_key
from cpalloc.errors import InputError, Issue
from cpalloc.metrics.shape_mix import default_shape_mix
from cpalloc.problem.compile.admission import eligible_nodes, empty_slots, fits_empty, refusal
from cpalloc.problem.compile.budgets import Funding, funding
from cpalloc.problem.compile.claims import budget_arrays
from cpalloc.problem.compile.clock import to_us
from cpalloc.problem.compile.jobs import JobFacts, order_in_leaf, priority_of, read_job, read_running
from cpalloc.problem.compile.nodes import Hardware, hardware, occupancy
from cpalloc.problem.compile.promises import kept_holds
from cpalloc.problem.problem import (
    BoolArray,
    Budgets,
    IntArray,
    Jobs,
    JobState,
    Mode,
    NodeState,
    Options,
    Policy,
    Problem,
    Refusal,
    Shape,
    Tier,
)
from cpalloc.schema import snapshot_issues
from cpalloc.schema.request import Job, Round
from cpalloc.topology import Cluster, Topology, to_arrays

MAX_AMOUNT = 10**15
"""Largest amount of a resource, and longest duration in seconds, that arrays hold."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A problem, what to warn about, and the wire jobs in the order of the arrays."""

    problem: Problem
    warnings: tuple[Issue, ...]
    jobs: tuple[Job, ...]


def compile_round(round_: Round) -> Compiled:
    """Compile a round.

    Raises
    ------
    InputError
        When the snapshot cannot be trusted as a whole (wire.md, "Errors"); every issue is listed.
    """
    issues = snapshot_issues(round_)
    if issues:
        raise InputError(issues)
    cluster = Cluster.from_wire(round_.cluster)
    _, topology = to_arrays(cluster)
    policy, now_us = _policy(round_), to_us(round_.now)
    hw = hardware(cluster.nodes, round_.jobs)
    in_service = int(hw.healthy[hw.state == NodeState.READY].sum())
    fund = funding(round_.budgets, in_service, policy.window_s)
    over = [bool(c > o or o == 0) for c, o in zip(fund.charged, fund.owed, strict=True)]
    funded = [bool(o > 0) for o in fund.owed]
    rows = _read_jobs(round_, policy, hw, fund, over, funded, now_us)
    refusals = _refusals(rows, policy, hw, topology, fund, now_us)
    for j in refusals:
        rows[j].state = JobState.REFUSED
    eligibility, eligibility_of, in_service_fit = _eligibility(rows, hw, topology)
    jobs = _arrays(rows, hw, topology, eligibility_of, now_us)
    nodes, held = occupancy(hw, jobs.state, jobs.resources, jobs.exclusive, jobs.placement)
    budgets = budget_arrays(fund, jobs, nodes, eligibility, in_service_fit, policy)
    jobs = dataclasses.replace(jobs, rank=_rank(jobs, budgets, policy))
    problem = Problem(
        now_us=now_us,
        topology=topology,
        nodes=nodes,
        jobs=jobs,
        held=held,
        budgets=budgets,
        policy=policy,
        options=_options(round_),
        pool_names=hw.pool_names,
        resource_names=hw.resource_names,
        eligibility=eligibility,
        shape_mix=_shape_mix(round_, jobs, hw, topology, in_service_fit),
        refusals=refusals,
    )
    holds, broken = kept_holds(problem, round_.previous.reservations)
    problem = dataclasses.replace(problem, holds=holds, broken=broken)
    warnings = tuple(w for row in rows for w in row.warnings)
    return Compiled(problem, warnings, tuple(row.job for row in rows))


def _policy(round_: Round) -> Policy:
    p = round_.policy
    return Policy(
        window_s=p.window,
        charge_horizon_s=p.charge_horizon,
        max_min_runtime_s=min(p.max_min_runtime, MAX_AMOUNT),
        start_timeout_s=min(p.start_timeout, MAX_AMOUNT),
        preempt_under_share=p.preempt_under_share,
        reservations=p.reservations,
        max_preempted_gpus=-1 if p.max_preempted_gpus is None else p.max_preempted_gpus,
        tiers=tuple(Tier(str(t.name), Fraction(t.slack)) for t in p.tiers),
    )


def _options(round_: Round) -> Options:
    o = round_.options
    return Options(
        time_limit_s=float(o.time_limit),
        workers=o.workers,
        seed=o.seed,
        deterministic=o.deterministic,
        deterministic_limit=-1.0 if o.deterministic_limit is None else float(o.deterministic_limit),
        gap=Fraction(o.gap),
    )


def _read_jobs(
    round_: Round,
    policy: Policy,
    hw: Hardware,
    fund: Funding,
    over: Sequence[bool],
    funded: Sequence[bool],
    now_us: int,
) -> list[JobFacts]:
    leaf_of = fund.leaf_of
    rows = []
    for i in sorted(range(len(round_.jobs)), key=lambda i: round_.jobs[i].id):
        job = round_.jobs[i]
        facts = read_job(job, f"jobs[{i}]", policy=policy, leaf_of=leaf_of, funded=funded, now_us=now_us)
        if job.running is not None:
            read_running(facts, job.running, policy=policy, hw=hw, over_share=over, funded=funded, now_us=now_us)
        rows.append(facts)
    return rows


def _refusals(
    rows: Sequence[JobFacts], policy: Policy, hw: Hardware, topology: Topology, fund: Funding, now_us: int
) -> dict[int, Refusal]:
    out, leaf_of, interior = {}, fund.leaf_of, fund.interior
    for j, row in enumerate(rows):
        if row.job.running is None:
            why = refusal(
                row.job,
                policy=policy,
                hw=hw,
                topology=topology,
                leaf_of=leaf_of,
                interior=interior,
                # With nothing in service nobody is owed anything; that is no lack of funding.
                owed=fund.owed if hw.healthy[hw.state == NodeState.READY].any() else np.ones_like(fund.owed),
                now_us=now_us,
                submitted_us=row.submitted_us,
                allocated=row.may_allocate,
                borrowed=row.may_borrow,
            )
            if why is not None:
                out[j] = why
    return out


def _eligibility(
    rows: Sequence[JobFacts], hw: Hardware, topology: Topology
) -> tuple[BoolArray, IntArray, list[frozenset[int]]]:
    """Eligibility classes, the class of every job, and the pools in which it could run were the ready nodes empty."""
    ready = hw.state == NodeState.READY
    counted = np.zeros(len(hw.names), dtype=np.bool_)
    for row in rows:
        for rep in row.placement:
            if rep.node >= 0 and rep.devices < 0:
                counted[rep.node] = True
    classes: dict[bytes, int] = {}
    matrix: list[BoolArray] = []
    of = np.zeros(len(rows), dtype=np.int64)
    fit: list[frozenset[int]] = []
    memo: dict[object, tuple[BoolArray, frozenset[int]]] = {}
    for j, row in enumerate(rows):
        job = row.job
        key = (
            job.gpu_types,
            tuple(sorted(job.node_selector.items())),
            tuple(sorted(set(job.exclude_nodes))),
            row.state is JobState.REFUSED or (job.replicas, job.gpus_per_replica, job.same_gpu_group),
            tuple(sorted(job.resources_per_replica.items())),
            job.max_replicas_per_node,
            job.topology.required,
        )
        if key not in memo:
            memo[key] = _where(job, row.state, hw, topology, ready)
        mask, pools = memo[key]
        fit.append(pools)
        if job.same_gpu_group:
            mask = mask & ~counted  # nobody knows which devices are left there
        number = classes.setdefault(mask.tobytes(), len(classes))
        if number == len(matrix):
            matrix.append(mask)
        of[j] = number
    stacked = np.array(matrix, dtype=np.bool_).reshape(len(matrix), len(hw.names))
    return stacked, of, fit


def _where(
    job: Job, state: JobState, hw: Hardware, topology: Topology, ready: BoolArray
) -> tuple[BoolArray, frozenset[int]]:
    if state is JobState.REFUSED or job.gpus_per_replica < 1 or job.replicas < 1:
        return np.zeros(len(hw.names), dtype=np.bool_), frozenset()
    mask = eligible_nodes(job, hw) & ready
    if job.topology.required is not None and job.topology.required not in topology.levels:
        return mask, frozenset(np.unique(hw.pool[mask]).tolist())
    slots = np.where(mask, empty_slots(job, hw, hw.healthy, hw.healthy_devices), 0)
    pools = [p for p in np.unique(hw.pool[mask]).tolist() if fits_empty(job, slots * (hw.pool == p), hw.pool, topology)]
    return mask, frozenset(pools)


def _level(topology: Topology, name: str | None, default: int) -> int:
    return topology.level_index(name) if name is not None and name in topology.levels else default


def _arrays(rows: Sequence[JobFacts], hw: Hardware, topology: Topology, eligibility_of: IntArray, now_us: int) -> Jobs:
    def ints(values: Sequence[int]) -> IntArray:
        return np.array([min(v, MAX_AMOUNT * 1000) for v in values], dtype=np.int64)

    def bools(values: Sequence[bool]) -> BoolArray:
        return np.array(values, dtype=np.bool_)

    real = [row.state is not JobState.REFUSED for row in rows]
    replicas = ints([r.job.replicas if ok else 0 for r, ok in zip(rows, real, strict=True)])
    each = ints([r.job.gpus_per_replica if ok else 0 for r, ok in zip(rows, real, strict=True)])
    size = replicas * each
    lost = ints([r.lost_s for r in rows])
    restart = ints([min(r.job.restart_cost, MAX_AMOUNT) for r in rows])
    runs = bools([r.job.running is not None for r in rows])
    order = order_in_leaf(rows)
    return Jobs(
        ids=tuple(r.job.id for r in rows),
        state=ints([r.state for r in rows]),
        leaf=ints([r.leaf for r in rows]),
        submitted_us=ints([r.submitted_us for r in rows]),
        priority=ints([priority_of(r.job) for r in rows]),
        interactive=bools([r.job.kind == "interactive" for r in rows]),
        replicas=replicas,
        gpus_per_replica=each,
        size=size,
        resources=np.array(
            [
                [min(r.job.resources_per_replica.get(n, 0), MAX_AMOUNT) if ok else 0 for n in hw.resource_names]
                for r, ok in zip(rows, real, strict=True)
            ],
            dtype=np.int64,
        ).reshape(len(rows), len(hw.resource_names)),
        max_per_node=ints([r.job.max_replicas_per_node or 0 for r in rows]),
        exclusive=bools([r.job.exclusive_nodes for r in rows]),
        same_gpu_group=bools([r.job.same_gpu_group for r in rows]),
        eligibility=eligibility_of,
        required_level=ints([_level(topology, r.job.topology.required, 0) for r in rows]),
        preferred_level=ints([_level(topology, r.job.topology.preferred, -1) for r in rows]),
        min_runtime_s=ints([r.min_runtime_s for r in rows]),
        timeout_s=ints([-1 if r.job.timeout is None else min(r.job.timeout, MAX_AMOUNT) for r in rows]),
        restart_cost_s=restart,
        resumable=bools([r.job.resumable for r in rows]),
        may_allocate=bools([r.may_allocate and ok for r, ok in zip(rows, real, strict=True)]),
        may_borrow=bools([r.may_borrow and ok for r, ok in zip(rows, real, strict=True)]),
        may_promote=bools([r.may_promote for r in rows]),
        mode=ints([r.mode for r in rows]),
        protected=bools([r.protected for r in rows]),
        protected_until_us=ints([r.protected_until_us for r in rows]),
        started_us=ints([r.started_us for r in rows]),
        placed_us=ints([r.placed_us for r in rows]),
        allocated_since_us=ints([r.allocated_since_us for r in rows]),
        checkpointed_us=ints([r.checkpointed_us for r in rows]),
        lost_gpu_seconds=np.where(runs, size * lost, 0),
        preempt_cost=np.where(runs, size * (lost + np.minimum(restart, 10**9)), 0),
        rank=np.full(len(rows), -1, dtype=np.int64),
        order=order,
        placement=tuple(r.placement for r in rows),
    )


def _rank(jobs: Jobs, budgets: Budgets, policy: Policy) -> IntArray:
    """Order across budgets over pending jobs: the leaf's projected ratio after one charge step, then section 5."""
    keys = [
        projected_ratio_key(int(c), int(o), 1, policy.charge_horizon_s)
        for c, o in zip(budgets.charged, budgets.owed, strict=True)
    ]
    names = budgets.leaf_names
    pending = np.flatnonzero(jobs.state == JobState.PENDING).tolist()
    ids = jobs.ids
    pending.sort(
        key=lambda j: (keys[jobs.leaf[j]], -jobs.priority[j], jobs.submitted_us[j], names[jobs.leaf[j]], ids[j])
    )
    rank = np.full(len(jobs), -1, dtype=np.int64)
    rank[pending] = np.arange(len(pending))
    return rank


def _shape_mix(
    round_: Round, jobs: Jobs, hw: Hardware, topology: Topology, in_service_fit: Sequence[frozenset[int]]
) -> tuple[Shape, ...]:
    """The request's mix, or one of the jobs that could run and one whole node of each pool (policy section 8)."""
    mix = round_.policy.shape_mix
    if mix is not None:
        unknown = [i for i, s in enumerate(mix) if s.level not in topology.levels]
        if unknown:
            raise InputError(
                [
                    Issue(
                        "unknown_level",
                        f"policy.shape_mix[{i}].level",
                        f"there is no level {mix[i].level!r}; this cluster has {', '.join(topology.levels)}",
                    )
                    for i in unknown
                ]
            )
        return tuple(Shape(s.replicas, s.gpus_per_replica, topology.level_index(s.level), s.weight) for s in mix)
    rows = []
    for j in range(len(jobs)):
        runs = jobs.mode[j] != Mode.NONE
        if jobs.state[j] == JobState.REFUSED or not (runs or in_service_fit[j]):
            continue
        level = int(jobs.required_level[j]) or max(0, int(jobs.preferred_level[j]))
        pools = in_service_fit[j]
        pool = next(iter(pools)) if len(pools) == 1 and len(hw.pool_names) > 1 else -1
        rows.append((int(jobs.replicas[j]), int(jobs.gpus_per_replica[j]), level, pool))
    whole = [(int(hw.gpus[hw.pool == p].max()), p) for p in range(len(hw.pool_names))]
    if len(hw.pool_names) == 1:
        whole = [(g, -1) for g, _ in whole]
    return default_shape_mix(rows, whole)
