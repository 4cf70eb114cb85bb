"""What a greedy has decided so far, and where a gang goes: best fit by topology, beside kept reservations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field, replace

import numpy as np

from cpalloc.problem.grants import borrowed, granted
from cpalloc.problem.problem import Action, Decision, IntArray, JobState, Mode, Problem, Replica
from cpalloc.problem.releases import release_us, start_release_us
from cpalloc.problem.usage import Usage


@dataclass(slots=True)
class GreedyState:
    """What has been decided so far, and what is left of the cluster and the budgets."""

    problem: Problem
    usage: Usage
    decision: Decision
    granted: list[int]
    borrowed: list[int]
    placement: dict[int, tuple[Replica, ...]] = field(default_factory=dict)
    preempted_gpus: int = 0
    on_node: dict[int, list[tuple[int, int, int]]] = field(default_factory=dict)
    either: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Per leaf, jobs that take either mode and were newly allocated."""

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
            state.either[int(problem.jobs.leaf[j])].append(j)
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

    def accept(self, job: int, mode: Mode, placement: tuple[Replica, ...]) -> None:
        """Carry out a start."""
        self.usage.place(job, placement)
        self.placement[job] = placement
        self.decision.action[job], self.decision.mode[job] = Action.START, mode
        if mode is Mode.ALLOCATED and self.problem.jobs.may_borrow[job]:
            self.either[int(self.problem.jobs.leaf[job])].append(job)
        have = self.granted if mode is Mode.ALLOCATED else self.borrowed
        have[int(self.problem.jobs.leaf[job])] += int(self.problem.jobs.size[job])

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
    reach = [size] if jobs.may_borrow[job] else []
    reach += [int(jobs.size[j]) for j in state.either[leaf]]
    return not reach or state.granted[leaf] + size - min(reach) < int(budgets.claim[leaf])


def domains_of(problem: Problem, job: int, nodes: list[int]) -> dict[tuple[int, int], list[int]]:
    """Nodes by (domain of the required level, pool)."""
    level = int(problem.jobs.required_level[job])
    out: dict[tuple[int, int], list[int]] = defaultdict(list)
    for n in nodes:
        out[int(problem.topology.domain_of[level, n]), int(problem.nodes.pool[n])].append(n)
    return out


def slots_now(state: GreedyState, job: int, mode: Mode) -> IntArray:
    """Replicas every node takes now, beside what kept reservations bind this start to leave alone; shape (N,)."""
    slots = state.usage.slots_all(job)
    for node, most in _reserved(state, job, mode).items():
        slots[node] = min(int(slots[node]), most // int(state.problem.jobs.gpus_per_replica[job]))
    return slots


def _reserved(state: GreedyState, job: int, mode: Mode) -> dict[int, int]:
    """GPUs this start may take at most on nodes that a kept reservation holds."""
    problem = state.problem
    if mode is not Mode.ALLOCATED:
        return {}
    jobs = problem.jobs
    out: dict[int, int] = {}
    release = start_release_us(problem, job)
    for hold in problem.holds:
        if hold.job == job or jobs.rank[job] < jobs.rank[hold.job] or release <= hold.starts_us:
            continue
        for node, gpus in zip(hold.nodes, hold.gpus, strict=True):
            busy = sum(g for _, g, until in _allocated_on(state, node) if until > hold.starts_us)
            room = max(0, int(problem.nodes.healthy[node]) - gpus - busy)
            out[node] = min(out.get(node, room), room)
    return out


def _allocated_on(state: GreedyState, node: int) -> list[tuple[int, int, int]]:
    """(job, GPUs, release) of allocated work that stays or starts on a node."""
    problem = state.problem
    if node not in state.on_node:
        rows = []
        for j in np.flatnonzero(state.decision.mode == Mode.ALLOCATED).tolist():
            if state.decision.action[j] != Action.KEEP:
                continue
            gpus = sum(r.gpus for r in problem.jobs.placement[j] if r.node == node)
            if gpus:
                rows.append((j, gpus, release_us(problem, state.decision, j)))
        state.on_node[node] = rows
    started = []
    for j, placement in state.placement.items():
        gpus = sum(r.gpus for r in placement if r.node == node)
        if gpus and state.decision.mode[j] == Mode.ALLOCATED:
            started.append((j, gpus, start_release_us(problem, j)))
    return state.on_node[node] + started


def slots_on(state: GreedyState, job: int, node: int, mode: Mode = Mode.ALLOCATED) -> int:
    """Replicas a node takes, beside kept reservations."""
    most = _reserved(state, job, mode).get(node) if state.problem.holds else None
    slots = int(state.usage.slots(job, node))
    return slots if most is None else min(slots, most // int(state.problem.jobs.gpus_per_replica[job]))


def best_free(state: GreedyState, job: int, mode: Mode) -> list[tuple[int, int]] | None:
    """(node, replicas) in the domain that the gang leaves with least room to spare; None when none has room."""
    slots = slots_now(state, job, mode)
    need = int(state.problem.jobs.replicas[job])
    if int(slots.sum()) < need:
        return None
    best: tuple[int, int, int, list[int]] | None = None
    for (domain, pool), nodes in domains_of(state.problem, job, np.flatnonzero(slots).tolist()).items():
        room = int(slots[nodes].sum())
        if room >= need and (best is None or (room, domain, pool) < best[:3]):
            best = (room, domain, pool, nodes)
    return None if best is None else _fill(state, job, best[3], {n: int(slots[n]) for n in best[3]})


def _fill(state: GreedyState, job: int, nodes: list[int], slots: dict[int, int]) -> list[tuple[int, int]]:
    """Choose nodes inside a domain: few subdomains of the preferred (or finest) level, each node packed full."""
    problem = state.problem
    need = int(problem.jobs.replicas[job])
    preferred = int(problem.jobs.preferred_level[job])
    level = preferred if preferred >= 0 else len(problem.topology.levels) - 2
    g = int(problem.jobs.gpus_per_replica[job])
    groups: dict[int, list[int]] = defaultdict(list)
    for n in nodes:
        if slots[n]:
            groups[int(problem.topology.domain_of[level, n])].append(n)
    room = {d: sum(slots[n] for n in ns) for d, ns in groups.items()}
    out: list[tuple[int, int]] = []
    while need and room:
        whole = [d for d in room if room[d] >= need]
        best = min(whole, key=lambda d: (room[d], d)) if whole else min(room, key=lambda d: (-room[d], d))
        # Nodes that the replicas fill exactly first, then the least free ones.
        free = state.usage.free_gpus
        for n in sorted(groups[best], key=lambda n: (int(free[n]) - min(slots[n], need) * g, int(free[n]), n)):
            take = min(need, slots[n])
            if take:
                out.append((n, take))
                need -= take
        del room[best]
    return out


def place(state: GreedyState, job: int, mode: Mode, nodes: list[tuple[int, int]]) -> tuple[Replica, ...] | None:
    """Devices for the replicas on the chosen nodes."""
    out: list[Replica] = []
    for node, count in nodes:
        if state.usage.slots(job, node) < count:
            return None
        out.extend(state.usage.choose_devices(job, node, count))
    if len(out) != int(state.problem.jobs.replicas[job]):
        return None
    return tuple(sorted(out, key=lambda r: (r.node, r.devices)))
