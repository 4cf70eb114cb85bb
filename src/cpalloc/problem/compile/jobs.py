"""Jobs of the request as arrays: what each may do this round, before anything is decided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np

from cpalloc.errors import Issue
from cpalloc.problem.compile.clock import to_us
from cpalloc.problem.compile.nodes import Hardware, mask_of
from cpalloc.problem.problem import US, IntArray, JobState, Mode, NodeState, Policy, Replica
from cpalloc.schema.request import Job, Running

_PRIORITY = {"low": 0, "normal": 1, "high": 2, "urgent": 3, "immediate": 4}


@dataclass(slots=True)
class JobFacts:
    """One job after the harmless reading: instants clamped to now, min_runtime within the policy's maximum."""

    job: Job
    path: str
    leaf: int
    submitted_us: int
    min_runtime_s: int
    may_allocate: bool
    may_borrow: bool
    state: JobState = JobState.PENDING
    mode: Mode = Mode.NONE
    may_promote: bool = False
    protected: bool = False
    protected_until_us: int = -1
    started_us: int = -1
    placed_us: int = -1
    allocated_since_us: int = -1
    checkpointed_us: int = -1
    lost_s: int = 0
    placement: tuple[Replica, ...] = ()
    warnings: list[Issue] = field(default_factory=list)

    def warn(self, code: str, key: str, message: str) -> None:
        """Note something read in the way that harms nobody."""
        self.warnings.append(Issue(code, f"{self.path}.{key}" if key else self.path, message))


def priority_of(job: Job) -> int:
    """0 (low) … 4 (immediate)."""
    return _PRIORITY[job.priority]


def read_job(
    job: Job,
    path: str,
    *,
    policy: Policy,
    leaf_of: Mapping[str, int],
    funded: Sequence[bool],
    now_us: int,
) -> JobFacts:
    """Funding and durations of a job, running or pending (policy section 2)."""
    leaf = leaf_of.get(job.budget, -1)
    minimum = job.min_runtime
    funding = job.funding or ("borrowed" if minimum == 0 else "allocated")
    facts = JobFacts(job, path, leaf, to_us(job.submitted_at), minimum, False, False)
    if funding != "borrowed" and minimum == 0:
        facts.warn(
            "zero_min_runtime", "min_runtime", f"funding {funding!r} needs a min_runtime over 0; it runs borrowed"
        )
        funding = "borrowed"
    if job.running is not None and minimum > policy.max_min_runtime_s:
        facts.warn(
            "min_runtime_over_maximum",
            "min_runtime",
            f"is protected for the maximum of {policy.max_min_runtime_s} s, not for {minimum} s",
        )
        facts.min_runtime_s = policy.max_min_runtime_s
    if job.running is not None and facts.submitted_us > now_us:
        facts.warn("future_time", "submitted_at", "lies in the future; read as now")
        facts.submitted_us = now_us
    can_fund = leaf < 0 or funded[leaf]
    facts.may_allocate = funding in ("allocated", "any") and (can_fund or funding == "allocated")
    facts.may_borrow = funding in ("borrowed", "any")
    return facts


def read_running(
    facts: JobFacts,
    running: Running,
    *,
    policy: Policy,
    hw: Hardware,
    over_share: Sequence[bool],
    funded: Sequence[bool],
    now_us: int,
) -> None:
    """State, protection and lost work of a running job (policy sections 1, 2 and 4)."""
    job = facts.job
    facts.mode = Mode.ALLOCATED if running.mode == "allocated" else Mode.BORROWED
    started = _instant(facts, running.started_at, "started_at", now_us)
    placed = _instant(facts, running.placed_at, "placed_at", now_us)
    facts.started_us = -1 if started is None else started
    facts.placed_us = placed if placed is not None else (started if started is not None else now_us)
    since = _instant(facts, running.allocated_since, "allocated_since", now_us)
    up = started is not None
    if facts.mode is Mode.ALLOCATED:
        facts.allocated_since_us = since if since is not None else (started if started is not None else facts.placed_us)
        end = facts.allocated_since_us + facts.min_runtime_s * US
        if not up:
            # Being carried out: protected from placed_at, at most for start_timeout.
            patience = facts.placed_us + policy.start_timeout_s * US
            end = max(facts.placed_us + facts.min_runtime_s * US, patience) if now_us < patience else now_us
        facts.protected = now_us < end
        facts.protected_until_us = end
    checkpoint = _instant(facts, running.checkpointed_at, "checkpointed_at", now_us)
    facts.checkpointed_us = -1 if checkpoint is None else checkpoint
    if started is not None:
        saved = max(started, checkpoint) if job.resumable and checkpoint is not None else started
        facts.lost_s = max(0, now_us - saved) // US
    facts.placement = _placement(facts, running, hw)
    facts.state = _state(facts, running, policy=policy, hw=hw, over_share=over_share)
    facts.may_promote = (
        facts.mode is Mode.BORROWED
        and facts.state is JobState.EVICTABLE
        and facts.may_allocate
        and facts.may_borrow
        and funded[facts.leaf]
    )


def _instant(facts: JobFacts, value: datetime | None, key: str, now_us: int) -> int | None:
    if value is None:
        return None
    us = to_us(value)
    if us > now_us:
        facts.warn("future_time", f"running.{key}", "lies in the future; read as now")
        return now_us
    return us


def _placement(facts: JobFacts, running: Running, hw: Hardware) -> tuple[Replica, ...]:
    replicas = []
    for i, entry in enumerate(running.placement):
        node = hw.index.get(entry.node, -1)
        if node < 0:
            facts.warn(
                "node_missing",
                f"running.placement[{i}].node",
                f"node {entry.node} is not in the snapshot; the job is kept and takes no capacity there",
            )
        if isinstance(entry.gpus, int):
            replicas.append(Replica(node, entry.gpus, -1))
            continue
        mask = mask_of(entry.gpus)
        if node >= 0 and mask & ~hw.healthy_devices[node]:
            facts.warn("unhealthy_gpu", f"running.placement[{i}].gpus", f"runs on an unhealthy GPU of {entry.node}")
        replicas.append(Replica(node, len(entry.gpus), mask))
    return tuple(sorted(replicas, key=lambda r: (r.node, r.devices)))


def _state(facts: JobFacts, running: Running, *, policy: Policy, hw: Hardware, over_share: Sequence[bool]) -> JobState:
    if running.stopping:
        return JobState.STOPPING
    states = {int(hw.state[r.node]) for r in facts.placement if r.node >= 0}
    if NodeState.DOWN in states:
        return JobState.LOST
    if facts.protected:
        return JobState.FIXED
    if NodeState.DRAINING in states:
        return JobState.DRAINED
    if any(r.node < 0 for r in facts.placement):
        return JobState.FIXED
    if facts.mode is Mode.BORROWED:
        return JobState.EVICTABLE
    return JobState.EVICTABLE if over_share[facts.leaf] or policy.preempt_under_share else JobState.FIXED


def order_in_leaf(rows: Sequence[JobFacts]) -> IntArray:
    """Position of every job inside its leaf: priority, then submission, then id (policy section 5); shape (J,)."""
    order = np.full(len(rows), -1, dtype=np.int64)
    keys = sorted(
        range(len(rows)),
        key=lambda j: (rows[j].leaf, -priority_of(rows[j].job), rows[j].submitted_us, rows[j].job.id),
    )
    count: dict[int, int] = {}
    for j in keys:
        leaf = rows[j].leaf
        order[j] = count.get(leaf, 0)
        count[leaf] = int(order[j]) + 1
    return order
