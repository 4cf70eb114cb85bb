"""Jobs of the request as columns: what each may do this round, before anything is decided.

The harmless reading (wire.md): instants are clamped to now, minimum runtimes of running jobs to the policy's maximum,
and what is odd is warned about.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cpalloc.errors import Issue
from cpalloc.problem.compile.nodes import Hardware
from cpalloc.problem.compile.stays import Lies, Stays
from cpalloc.problem.compile.terms import ALLOCATED, ANY, BORROWED, NOT_GIVEN_US, Asked, Terms
from cpalloc.problem.problem import US, BoolArray, IntArray, JobState, Mode, NodeState, Policy

_INSTANTS = ("started_us", "placed_us", "allocated_since_us", "checkpointed_us")
_FIELD_OF = {name: f"running.{name.removesuffix('_us')}{'' if 'since' in name else '_at'}" for name in _INSTANTS}


@dataclass(frozen=True, slots=True)
class Timing:
    """Instants of running jobs, and what follows from them; columns as in :class:`~cpalloc.problem.problem.Jobs`."""

    started_us: IntArray
    placed_us: IntArray
    allocated_since_us: IntArray
    checkpointed_us: IntArray
    protected: BoolArray
    protected_until_us: IntArray
    lost_s: IntArray


def columns_of(rows: Sequence[Asked]) -> Terms[IntArray]:
    """The jobs' numbers as columns; shape (J,) each."""
    table = np.array([row.terms for row in rows], dtype=np.int64).reshape(len(rows), len(Terms._fields))
    return Terms(*np.ascontiguousarray(table.T))


def may_run(terms: Terms[IntArray], leaf: IntArray, funded: BoolArray) -> tuple[BoolArray, BoolArray]:
    """Which jobs may run allocated and which borrowed (policy section 2)."""
    can_fund = (leaf < 0) | funded[leaf]
    allocated = (terms.funding == ALLOCATED) | ((terms.funding == ANY) & can_fund)
    return allocated, (terms.funding == BORROWED) | (terms.funding == ANY)


def timing(terms: Terms[IntArray], min_runtime_s: IntArray, policy: Policy, now_us: int) -> Timing:
    """Protection and lost work of running jobs (policy sections 1 and 4)."""
    runs, up = terms.runs > 0, terms.started_us != NOT_GIVEN_US
    started = np.minimum(terms.started_us, now_us)
    placed = np.where(
        terms.placed_us != NOT_GIVEN_US, np.minimum(terms.placed_us, now_us), np.where(up, started, now_us)
    )
    since_given = terms.allocated_since_us != NOT_GIVEN_US
    since = np.where(since_given, np.minimum(terms.allocated_since_us, now_us), np.where(up, started, placed))
    allocated = terms.mode == Mode.ALLOCATED
    span = np.where(allocated, min_runtime_s, 0) * US
    # Being carried out: protected from placed_at, at most for start_timeout.
    patience = placed + policy.start_timeout_s * US
    end = np.where(up, since + span, np.where(now_us < patience, np.maximum(placed + span, patience), now_us))
    saves = terms.checkpointed_us != NOT_GIVEN_US
    checkpointed = np.minimum(terms.checkpointed_us, now_us)
    saved = np.where(saves & (terms.resumable > 0), np.maximum(started, checkpointed), started)
    return Timing(
        started_us=np.where(up, started, -1),
        placed_us=np.where(runs, placed, -1),
        allocated_since_us=np.where(allocated, since, -1),
        checkpointed_us=np.where(saves, checkpointed, -1),
        protected=allocated & (now_us < end),
        protected_until_us=np.where(allocated, end, -1),
        lost_s=np.where(up, np.maximum(now_us - saved, 0) // US, 0),
    )


def states(
    terms: Terms[IntArray],
    leaf: IntArray,
    protected: BoolArray,
    lies: Sequence[Lies],
    stays: Stays,
    hw: Hardware,
    over_share: BoolArray,
    policy: Policy,
) -> IntArray:
    """What may happen to each job; pending ones are not judged yet."""

    def touches(state: NodeState) -> BoolArray:
        out = np.zeros(len(lies), dtype=np.bool_)
        out[stays.job[hw.state[stays.node] == state]] = True
        return out

    absent = np.array([bool(lie.replicas) and lie.replicas[0].node < 0 for lie in lies], dtype=np.bool_)
    yields = (terms.mode == Mode.BORROWED) | over_share[leaf] | policy.preempt_under_share
    ladder = (
        (terms.runs == 0, JobState.PENDING),
        (terms.stopping > 0, JobState.STOPPING),
        (touches(NodeState.DOWN), JobState.LOST),
        (protected, JobState.FIXED),
        (touches(NodeState.DRAINING), JobState.DRAINED),
        (absent, JobState.FIXED),
        (yields, JobState.EVICTABLE),
    )
    return np.select([when for when, _ in ladder], [int(state) for _, state in ladder], int(JobState.FIXED))


def order_in_leaf(leaf: IntArray, priority: IntArray, submitted_us: IntArray) -> IntArray:
    """Position of every job inside its leaf: priority, then submission, then id (policy section 5); shape (J,)."""
    ordered = np.lexsort((submitted_us, -priority, leaf))
    first = np.flatnonzero(np.diff(leaf[ordered], prepend=-2))
    order = np.empty(len(leaf), dtype=np.int64)
    order[ordered] = np.arange(len(leaf)) - np.repeat(first, np.diff(first, append=len(leaf)))
    return order


def warnings_of(
    rows: Sequence[Asked],
    paths: Sequence[int],
    terms: Terms[IntArray],
    lies: Sequence[Lies],
    policy: Policy,
    now_us: int,
) -> tuple[Issue, ...]:
    """What was read in a way that harms nobody, by job. ``paths`` are the jobs' positions in the request."""
    runs, longest_s = terms.runs > 0, policy.max_min_runtime_s
    over = runs & (terms.min_runtime_s > longest_s)
    late = runs & (terms.submitted_us > now_us)
    future = np.zeros(len(rows), dtype=np.bool_)
    for name in _INSTANTS:
        future |= getattr(terms, name) > now_us
    faulty = np.array([bool(lie.faults) for lie in lies], dtype=np.bool_)
    out: list[Issue] = []
    for j in np.flatnonzero((terms.asks_too_much > 0) | over | late | future | faulty).tolist():
        job, numbers = rows[j].job, rows[j].terms
        found: list[tuple[str, str, str]] = []
        if numbers.asks_too_much:
            message = f"funding {job.funding!r} needs a min_runtime over 0; it runs borrowed"
            found.append(("zero_min_runtime", "min_runtime", message))
        if over[j]:
            message = f"is protected for the maximum of {longest_s} s, not for {job.min_runtime} s"
            found.append(("min_runtime_over_maximum", "min_runtime", message))
        times = [("submitted_at", late[j])]
        times += [(_FIELD_OF[name], getattr(numbers, name) > now_us) for name in _INSTANTS]
        found += [("future_time", key, "lies in the future; read as now") for key, ahead in times if ahead]
        found += lies[j].faults
        out += [Issue(code, f"jobs[{paths[j]}].{key}", message) for code, key, message in found]
    return tuple(out)
