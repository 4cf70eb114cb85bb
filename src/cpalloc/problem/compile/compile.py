"""Compile a round: schema in, sorted read-only arrays out, with everything worth a warning."""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import compress

import numpy as np

from cpalloc.collector import collector_paused
from cpalloc.entitlement import projected_ratio_key
from cpalloc.errors import InputError, Issue
from cpalloc.metrics.shape_mix import default_shape_mix
from cpalloc.problem.compile.admission import Where, refusal
from cpalloc.problem.compile.budgets import Funding, funding
from cpalloc.problem.compile.cache import CompileCache
from cpalloc.problem.compile.claims import budget_arrays
from cpalloc.problem.compile.clock import to_us
from cpalloc.problem.compile.jobs import columns_of, may_run, order_in_leaf, states, timing, warnings_of
from cpalloc.problem.compile.nodes import Hardware
from cpalloc.problem.compile.occupancy import occupancy
from cpalloc.problem.compile.promises import kept_holds
from cpalloc.problem.compile.stays import Lies, Stays, stays_of
from cpalloc.problem.compile.terms import MAX_AMOUNT, Asked, Terms
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
from cpalloc.topology import Topology
from cpalloc.topology.naming import CLUSTER


@dataclass(frozen=True, slots=True)
class Compiled:
    """A problem, what to warn about, and the wire jobs in the order of the arrays."""

    problem: Problem
    warnings: tuple[Issue, ...]
    jobs: tuple[Job, ...]


@collector_paused()
def compile_round(round_: Round, *, cache: CompileCache | None = None, trusted: bool = False) -> Compiled:
    """Compile a round.

    Parameters
    ----------
    cache
        What earlier rounds of the same cluster have in common with this one; saves time and changes nothing.
    trusted
        The caller vouches for the snapshot (:func:`~cpalloc.schema.snapshot_issues` would find nothing), as one that
        makes rounds itself can. It is not checked again.

    Raises
    ------
    InputError
        When the snapshot cannot be trusted as a whole (wire.md, "Errors"); every issue is listed.
    """
    issues = [] if trusted else snapshot_issues(round_)
    if issues:
        raise InputError(issues)
    cache = CompileCache() if cache is None else cache
    paths = sorted(range(len(round_.jobs)), key=lambda i: round_.jobs[i].id)
    rows = cache.ask([round_.jobs[i] for i in paths])
    ground = cache.ground(round_.cluster, rows)
    hw, topology = ground.hw, ground.topology
    policy, now_us = _policy(round_), to_us(round_.now)
    in_service = int(hw.healthy[hw.state == NodeState.READY].sum())
    fund = funding(round_.budgets, in_service, policy.window_s)
    terms, lies, wheres = columns_of(rows), ground.read_places(rows), [ground.where(row.kind) for row in rows]
    stays = stays_of(lie.here for lie in lies)
    jobs = _jobs(rows, terms, lies, stays, hw, topology, fund, policy, now_us)
    refusals = _refusals(rows, wheres, terms, jobs, policy, hw, topology, fund, now_us)
    jobs = _refuse(jobs, refusals)
    eligibility, eligibility_of, in_service_fit = _eligibility(wheres, refusals, jobs, stays, hw)
    resources = np.array([w.resources for w in wheres], dtype=np.int64).reshape(len(rows), len(hw.resource_names))
    resources[list(refusals)] = 0
    jobs = dataclasses.replace(jobs, eligibility=eligibility_of, resources=resources)
    nodes, held = occupancy(hw, jobs.state, jobs.resources, jobs.exclusive, stays)
    budgets = budget_arrays(fund, jobs, nodes, stays, in_service_fit, policy)
    problem = Problem(
        now_us=now_us,
        topology=topology,
        nodes=nodes,
        jobs=dataclasses.replace(jobs, rank=_rank(jobs, budgets, policy)),
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
    warnings = warnings_of(rows, paths, terms, lies, policy, now_us)
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


def _jobs(
    rows: Sequence[Asked],
    terms: Terms[IntArray],
    lies: Sequence[Lies],
    stays: Stays,
    hw: Hardware,
    topology: Topology,
    fund: Funding,
    policy: Policy,
    now_us: int,
) -> Jobs:
    """The jobs before any is refused; their ranks, eligibility and resources are still to be worked out."""
    leaf_of, level_of = fund.leaf_of, {name: i for i, name in enumerate(topology.levels)}
    leaf = np.array([leaf_of.get(row.job.budget, -1) for row in rows], dtype=np.int64)
    # One entry more for jobs of no known leaf, which have index -1.
    funded = np.append(fund.owed > 0, False)
    over_share = np.append((fund.charged > fund.owed) | (fund.owed == 0), False)
    runs = terms.runs > 0
    min_runtime_s = np.where(runs, np.minimum(terms.min_runtime_s, policy.max_min_runtime_s), terms.min_runtime_s)
    submitted_us = np.where(runs, np.minimum(terms.submitted_us, now_us), terms.submitted_us)
    may_allocate, may_borrow = may_run(terms, leaf, funded)
    at = timing(terms, min_runtime_s, policy, now_us)
    state = states(terms, leaf, at.protected, lies, stays, hw, over_share, policy)
    evictable_loan = (terms.mode == Mode.BORROWED) & (state == JobState.EVICTABLE)
    size = terms.replicas * terms.gpus_per_replica
    nothing = np.zeros(len(rows), dtype=np.int64)
    return Jobs(
        ids=tuple(row.job.id for row in rows),
        state=state,
        leaf=leaf,
        submitted_us=submitted_us,
        priority=terms.priority,
        interactive=terms.interactive > 0,
        replicas=terms.replicas,
        gpus_per_replica=terms.gpus_per_replica,
        size=size,
        resources=nothing.reshape(len(rows), 1),
        max_per_node=terms.max_per_node,
        exclusive=terms.exclusive > 0,
        same_gpu_group=terms.same_gpu_group > 0,
        eligibility=nothing,
        required_level=np.array([level_of.get(row.job.topology.required or "", 0) for row in rows], dtype=np.int64),
        preferred_level=np.array([level_of.get(row.job.topology.preferred or "", -1) for row in rows], dtype=np.int64),
        min_runtime_s=min_runtime_s,
        timeout_s=terms.timeout_s,
        restart_cost_s=terms.restart_cost_s,
        resumable=terms.resumable > 0,
        may_allocate=may_allocate,
        may_borrow=may_borrow,
        may_promote=evictable_loan & may_allocate & may_borrow & funded[leaf],
        mode=terms.mode,
        protected=at.protected,
        protected_until_us=at.protected_until_us,
        started_us=at.started_us,
        placed_us=at.placed_us,
        allocated_since_us=at.allocated_since_us,
        checkpointed_us=at.checkpointed_us,
        lost_gpu_seconds=np.where(runs, size * at.lost_s, 0),
        preempt_cost=np.where(runs, size * (at.lost_s + np.minimum(terms.restart_cost_s, 10**9)), 0),
        rank=nothing - 1,
        order=order_in_leaf(leaf, terms.priority, submitted_us),
        placement=tuple(lie.replicas for lie in lies),
    )


def _refusals(
    rows: Sequence[Asked],
    wheres: Sequence[Where],
    terms: Terms[IntArray],
    jobs: Jobs,
    policy: Policy,
    hw: Hardware,
    topology: Topology,
    fund: Funding,
    now_us: int,
) -> dict[int, Refusal]:
    """Pending jobs that wait whatever else is decided. Only those that something speaks against are looked at."""
    # With nothing in service nobody is owed anything; that is no lack of funding.
    owed = fund.owed if hw.healthy[hw.state == NodeState.READY].any() else np.ones_like(fund.owed)
    suspect = np.array([not where.ever for where in wheres], dtype=np.bool_)
    suspect |= (terms.min_runtime_s > policy.max_min_runtime_s) | (jobs.submitted_us > now_us)
    suspect |= (jobs.leaf < 0) | (np.append(owed, 0)[jobs.leaf] == 0)
    suspect |= np.array(
        [(row.job.topology.preferred or CLUSTER) not in topology.levels for row in rows], dtype=np.bool_
    )
    out: dict[int, Refusal] = {}
    for j in np.flatnonzero(suspect & (jobs.state == JobState.PENDING)).tolist():
        why = refusal(
            rows[j].job,
            policy=policy,
            hw=hw,
            topology=topology,
            leaf_of=fund.leaf_of,
            interior=fund.interior,
            owed=owed,
            now_us=now_us,
            submitted_us=int(jobs.submitted_us[j]),
            allocated=bool(jobs.may_allocate[j]),
            borrowed=bool(jobs.may_borrow[j]),
        )
        if why is not None:
            out[j] = why
    return out


def _refuse(jobs: Jobs, refusals: Mapping[int, Refusal]) -> Jobs:
    """The jobs where those refused are, and ask for, nothing."""
    if not refusals:
        return jobs
    real = np.ones(len(jobs), dtype=np.bool_)
    real[list(refusals)] = False
    return dataclasses.replace(
        jobs,
        state=np.where(real, jobs.state, int(JobState.REFUSED)),
        replicas=jobs.replicas * real,
        gpus_per_replica=jobs.gpus_per_replica * real,
        size=jobs.size * real,
        may_allocate=jobs.may_allocate & real,
        may_borrow=jobs.may_borrow & real,
    )


def _eligibility(
    wheres: Sequence[Where], refusals: Container[int], jobs: Jobs, stays: Stays, hw: Hardware
) -> tuple[BoolArray, IntArray, list[frozenset[int]]]:
    """Eligibility classes, the class of every job, and the pools in which it could run were the ready nodes empty."""
    counted = np.zeros(len(hw.names), dtype=np.bool_)
    counted[stays.node[[mask < 0 for mask in stays.devices]]] = True
    same_group = jobs.same_gpu_group.tolist()
    classes: dict[bytes, int] = {}
    matrix: list[BoolArray] = []
    of: list[int] = []
    fit: list[frozenset[int]] = []
    known: dict[int, int] = {}
    for j, where in enumerate(wheres):
        refused = j in refusals
        key = -1 if refused else id(where)
        if key not in known:
            mask = np.zeros_like(counted) if refused else where.ready
            if same_group[j]:
                mask = mask & ~counted  # nobody knows which devices are left there
            known[key] = classes.setdefault(mask.tobytes(), len(classes))
            if known[key] == len(matrix):
                matrix.append(mask)
        of.append(known[key])
        fit.append(frozenset() if refused else where.pools)
    stacked = np.array(matrix, dtype=np.bool_).reshape(len(matrix), len(hw.names))
    return stacked, np.array(of, dtype=np.int64), fit


def _rank(jobs: Jobs, budgets: Budgets, policy: Policy) -> IntArray:
    """Order across budgets over pending jobs: the leaf's projected ratio after one charge step, then section 5."""
    keys = [
        projected_ratio_key(c, o, 1, policy.charge_horizon_s)
        for c, o in zip(budgets.charged.tolist(), budgets.owed.tolist(), strict=True)
    ]
    place = {key: i for i, key in enumerate(sorted(set(keys)))}
    of_leaf = np.array([place[key] for key in keys], dtype=np.int64)
    pending = np.flatnonzero(jobs.state == JobState.PENDING)
    leaf = jobs.leaf[pending]  # numbered by name, as the jobs are by id
    best_first = np.lexsort((leaf, jobs.submitted_us[pending], -jobs.priority[pending], of_leaf[leaf]))
    rank = np.full(len(jobs), -1, dtype=np.int64)
    rank[pending[best_first]] = np.arange(len(pending))
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
    could_run = (jobs.mode != Mode.NONE) | np.array([bool(pools) for pools in in_service_fit], dtype=np.bool_)
    level = np.where(jobs.required_level > 0, jobs.required_level, np.maximum(jobs.preferred_level, 0))
    several = len(hw.pool_names) > 1
    pool = [next(iter(pools)) if several and len(pools) == 1 else -1 for pools in in_service_fit]
    columns = (jobs.replicas.tolist(), jobs.gpus_per_replica.tolist(), level.tolist(), pool)
    counts = (could_run & (jobs.state != JobState.REFUSED)).tolist()
    rows = compress(zip(*columns, strict=True), counts)
    whole = [(int(hw.gpus[hw.pool == p].max()), p) for p in range(len(hw.pool_names))]
    if len(hw.pool_names) == 1:
        whole = [(g, -1) for g, _ in whole]
    return default_shape_mix(rows, whole)
