"""The state of the cluster while a decision is built or judged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence

import numpy as np

from cpalloc.problem.problem import Action, Decision, IntArray, JobState, NodeState, Problem, Replica


class Usage:
    """Free GPUs, devices and resources per node, starting from the status quo (forced ends have left).

    Attributes
    ----------
    free_gpus : IntArray, shape (N,)
        GPUs a further start may take; those of an exclusive job's nodes count as taken.
    free_devices : list of int
        The same as bitmasks; -1 where a node holds unknown devices.
    free_resources : IntArray, shape (N, R)
        Resources left.
    running_on : IntArray, shape (N,)
        Jobs present: kept, stopping and started ones. A start with exclusive nodes needs 0.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.free_gpus: IntArray = problem.nodes.free_gpus.copy()
        self.free_devices: list[int] = list(problem.nodes.free_devices)
        self.free_resources: IntArray = problem.nodes.free_resources.copy()
        self.running_on: IntArray = np.zeros(len(problem.nodes.names), dtype=np.int64)
        self._rows: dict[int, list[int]] = defaultdict(list)
        self._shut: dict[int, tuple[int, int]] = {}
        """Nodes taken whole by a start with exclusive nodes: the GPUs and devices it leaves unused there."""
        for row, job in enumerate(problem.held.job.tolist()):
            self._rows[job].append(row)
        np.add.at(self.running_on, problem.held.node, 1)
        state = problem.jobs.state
        for job in np.flatnonzero((state == JobState.FIXED) | (state == JobState.STOPPING)).tolist():
            for n in {rep.node for rep in problem.jobs.placement[job] if rep.node >= 0}:
                self.running_on[n] += 1

    @classmethod
    def of(cls, problem: Problem, decision: Decision, without: Collection[int] = ()) -> Usage:
        """The state after a decision, with the starts in ``without`` taken away."""
        usage = cls(problem)
        gone = (decision.action == Action.PREEMPT) & (problem.jobs.state == JobState.EVICTABLE)
        for job in np.flatnonzero(gone).tolist():
            usage.evict(job)
        for job, placement in decision.placement.items():
            if job not in without:
                usage.place(job, placement)
        return usage

    def evict(self, job: int) -> None:
        """An evictable job leaves."""
        self._move(job, 1)

    def restore(self, job: int) -> None:
        """An evictable job that was evicted returns; its GPUs must be free (:meth:`can_restore`)."""
        self._move(job, -1)

    def can_restore(self, job: int) -> bool:
        """Whether an evicted job's GPUs and resources are all free."""
        held = self.problem.held
        for row in self._rows[job]:
            n = int(held.node[row])
            mask = held.devices[row]
            if (
                n in self._shut
                or self.free_gpus[n] < held.gpus[row]
                or (self.free_resources[n] < held.resources[row]).any()
            ):
                return False
            if mask >= 0 and self.free_devices[n] >= 0 and mask & ~self.free_devices[n]:
                return False
        return True

    def _move(self, job: int, sign: int) -> None:
        held = self.problem.held
        for row in self._rows[job]:
            n, mask = int(held.node[row]), held.devices[row]
            gpus, devices = self._shut.get(n, (int(self.free_gpus[n]), self.free_devices[n]))
            gpus += sign * int(held.gpus[row])
            if devices >= 0 and mask >= 0:
                devices = devices | mask if sign > 0 else devices & ~mask
            if n in self._shut:
                self._shut[n] = gpus, devices
            else:
                self.free_gpus[n], self.free_devices[n] = gpus, devices
            self.free_resources[n] += sign * held.resources[row]
            self.running_on[n] -= sign

    def place(self, job: int, placement: Sequence[Replica]) -> None:
        """A start comes."""
        self._put(job, placement, 1)

    def remove(self, job: int, placement: Sequence[Replica]) -> None:
        """A start goes again."""
        self._put(job, placement, -1)

    def _put(self, job: int, placement: Sequence[Replica], sign: int) -> None:
        need = self.problem.jobs.resources[job]
        exclusive = bool(self.problem.jobs.exclusive[job])
        touched = {rep.node for rep in placement}
        if exclusive and sign < 0:
            for n in touched:
                self.free_gpus[n], self.free_devices[n] = self._shut.pop(n)
        for rep in placement:
            n = rep.node
            self.free_gpus[n] -= sign * rep.gpus
            self.free_resources[n] -= sign * need
            if self.free_devices[n] >= 0 and rep.devices >= 0:
                mask = self.free_devices[n]
                self.free_devices[n] = mask & ~rep.devices if sign > 0 else mask | rep.devices
        for n in touched:
            self.running_on[n] += sign
            if exclusive and sign > 0:
                self._shut[n] = (int(self.free_gpus[n]), self.free_devices[n])
                self.free_gpus[n] = 0
                self.free_devices[n] = min(self.free_devices[n], 0)

    def slots(self, job: int, node: int) -> int:
        """Replicas of a pending job that fit on a node now."""
        problem, jobs = self.problem, self.problem.jobs
        if not problem.eligibility[jobs.eligibility[job], node]:
            return 0
        if jobs.exclusive[job] and self.running_on[node] > 0:
            return 0
        g = int(jobs.gpus_per_replica[job])
        if jobs.same_gpu_group[job]:
            free = self.free_devices[node]
            if free < 0:
                return 0
            count = sum((free & mask).bit_count() // g for mask in problem.nodes.groups[node])
        else:
            count = int(self.free_gpus[node]) // g
        for r, need in enumerate(jobs.resources[job].tolist()):
            if need:
                count = min(count, int(self.free_resources[node, r]) // need)
        if jobs.max_per_node[job]:
            count = min(count, int(jobs.max_per_node[job]))
        return max(0, count)

    def slots_all(self, job: int) -> IntArray:
        """:meth:`slots` of every node; shape (N,)."""
        problem, jobs = self.problem, self.problem.jobs
        eligible = problem.eligibility[jobs.eligibility[job]]
        if jobs.exclusive[job] or jobs.same_gpu_group[job]:
            out = np.zeros(len(eligible), dtype=np.int64)
            for n in np.flatnonzero(eligible).tolist():
                out[n] = self.slots(job, n)
            return out
        out = self.free_gpus // int(jobs.gpus_per_replica[job])
        for r, need in enumerate(jobs.resources[job].tolist()):
            if need:
                out = np.minimum(out, self.free_resources[:, r] // need)
        if jobs.max_per_node[job]:
            out = np.minimum(out, int(jobs.max_per_node[job]))
        return np.where(eligible, np.maximum(out, 0), 0)

    def best_domain(self, job: int) -> tuple[int, int] | None:
        """(pool, domain of the required level) with room for the whole gang, the tightest first; None if none has."""
        jobs, problem = self.problem.jobs, self.problem
        slots = self.slots_all(job)
        width = len(problem.pool_names) or 1
        key = problem.topology.domain_of[int(jobs.required_level[job])] * width + problem.nodes.pool
        room = np.bincount(key, weights=slots).astype(np.int64) if len(key) else np.zeros(0, dtype=np.int64)
        fitting = np.flatnonzero(room >= int(jobs.replicas[job]))
        if not len(fitting):
            return None
        best = min(fitting.tolist(), key=lambda k: (int(room[k]), k))
        return best % width, best // width

    def fits(self, job: int) -> bool:
        """Whether some domain has room for the whole gang."""
        return self.best_domain(job) is not None

    def choose_devices(self, job: int, node: int, count: int) -> list[Replica]:
        """Places for ``count`` replicas of a start on a node; nothing is taken yet (:meth:`place`).

        Lowest devices, a whole replica inside the fullest group that holds it; where no group does, over any devices of
        the node, unless the job is bound to one group. Counts (devices -1) where devices are unknown.

        Raises
        ------
        ValueError
            When that many do not fit (:meth:`slots` says how many do).
        """
        g = int(self.problem.jobs.gpus_per_replica[job])
        free = self.free_devices[node]
        if free < 0:
            return [Replica(node, g, -1) for _ in range(count)]
        out = []
        for _ in range(count):
            whole = [p for p in (free & m for m in self.problem.nodes.groups[node]) if p.bit_count() >= g]
            source = min(whole, key=lambda p: (p.bit_count(), p)) if whole else free
            if source.bit_count() < g or (self.problem.jobs.same_gpu_group[job] and not whole):
                raise ValueError(f"{self.problem.nodes.names[node]} has no room for {count} replicas of {g} GPUs")
            mask = 0
            for _ in range(g):
                bit = source & -source
                mask, source = mask | bit, source & ~bit
            free &= ~mask
            out.append(Replica(node, g, mask))
        return out

    def clear_company(self) -> None:
        """Forget who runs where: for asking what an empty cluster would hold."""
        self.running_on[:] = 0

    def in_service(self, node: int) -> bool:
        """Whether a node takes new work."""
        return bool(self.problem.nodes.state[node] == NodeState.READY)
