"""What nodes can hold at a later instant, beside the allocated work that is still there and what is promised."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cpalloc.problem.grants import granted
from cpalloc.problem.problem import Action, BoolArray, Decision, IntArray, Mode, NodeState, Problem
from cpalloc.problem.releases import NEVER, start_release_us, timeout_us
from cpalloc.problem.replicas import by_node


@dataclass(frozen=True, slots=True)
class Stays:
    """Allocated work on ready nodes, one row per (node, job), by node; ``devices`` -1: unknown."""

    job: IntArray
    node: IntArray
    gpus: IntArray
    devices: tuple[int, ...]
    resources: IntArray


class Outlook:
    """Who holds what until when after a decision, and what is already promised.

    Attributes
    ----------
    promised : IntArray, shape (N,)
        GPUs promised so far.
    """

    def __init__(self, problem: Problem, decision: Decision) -> None:
        self.problem, self.decision = problem, decision
        self.promised: IntArray = np.zeros(len(problem.nodes.names), dtype=np.int64)
        self.stays = _stays(problem, decision)
        self.first = np.searchsorted(self.stays.node, np.arange(len(problem.nodes.names) + 1))
        self._surplus = granted(problem, decision) - problem.budgets.claim
        self._leaves: dict[int, tuple[int, int | None]] = {}

    def over(self, nodes: IntArray) -> Nearby:
        """The outlook of some nodes."""
        return Nearby(self, nodes)

    def releases(self, jobs: Sequence[int]) -> dict[int, int]:
        """Instant by which each of some allocated jobs has left; NEVER where nothing says so.

        Jobs of a budget over its share leave when their protection ends, earliest first, as long as the budget keeps
        its claim without all of them; the others at their timeout.
        """
        leaf, size = self.problem.jobs.leaf, self.problem.jobs.size
        known = {j: self._leaves_at(j) for j in jobs}
        out = {j: at_us for j, (at_us, _) in known.items()}
        spare: dict[int, int] = {}
        for end_us, j in sorted((end_us, j) for j, (_, end_us) in known.items() if end_us is not None):
            at = int(leaf[j])
            left = spare.setdefault(at, int(self._surplus[at]))
            if size[j] <= left:
                spare[at] = left - int(size[j])
                out[j] = min(out[j], end_us)
        return out

    def _leaves_at(self, job: int) -> tuple[int, int | None]:
        """When a job leaves by its own terms, and when it may have to once its protection ends."""
        if job not in self._leaves:
            problem, jobs, decision = self.problem, self.problem.jobs, self.decision
            if decision.action[job] == Action.START or decision.promoted[job]:
                self._leaves[job] = start_release_us(problem, job), None
            else:
                over = problem.budgets.over_share(int(jobs.leaf[job]))
                end_us = max(problem.now_us, int(jobs.protected_until_us[job])) if over else None
                self._leaves[job] = max(problem.now_us, timeout_us(problem, job)), end_us
        return self._leaves[job]


class Nearby:
    """Some nodes, and the allocated work on them with its releases.

    Attributes
    ----------
    nodes : IntArray, shape (n,)
    instants : IntArray, ascending
        Now, and when some of the work leaves.
    """

    def __init__(self, outlook: Outlook, nodes: IntArray) -> None:
        self._outlook, self.nodes = outlook, nodes
        stays, first = outlook.stays, outlook.first[nodes]
        count = outlook.first[nodes + 1] - first
        nth = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
        self._rows = np.repeat(first, count) + nth
        self._at = np.repeat(np.arange(len(nodes)), count)
        job = stays.job[self._rows]
        releases = outlook.releases(np.unique(job).tolist())
        # What is later than NEVER is no instant that anybody asks about.
        self._release = np.array([min(releases[j], NEVER) for j in job.tolist()], dtype=np.int64)
        now_us = outlook.problem.now_us
        self.instants: IntArray = np.unique(np.append(self._release[self._release < NEVER], now_us))

    def slots(self, job: int, at_us: int | IntArray) -> IntArray:
        """Replicas of a job that each node can hold at an instant (one for all nodes, or one each); shape (n,)."""
        problem, jobs, nodes = self._outlook.problem, self._outlook.problem.jobs, self.nodes
        stays, promised = self._outlook.stays, self._outlook.promised[nodes]
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
        held = self._sum(self._at[here], self._outlook.stays.gpus[self._rows[here]])
        room: IntArray = self._outlook.problem.nodes.healthy[self.nodes] - held - self._outlook.promised[self.nodes]
        return room

    def earliest_us(self, job: int) -> int | None:
        """Earliest instant at which the nodes hold the whole gang; None if they never surely do."""
        need = int(self._outlook.problem.jobs.replicas[job])
        instants: list[int] = self.instants.tolist()
        low, high = 0, len(instants) - 1
        if int(self.slots(job, instants[high]).sum()) < need:
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
        devices = self._outlook.stays.devices
        free: list[int] = [-1 if nodes.unknown_devices[n] else nodes.healthy_devices[n] for n in self.nodes.tolist()]
        for row, i in zip(self._rows[here].tolist(), self._at[here].tolist(), strict=True):
            free[i] = -1 if free[i] < 0 or devices[row] < 0 else free[i] & ~devices[row]
        out = np.full(len(free), np.iinfo(np.int64).max)
        for i, n in enumerate(self.nodes.tolist()):
            if len(nodes.groups[n]) > 1:
                out[i] = 0 if free[i] < 0 else sum((free[i] & m).bit_count() // g for m in nodes.groups[n])
        return out


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
