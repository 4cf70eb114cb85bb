"""What nodes can hold at a later instant, beside the allocated work that is still there and what is promised."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np

from cpalloc.problem.grants import granted
from cpalloc.problem.problem import US, Action, BoolArray, Decision, Hold, IntArray, Mode, NodeState, Problem
from cpalloc.problem.releases import NEVER
from cpalloc.problem.replicas import by_node

_BEYOND_S = 5 * 10**12
"""Seconds after which it is later than NEVER, whenever they begin; in microseconds an array still holds them."""

MOST_REMEMBERED = 8
"""Decisions whose work is remembered."""


@dataclass(frozen=True, slots=True)
class Stays:
    """Allocated work on ready nodes, one row per (node, job), by node; ``devices`` -1: unknown."""

    job: IntArray
    node: IntArray
    gpus: IntArray
    devices: tuple[int, ...]
    resources: IntArray


@dataclass(frozen=True, slots=True)
class Leaves:
    """When jobs that run allocated leave, by job; shape (J,) each, nothing of use where a job does not.

    ``at_us`` by their own terms (NEVER: nothing says so). ``yields``: they may have to once their protection has ended,
    which is ``end_us``.
    """

    at_us: IntArray
    yields: BoolArray
    end_us: IntArray


@dataclass(frozen=True, slots=True)
class Here:
    """The allocated work on some nodes.

    Attributes
    ----------
    rows, at, release : IntArray, shape (W,)
        Rows of :class:`Stays`, the position of each one's node among those asked about, and when it leaves (µs).
    instants : IntArray, ascending
        Now, and when some of it leaves (µs).
    """

    rows: IntArray
    at: IntArray
    release: IntArray
    instants: IntArray


class Work:
    """The allocated work after a decision, and when it leaves. Promises are no part of it."""

    def __init__(self, problem: Problem, decision: Decision) -> None:
        self.problem = problem
        self.stays = _stays(problem, decision)
        self._first = np.searchsorted(self.stays.node, np.arange(len(problem.nodes.names) + 1))
        self._surplus: list[int] = (granted(problem, decision) - problem.budgets.claim).tolist()
        self._leaves = _leaves(problem, decision)
        self._here: dict[tuple[bytes, frozenset[int]], Here] = {}

    @classmethod
    def after(cls, problem: Problem, decision: Decision) -> Work:
        """That of a decision; the last few are remembered, as decisions are often asked about again and again."""
        allocated = decision.mode == Mode.ALLOCATED
        starts = [(j, places) for j, places in sorted(decision.placement.items()) if allocated[j]]
        key = allocated.tobytes(), decision.promoted.tobytes(), tuple(starts)
        recent: dict[object, Work] = problem.once("work", dict)
        work = recent.pop(key, None) or cls(problem, decision)
        if len(recent) >= MOST_REMEMBERED:
            recent.pop(next(iter(recent)), None)
        recent[key] = work  # the last to be forgotten
        return work

    def over(self, nodes: IntArray, relied: frozenset[int] = frozenset()) -> Here:
        """What is on some nodes; ``relied``: as in :meth:`releases`."""
        key = nodes.tobytes(), relied
        if key not in self._here:
            first = self._first[nodes]
            count = self._first[nodes + 1] - first
            nth = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
            rows = np.repeat(first, count) + nth
            jobs, of = np.unique(self.stays.job[rows], return_inverse=True)
            release = self.releases(jobs, relied)[of]
            instants = np.unique(np.append(release[release < NEVER], self.problem.now_us))
            self._here[key] = Here(rows, np.repeat(np.arange(len(nodes)), count), release, instants)
        return self._here[key]

    def until_us(self, jobs: IntArray) -> IntArray:
        """Instant by which each of some allocated jobs has left by its own terms."""
        return self._leaves.at_us[jobs]

    def may_be_spared(self, jobs: IntArray, at_us: int) -> BoolArray:
        """Which of some allocated jobs are gone at an instant only if their budget spares them, and it may by then."""
        leaves = self._leaves
        may: BoolArray = leaves.yields[jobs] & (leaves.end_us[jobs] <= at_us) & (at_us < leaves.at_us[jobs])
        return may

    def spared_us(self, jobs: IntArray) -> IntArray:
        """Instant from which on the budgets of some allocated jobs may spare them."""
        return self._leaves.end_us[jobs]

    def spare(self, relied: frozenset[int]) -> list[int]:
        """GPUs that every leaf has beyond its claim, less what promises rely on."""
        left, jobs = self._surplus.copy(), self.problem.jobs
        for job in relied:
            left[int(jobs.leaf[job])] -= int(jobs.size[job])
        return left

    def releases(self, jobs: IntArray, relied: frozenset[int] = frozenset()) -> IntArray:
        """Instant by which each of some allocated jobs has left; NEVER where nothing says so.

        Jobs of a budget over its share leave when their protection ends, earliest first, as long as the budget keeps
        its claim without all of them; the others at their timeout. Those ``relied`` on by promises, wherever they are,
        come before all others: a budget spares nothing twice.
        """
        out, end_us = self._leaves.at_us[jobs], self._leaves.end_us[jobs]
        may = np.flatnonzero(self._leaves.yields[jobs])
        may = may[np.lexsort((jobs[may], end_us[may]))]
        leaf, size = self.problem.jobs.leaf[jobs[may]].tolist(), self.problem.jobs.size[jobs[may]].tolist()
        spare, gone = self.spare(relied), []
        for i, job, at, gpus in zip(may.tolist(), jobs[may].tolist(), leaf, size, strict=True):
            if job in relied:
                gone.append(i)
            elif gpus <= spare[at]:
                spare[at] -= gpus
                gone.append(i)
        out[gone] = np.minimum(out[gone], end_us[gone])
        return out


class Outlook:
    """Who holds what until when after a decision, and what is already promised.

    Attributes
    ----------
    work
        The allocated work.
    promised : IntArray, shape (N,)
        GPUs promised so far.
    """

    def __init__(self, problem: Problem, decision: Decision) -> None:
        self.problem, self.work = problem, Work.after(problem, decision)
        self.promised: IntArray = np.zeros(len(problem.nodes.names), dtype=np.int64)
        self._relied: dict[int, frozenset[int]] = {}
        """Per job with a promise, whose leaving for its budget's sake it relies on."""

    @property
    def relied(self) -> frozenset[int]:
        """Jobs that leave before their timeout because a promise relies on it."""
        return frozenset[int]().union(*self._relied.values())

    def book(self, hold: Hold) -> None:
        """Mark the GPUs of a promise as promised, and what its budgets spare for it as spared."""
        nodes, gpus = np.array(hold.nodes, dtype=np.int64), np.array(hold.gpus, dtype=np.int64)
        if jobs := self.over(nodes).spared_for(hold.job, gpus, hold.starts_us):
            self._relied[hold.job] = jobs
        np.add.at(self.promised, nodes, gpus)

    def unbook(self, hold: Hold) -> None:
        """Take :meth:`book` back."""
        np.subtract.at(self.promised, np.array(hold.nodes, dtype=np.int64), np.array(hold.gpus, dtype=np.int64))
        self._relied.pop(hold.job, None)

    def over(self, nodes: IntArray) -> Nearby:
        """The outlook of some nodes."""
        return Nearby(self, nodes)


class Nearby:
    """Some nodes, and the allocated work on them with its releases.

    Attributes
    ----------
    nodes : IntArray, shape (n,)
    instants : IntArray, ascending
        Now, and when some of the work leaves.
    """

    def __init__(self, outlook: Outlook, nodes: IntArray) -> None:
        self._outlook, self._stays, self.nodes = outlook, outlook.work.stays, nodes
        here = outlook.work.over(nodes, outlook.relied)
        self._rows, self._at, self._release = here.rows, here.at, here.release
        self.instants: IntArray = here.instants

    def slots(self, job: int, at_us: int | IntArray) -> IntArray:
        """Replicas of a job that each node can hold at an instant (one for all nodes, or one each); shape (n,)."""
        problem, jobs, nodes = self._outlook.problem, self._outlook.problem.jobs, self.nodes
        stays, promised = self._stays, self._outlook.promised[nodes]
        here = self._release > (at_us if isinstance(at_us, int) else at_us[self._at])
        rows, at = self._rows[here], self._at[here]
        g = int(jobs.gpus_per_replica[job])
        out = (problem.nodes.healthy[nodes] - self._sum(at, stays.gpus[rows]) - promised) // g
        if jobs.same_gpu_group[job]:
            out = np.minimum(out, self._in_groups(g, here))
        for r, need in enumerate(jobs.resources[job].tolist()):
            if need:
                out = np.minimum(
                    out, (problem.nodes.resources[nodes, r] - self._sum(at, stays.resources[rows, r])) // need
                )
        if jobs.max_per_node[job]:
            out = np.minimum(out, int(jobs.max_per_node[job]))
        if jobs.exclusive[job]:
            out[at] = 0
            out[promised > 0] = 0
        slots: IntArray = np.maximum(out, 0)
        return slots

    def room(self, at_us: int) -> IntArray:
        """GPUs of each node that are neither held at an instant nor promised; shape (n,)."""
        here = self._release > at_us
        held = self._sum(self._at[here], self._stays.gpus[self._rows[here]])
        room: IntArray = self._outlook.problem.nodes.healthy[self.nodes] - held - self._outlook.promised[self.nodes]
        return room

    def spared_for(self, job: int, gpus: IntArray, at_us: int) -> frozenset[int]:
        """Work that has to leave before its timeout so that each node has so many GPUs for a job at an instant.

        Whom budgets spare first, as far as they can beside what other promises rely on; ``gpus``: shape (n,).
        """
        outlook, jobs, on = self._outlook, self._outlook.problem.jobs, self._stays.job[self._rows]
        may = outlook.work.may_be_spared(on, at_us)
        if not may.any():
            return frozenset()
        there = at_us < outlook.work.until_us(on)
        held = self._sum(self._at[there], self._stays.gpus[self._rows[there]])
        lacks = gpus - (outlook.problem.nodes.healthy[self.nodes] - held - outlook.promised[self.nodes])
        if jobs.resources[job].any() or jobs.same_gpu_group[job]:
            lacks[:] = np.iinfo(np.int64).max  # where more than GPUs counts, whatever is spared may be needed
        needed, relied = set[int](), outlook.relied
        spare, rows = outlook.work.spare(relied), np.flatnonzero(may)
        rest = rows[np.lexsort((on[rows], outlook.work.spared_us(on[rows])))].tolist()
        for must_fit in (True, False):
            later = []
            for row in rest:
                who, at = int(on[row]), int(self._at[row])
                leaf, size = int(jobs.leaf[who]), int(jobs.size[who])
                counted = who in needed or who in relied
                if lacks[at] <= 0 or (must_fit and not counted and size > spare[leaf]):
                    later.append(row)
                    continue
                lacks[at] -= self._stays.gpus[self._rows[row]]
                needed.add(who)
                spare[leaf] -= 0 if counted else size
            rest = later
        return frozenset(needed)

    def earliest_us(self, job: int, before_us: int | None = None) -> int | None:
        """Earliest instant (before one, if it is given) at which the nodes hold the whole gang; None if they never
        surely do."""
        need = int(self._outlook.problem.jobs.replicas[job])
        instants: list[int] = self.instants.tolist()
        low, high = 0, (len(instants) if before_us is None else bisect_left(instants, before_us)) - 1
        if high < 0 or int(self.slots(job, instants[high]).sum()) < need:
            return None
        while low < high:
            mid = (low + high) // 2
            if int(self.slots(job, instants[mid]).sum()) >= need:
                high = mid
            else:
                low = mid + 1
        return instants[low]

    def ready_us(self, job: int, count: IntArray, by_us: int) -> IntArray:
        """Earliest instant at which each node holds ``count`` replicas of a job, as it does at ``by_us``."""
        low = np.zeros(len(self.nodes), dtype=np.int64)
        high = np.full(len(self.nodes), np.searchsorted(self.instants, by_us))
        while (low < high).any():
            mid = (low + high) // 2
            holds = self.slots(job, self.instants[mid]) >= count
            low, high = np.where(holds, low, mid + 1), np.where(holds, mid, high)
        ready: IntArray = self.instants[high]
        return ready

    def _sum(self, at: IntArray, amount: IntArray) -> IntArray:
        total = np.zeros(len(self.nodes), dtype=np.int64)
        np.add.at(total, at, amount)
        return total

    def _in_groups(self, g: int, here: BoolArray) -> IntArray:
        """Replicas of g GPUs inside a GPU group, beside the work that is ``here``; no bound on nodes of one group."""
        nodes = self._outlook.problem.nodes
        devices = self._stays.devices
        free: list[int] = [-1 if nodes.unknown_devices[n] else nodes.healthy_devices[n] for n in self.nodes.tolist()]
        for row, i in zip(self._rows[here].tolist(), self._at[here].tolist(), strict=True):
            free[i] = -1 if free[i] < 0 or devices[row] < 0 else free[i] & ~devices[row]
        out = np.full(len(free), np.iinfo(np.int64).max)
        for i, n in enumerate(self.nodes.tolist()):
            if len(nodes.groups[n]) > 1:
                out[i] = 0 if free[i] < 0 else sum((free[i] & m).bit_count() // g for m in nodes.groups[n])
        return out


def _leaves(problem: Problem, decision: Decision) -> Leaves:
    """For all jobs at once what :mod:`cpalloc.problem.releases` says of one."""
    jobs, budgets, now_us = problem.jobs, problem.budgets, problem.now_us
    runs = np.flatnonzero(decision.mode == Mode.ALLOCATED)
    leaf, started_us, placed_us = jobs.leaf[runs], jobs.started_us[runs], jobs.placed_us[runs]
    over = (budgets.charged[leaf] > budgets.owed[leaf]) | (budgets.owed[leaf] == 0)
    fresh = (decision.action[runs] == Action.START) | decision.promoted[runs]
    began_us = np.where(started_us >= 0, started_us, placed_us)
    began_us = np.where(fresh & (started_us < 0) & (placed_us < 0), now_us, began_us)
    at_us = _after(began_us, jobs.timeout_s[runs])
    ends = fresh & over & (budgets.claim[leaf] == 0)
    at_us = np.where(ends, np.minimum(at_us, _after(now_us, jobs.min_runtime_s[runs])), at_us)
    nothing = np.zeros(len(jobs), dtype=np.int64)
    out = Leaves(at_us=nothing.copy(), yields=nothing > 0, end_us=nothing.copy())
    out.at_us[runs] = np.where(fresh, at_us, np.maximum(at_us, now_us))
    out.yields[runs] = over & ~fresh
    out.end_us[runs] = np.maximum(jobs.protected_until_us[runs], now_us)
    return out


def _after(began_us: IntArray | int, span_s: IntArray) -> IntArray:
    """Instants some seconds later; NEVER where that is later still, or the span is below 0 and there is none."""
    later_us = np.minimum(began_us + np.minimum(span_s, _BEYOND_S) * US, NEVER)
    after: IntArray = np.where(span_s < 0, NEVER, later_us)
    return after


def _stays(problem: Problem, decision: Decision) -> Stays:
    """Allocated work on ready nodes after a decision."""
    jobs, nodes = problem.jobs, problem.nodes
    ready = (nodes.state == NodeState.READY).tolist()
    allocated = np.flatnonzero(decision.mode == Mode.ALLOCATED)
    starts = (decision.action[allocated] == Action.START).tolist()
    rows: list[tuple[int, int, int, int]] = []
    devices: list[int] = []
    for j, fresh in zip(allocated.tolist(), starts, strict=True):
        for node, count, gpus, mask in by_node(decision.placement[j] if fresh else jobs.placement[j]):
            if ready[node]:
                healthy = mask & nodes.healthy_devices[node] if mask >= 0 else -1
                rows.append((node, j, gpus if mask < 0 else healthy.bit_count(), count))
                devices.append(healthy)
    table = np.array(rows, dtype=np.int64).reshape(len(rows), 4)
    at, job, gpus_on, replicas = table[:, 0], table[:, 1], table[:, 2], table[:, 3]
    alone = jobs.exclusive[job]
    for row in np.flatnonzero(alone).tolist():
        devices[row] = nodes.healthy_devices[rows[row][0]]
    gpus_on = np.where(alone, nodes.healthy[at], gpus_on)
    order = np.argsort(at, kind="stable")
    return Stays(
        job=job[order],
        node=at[order],
        gpus=gpus_on[order],
        devices=tuple(devices[row] for row in order.tolist()),
        resources=(jobs.resources[job] * replicas[:, None])[order],
    )
