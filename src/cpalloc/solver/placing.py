"""What a greedy has decided so far, and where a gang goes: best fit by topology, beside kept reservations."""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Collection, Hashable
from dataclasses import dataclass, field, replace

import numpy as np

from cpalloc.problem.grants import borrowed, granted
from cpalloc.problem.problem import Action, Decision, IntArray, JobState, Mode, Problem, Replica
from cpalloc.problem.releases import bound_by
from cpalloc.problem.usage import Usage, place_kinds
from cpalloc.solver.beside import Beside


@dataclass(slots=True)
class GreedyState:
    """What has been decided so far, and what is left of the cluster and the budgets.

    ``in_vain`` are the wishes (:func:`wish_of`) that could not be met since anything last changed.
    """

    problem: Problem
    usage: Usage
    decision: Decision
    granted: list[int]
    borrowed: list[int]
    placement: dict[int, tuple[Replica, ...]] = field(default_factory=dict)
    preempted_gpus: int = 0
    beside: Beside = field(init=False)
    reaching: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Per leaf, sizes of the jobs that take either mode and were newly allocated, in ascending order."""
    in_vain: set[Hashable] = field(default_factory=set)
    coming: list[int] = field(init=False)
    """Per leaf, allocated GPUs that are still to start: who loses work may count on them (rule 4)."""

    def __post_init__(self) -> None:
        self.beside = Beside(self.problem, self.decision, self.placement)
        self.coming = [0] * len(self.granted)

    @classmethod
    def after(cls, problem: Problem, decision: Decision, without: Collection[int] = ()) -> GreedyState:
        """The state after a decision, with the starts in ``without`` taken away."""
        action, mode = decision.action.copy(), decision.mode.copy()
        for j in without:
            action[j], mode[j] = Action.WAIT, Mode.NONE
        places = {j: p for j, p in decision.placement.items() if j not in without}
        own = replace(decision, action=action, mode=mode, promoted=decision.promoted.copy(), placement=places)
        victims = (action == Action.PREEMPT) & (problem.jobs.state == JobState.EVICTABLE)
        state = cls(
            problem,
            Usage.of(problem, own),
            own,
            granted(problem, own).tolist(),
            borrowed(problem, own).tolist(),
            places,
            int(problem.jobs.size[victims].sum()),
        )
        fresh = (action == Action.START) & (mode == Mode.ALLOCATED) & problem.jobs.may_borrow
        for j in np.flatnonzero(fresh | own.promoted).tolist():
            insort(state.reaching[int(problem.jobs.leaf[j])], int(problem.jobs.size[j]))
        return state

    def restart(self, job: int, mode: Mode, placement: tuple[Replica, ...]) -> bool:
        """Start a job where it was, if that is still free and allowed."""
        if not within_caps(self, job, mode):
            return False
        for node in {r.node for r in placement}:
            here = [r for r in placement if r.node == node]
            free = self.usage.free_devices[node]
            if slots_on(self, job, node, mode) < len(here) or any(free >= 0 and r.devices & ~free for r in here):
                return False
        self.accept(job, mode, placement)
        return True

    def withdraw(self, jobs: Collection[int]) -> None:
        """Take starts back."""
        if not jobs:
            return
        problem = self.problem
        for job in jobs:
            leaf, mode = int(problem.jobs.leaf[job]), Mode(int(self.decision.mode[job]))
            self.usage.remove(job, self.placement.pop(job))
            have = self.granted if mode is Mode.ALLOCATED else self.borrowed
            have[leaf] -= int(problem.jobs.size[job])
            self.decision.action[job], self.decision.mode[job] = Action.WAIT, Mode.NONE
            if mode is Mode.ALLOCATED and problem.jobs.may_borrow[job]:
                self.reaching[leaf].remove(int(problem.jobs.size[job]))
        self.beside = Beside(problem, self.decision, self.placement)
        self.in_vain.clear()

    def accept(self, job: int, mode: Mode, placement: tuple[Replica, ...]) -> None:
        """Carry out a start."""
        leaf, size = int(self.problem.jobs.leaf[job]), int(self.problem.jobs.size[job])
        self.in_vain.clear()
        self.usage.place(job, placement)
        self.placement[job] = placement
        self.decision.action[job], self.decision.mode[job] = Action.START, mode
        if mode is Mode.ALLOCATED:
            self.beside.started(job, placement)
            if self.problem.jobs.may_borrow[job]:
                insort(self.reaching[leaf], size)
        have = self.granted if mode is Mode.ALLOCATED else self.borrowed
        have[leaf] += size

    def result(self) -> Decision:
        """The decision reached."""
        return replace(self.decision, placement=dict(sorted(self.placement.items())))


def within_caps(state: GreedyState, job: int, mode: Mode) -> bool:
    """Whether the caps of the job's budgets admit it, and for `any` jobs whether its budget's claim reaches."""
    problem = state.problem
    budgets, jobs = problem.budgets, problem.jobs
    leaf, size = int(jobs.leaf[job]), int(jobs.size[job])
    have = state.granted if mode is Mode.ALLOCATED else state.borrowed
    for vertex, cap in budgets.caps_above(leaf, mode):
        if sum(have[x] for x in budgets.leaves_below[vertex]) + size > cap:
            return False
    if mode is not Mode.ALLOCATED:
        return True
    # Jobs that take either mode are allocated only as far as the claim reaches: this one, and those before it.
    reaching = state.reaching[leaf][:1]
    if jobs.may_borrow[job]:
        reaching.append(size)
    return not reaching or state.granted[leaf] + size - min(reaching) < int(budgets.claim[leaf])


def wish_of(state: GreedyState, job: int, mode: Mode, *, may_preempt: bool) -> Hashable:
    """What it takes to start a job; equal for jobs of which none can be started if one cannot."""
    problem = state.problem
    return (
        place_kinds(problem)[job],
        int(problem.jobs.preferred_level[job]),
        int(problem.jobs.leaf[job]) if may_preempt else -1,
        bound_by(problem, job) if mode is Mode.ALLOCATED else (),
    )


def domain_and_pool(problem: Problem, level: int) -> IntArray:
    """Number of every node's (domain of a level, pool), in that order; shape (N,)."""
    width = len(problem.pool_names) or 1
    return problem.once(
        ("domain and pool", level), lambda: problem.topology.domain_of[level] * width + problem.nodes.pool
    )


def sum_by(group: IntArray, amount: IntArray, groups: int = 0) -> IntArray:
    """Sum of amounts per group, one entry for each up to the largest, or for so many ``groups``."""
    return np.bincount(group, weights=amount, minlength=groups).astype(np.int64)  # exact: far below 2 ** 53


def slots_now(state: GreedyState, job: int, mode: Mode) -> IntArray:
    """Replicas every node takes now, beside what kept reservations bind this start to leave alone; shape (N,)."""
    slots = state.usage.slots_all(job)
    if mode is Mode.ALLOCATED:
        state.beside.limit(job, slots)
    return slots


def slots_on(state: GreedyState, job: int, node: int, mode: Mode = Mode.ALLOCATED) -> int:
    """Replicas a node takes, beside kept reservations."""
    slots = int(state.usage.slots(job, node))
    most = state.beside.most_on(job, node) if mode is Mode.ALLOCATED else None
    return slots if most is None else min(slots, most // int(state.problem.jobs.gpus_per_replica[job]))


def best_free(state: GreedyState, job: int, mode: Mode) -> list[tuple[int, int]] | None:
    """(node, replicas) in the domain that the gang leaves with least room to spare; None when none has room."""
    if int(state.usage.free_gpus.max(initial=0)) < state.problem.jobs.gpus_per_replica[job]:
        return None  # mostly so in a full cluster, and seen at once
    slots = slots_now(state, job, mode)
    need = int(state.problem.jobs.replicas[job])
    if int(slots.sum()) < need:
        return None
    domain = domain_and_pool(state.problem, int(state.problem.jobs.required_level[job]))
    room = sum_by(domain, slots)
    fitting = np.flatnonzero(room >= need)
    if not len(fitting):
        return None
    best = fitting[np.argmin(room[fitting])]  # the first of equals: lowest domain, then lowest pool
    return _fill(state, job, np.flatnonzero((domain == best) & (slots > 0)), slots)


def _fill(state: GreedyState, job: int, nodes: IntArray, slots: IntArray) -> list[tuple[int, int]]:
    """Choose nodes inside a domain: few subdomains of the preferred (or finest) level, each node packed full."""
    problem = state.problem
    need = int(problem.jobs.replicas[job])
    preferred = int(problem.jobs.preferred_level[job])
    level = preferred if preferred >= 0 else len(problem.topology.levels) - 2
    g = int(problem.jobs.gpus_per_replica[job])
    part = problem.topology.domain_of[level, nodes]
    room = sum_by(part, slots[nodes])
    out: list[tuple[int, int]] = []
    while need and room.any():
        whole = np.flatnonzero(room >= need)
        best = whole[np.argmin(room[whole])] if len(whole) else np.argmax(room)
        inside = nodes[part == best]
        # Nodes that the replicas fill exactly first, then the least free ones.
        free = state.usage.free_gpus[inside]
        spare = free - np.minimum(slots[inside], need) * g
        for n in inside[np.lexsort((inside, free, spare))].tolist():
            take = min(need, int(slots[n]))
            if take:
                out.append((n, take))
                need -= take
        room[best] = 0
    return out


def place(state: GreedyState, job: int, nodes: list[tuple[int, int]]) -> tuple[Replica, ...] | None:
    """Devices for the replicas on the chosen nodes."""
    out: list[Replica] = []
    for node, count in nodes:
        if state.usage.slots(job, node) < count:
            return None
        out.extend(state.usage.choose_devices(job, node, count))
    if len(out) != int(state.problem.jobs.replicas[job]):
        return None
    return tuple(sorted(out, key=lambda r: (r.node, r.devices)))
