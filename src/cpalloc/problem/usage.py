"""The state of the cluster while a decision is built or judged."""

from __future__ import annotations

import copy
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence

import numpy as np

from cpalloc.problem.problem import Action, BoolArray, Decision, IntArray, JobState, Problem, Replica


def place_kinds(problem: Problem) -> list[int]:
    """A number for every job, J of them, the same for two of which one could be wherever the other could: what
    :meth:`Usage.slots_all`, domains and pools look at."""
    return problem.once("place kinds", lambda: _numbered(problem))


def _numbered(problem: Problem) -> list[int]:
    jobs, known = problem.jobs, dict[object, int]()
    columns = (
        jobs.eligibility,
        jobs.replicas,
        jobs.gpus_per_replica,
        jobs.max_per_node,
        jobs.exclusive,
        jobs.same_gpu_group,
        jobs.required_level,
    )
    rows = zip(*(column.tolist() for column in columns), map(bytes, jobs.resources), strict=True)
    return [known.setdefault(row, len(known)) for row in rows]


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
        self._rows: dict[int, list[tuple[int, int, int, int]]] = defaultdict(list)
        self._exclusive: list[bool] = problem.jobs.exclusive.tolist()
        self._started_on: Counter[int] = Counter()
        self._lone_on: Counter[int] = Counter()
        # Nodes on which a job is alone by right: the GPUs and devices that nobody else may take while it is there.
        self._shut: dict[int, tuple[int, int]] = {}
        held = problem.held
        columns = zip(held.job.tolist(), held.node.tolist(), held.gpus.tolist(), held.devices, strict=True)
        there: list[tuple[int, int]] = []
        for row, (job, n, gpus, mask) in enumerate(columns):
            self._rows[job].append((row, n, gpus, mask))
            there.append((job, n))
        state = problem.jobs.state
        for job in np.flatnonzero((state == JobState.FIXED) | (state == JobState.STOPPING)).tolist():
            there += [(job, n) for n in {rep.node for rep in problem.jobs.placement[job]} if n >= 0]
        nodes = np.array([n for _, n in there], dtype=np.int64)
        self.running_on: IntArray = np.bincount(nodes, minlength=len(problem.nodes.names))
        for job, n in there:
            if self._exclusive[job]:
                self._shuts(n)

    @classmethod
    def status_quo(cls, problem: Problem) -> Usage:
        """The state if nothing is decided, one's own to go on from."""
        return problem.once("status quo", lambda: cls(problem)).copy()

    @classmethod
    def of(cls, problem: Problem, decision: Decision, without: Collection[int] = ()) -> Usage:
        """The state after a decision, with the starts in ``without`` taken away."""
        usage = cls.status_quo(problem)
        gone = (decision.action == Action.PREEMPT) & (problem.jobs.state == JobState.EVICTABLE)
        for job in np.flatnonzero(gone).tolist():
            usage.evict(job)
        for job, placement in decision.placement.items():
            if job not in without:
                usage.place(job, placement)
        return usage

    def copy(self) -> Usage:
        """The same state, to go on from without touching this one."""
        other = copy.copy(self)  # what the problem says is shared
        other.free_gpus, other.free_resources = self.free_gpus.copy(), self.free_resources.copy()
        other.free_devices, other.running_on = list(self.free_devices), self.running_on.copy()
        other._started_on, other._lone_on = self._started_on.copy(), self._lone_on.copy()
        other._shut = dict(self._shut)
        return other

    def evict(self, job: int) -> None:
        """An evictable job leaves."""
        self._move(job, 1)

    def restore(self, job: int) -> None:
        """An evictable job that was evicted returns; its GPUs must be free (:meth:`can_restore`)."""
        self._move(job, -1)

    def held_by(self, job: int) -> Iterator[tuple[int, int, int]]:
        """(row of ``Problem.held``, node, GPUs) of an evictable job."""
        return ((row, n, gpus) for row, n, gpus, _ in self._rows[job])

    @property
    def all_open(self) -> bool:
        """Whether no job has a node to itself."""
        return not self._shut

    def can_restore(self, job: int) -> bool:
        """Whether an evicted job's GPUs and resources are all free, and no start and it would keep each other away."""
        resources = self.problem.held.resources
        for row, n, gpus, mask in self._rows[job]:
            if self._started_on[n] and (self._exclusive[job] or self._lone_on[n]):
                return False
            have, devices = self._shut.get(n, (int(self.free_gpus[n]), self.free_devices[n]))
            if have < gpus or (self.free_resources[n] < resources[row]).any():
                return False
            if mask >= 0 and devices >= 0 and mask & ~devices:
                return False
        return True

    def _move(self, job: int, sign: int) -> None:
        resources = self.problem.held.resources
        for row, n, gpus, mask in self._rows[job]:
            if sign > 0:
                self._goes(job, n)
            self._free(n, sign * gpus, mask)
            if resources.shape[1]:
                self.free_resources[n] += sign * resources[row]
            if sign < 0:
                self._comes(job, n)

    def place(self, job: int, placement: Sequence[Replica]) -> None:
        """A start comes."""
        self._put(job, placement, 1)

    def remove(self, job: int, placement: Sequence[Replica]) -> None:
        """A start goes again."""
        self._put(job, placement, -1)

    def _put(self, job: int, placement: Sequence[Replica], sign: int) -> None:
        touched = {rep.node for rep in placement}
        for n in touched:
            self._started_on[n] += sign
            if sign < 0:
                self._goes(job, n)
        needs = self.problem.jobs.resources[job]
        for rep in placement:
            self._free(rep.node, -sign * rep.gpus, rep.devices)
            if len(needs):
                self.free_resources[rep.node] -= sign * needs
        for n in touched:
            if sign > 0:
                self._comes(job, n)

    def _free(self, n: int, gpus: int, mask: int) -> None:
        """Some GPUs become free (fewer than 0: are taken), for whoever may use the node."""
        have, devices = self._shut.get(n, (int(self.free_gpus[n]), self.free_devices[n]))
        if devices >= 0 and mask >= 0:
            devices = devices | mask if gpus > 0 else devices & ~mask
        if n in self._shut:
            self._shut[n] = have + gpus, devices
        else:
            self.free_gpus[n], self.free_devices[n] = have + gpus, devices

    def _comes(self, job: int, n: int) -> None:
        """A job is on a node now; the first that has it to itself shuts it."""
        self.running_on[n] += 1
        if self._exclusive[job]:
            self._shuts(n)

    def _shuts(self, n: int) -> None:
        """A job is on a node now that has it to itself."""
        self._lone_on[n] += 1
        if n not in self._shut:
            self._shut[n] = int(self.free_gpus[n]), self.free_devices[n]
            self.free_gpus[n], self.free_devices[n] = 0, min(self.free_devices[n], 0)

    def _goes(self, job: int, n: int) -> None:
        """A job is no longer on a node; the last that had it to itself opens it."""
        self.running_on[n] -= 1
        if self._exclusive[job]:
            self._lone_on[n] -= 1
            if not self._lone_on[n]:
                self.free_gpus[n], self.free_devices[n] = self._shut.pop(n)

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
        if jobs.exclusive[job]:
            eligible = eligible & (self.running_on == 0)
        g = int(jobs.gpus_per_replica[job])
        out = self._slots_in_groups(g, eligible) if jobs.same_gpu_group[job] else _divided(self.free_gpus, g)
        for r, need in enumerate(jobs.resources[job].tolist()):
            if need:
                out = np.minimum(out, self.free_resources[:, r] // need)
        if jobs.max_per_node[job]:
            out = np.minimum(out, int(jobs.max_per_node[job]))
        out = np.maximum(out, 0)
        out *= eligible
        return out

    def _slots_in_groups(self, g: int, among: BoolArray) -> IntArray:
        """Replicas of g GPUs inside single GPU groups of some nodes; 0 where devices are unknown; shape (N,)."""
        out = np.zeros(len(among), dtype=np.int64)
        known: dict[tuple[int, tuple[int, ...]], int] = {}  # most nodes are built alike and many are as full
        for n in np.flatnonzero(among).tolist():
            like = self.free_devices[n], self.problem.nodes.groups[n]
            if like not in known:
                free, groups = like
                known[like] = 0 if free < 0 else sum((free & mask).bit_count() // g for mask in groups)
            out[n] = known[like]
        return out

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
        for kept in (self._started_on, self._lone_on, self._shut):
            kept.clear()


def _divided(gpus: IntArray, each: int) -> IntArray:
    """``gpus // each``; shifted where that is the same, as divisions are what takes time on many nodes."""
    if each & (each - 1):
        return gpus // each
    return gpus >> (each.bit_length() - 1)
