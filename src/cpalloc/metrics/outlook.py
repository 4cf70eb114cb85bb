"""What nodes can hold at a later instant, beside the allocated work that is still there and what is promised."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np

from cpalloc.metrics.sparing import Sparing, Yielding
from cpalloc.metrics.work import Work
from cpalloc.problem.problem import BoolArray, Decision, Hold, IntArray, Problem


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
        """Mark the GPUs of a promise as promised, and whom it relies on as spared."""
        np.add.at(self.promised, np.array(hold.nodes, dtype=np.int64), np.array(hold.gpus, dtype=np.int64))
        if hold.relies_on:
            self._relied[hold.job] = hold.relies_on

    def unbook(self, hold: Hold) -> None:
        """Take :meth:`book` back."""
        np.subtract.at(self.promised, np.array(hold.nodes, dtype=np.int64), np.array(hold.gpus, dtype=np.int64))
        self._relied.pop(hold.job, None)

    def over(self, nodes: IntArray, spared: frozenset[int] = frozenset()) -> Nearby:
        """The outlook of some nodes, if budgets also spare some jobs."""
        return Nearby(self, nodes, spared)


@dataclass(frozen=True, slots=True)
class Fit:
    """An instant at which nodes surely hold a gang, and the jobs that budgets have to spare for that."""

    at_us: int
    spared: frozenset[int]


class Nearby:
    """Some nodes, and the allocated work on them with its releases.

    Attributes
    ----------
    nodes : IntArray, shape (n,)
    instants : IntArray, ascending
        Now, and when some of the work may leave.
    """

    def __init__(self, outlook: Outlook, nodes: IntArray, spared: frozenset[int] = frozenset()) -> None:
        self._outlook, self._stays, self.nodes = outlook, outlook.work.stays, nodes
        here = outlook.work.over(nodes, outlook.relied | spared)
        self._rows, self._at = here.rows, here.at
        self._surely_us, self._hopefully_us = here.surely_us, here.hopefully_us
        self.instants: IntArray = here.instants

    def slots(self, job: int, at_us: int | IntArray, *, hopefully: bool = False) -> IntArray:
        """Replicas of a job that each node can hold at an instant (one for all nodes, or one each); shape (n,).

        ``hopefully``: if budgets spare all whom they may, together or not.
        """
        return self._slots(job, at_us, self._hopefully_us if hopefully else self._surely_us)

    def room(self, at_us: int, *, hopefully: bool = False) -> IntArray:
        """GPUs of each node that are neither held at an instant nor promised; shape (n,)."""
        return self._room((self._hopefully_us if hopefully else self._surely_us) > at_us)

    def in_doubt(self, at_us: int) -> list[tuple[int, int, int]]:
        """(job, node, GPUs) of the work that is there at an instant, unless its budget spares it."""
        rows = self._doubtful(at_us)
        own = self._rows[rows]
        triples = np.stack((self._stays.job[own], self.nodes[self._at[rows]], self._stays.gpus[own]), axis=1)
        return [(job, node, gpus) for job, node, gpus in triples.tolist()]

    def earliest(self, job: int, before_us: int | None = None, most: IntArray | None = None) -> Fit | None:
        """The earliest instant found (before one, if it is given) at which the nodes surely hold the whole gang.

        ``most``: replicas that count on each node, shape (n,), as many as the gang has in all.
        """
        instants: list[int] = self.instants.tolist()
        high = (len(instants) if before_us is None else bisect_left(instants, before_us)) - 1
        if high < 0 or not self._holds(job, instants[high], self._hopefully_us, most):
            return None
        low = 0
        first = high
        while low < first:
            mid = (low + first) // 2
            if self._holds(job, instants[mid], self._hopefully_us, most):
                first = mid
            else:
                low = mid + 1
        # Before that nothing is hoped for; whom budgets can spare together is looked for from there on.
        if (spared := self._spared(job, instants[low], most)) is not None:
            return Fit(instants[low], spared)
        if low == high or (last := self._spared(job, instants[high], most)) is None:
            return None
        low, fit = low + 1, Fit(instants[high], last)
        while low < high:
            mid = (low + high) // 2
            if (spared := self._spared(job, instants[mid], most)) is not None:
                high, fit = mid, Fit(instants[mid], spared)
            else:
                low = mid + 1
        return fit

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

    def needed(self, job: int, count: IntArray, at_us: int, spared: frozenset[int]) -> frozenset[int]:
        """Those of some spared jobs without whom a node would not hold ``count`` replicas at an instant."""
        if not spared:
            return spared
        rows = np.flatnonzero((self._hopefully_us <= at_us) & (count[self._at] > 0))
        own = self._stays.job[self._rows[rows]]
        there = (self._outlook.work.until_us(own) > at_us) & np.isin(own, list(spared))
        if not there.any():
            return frozenset()
        sparing = self._sparing(job, rows[there], at_us, count)
        sparing.keep_needed()
        everybody, on = frozenset[int](own[there].tolist()), self._stays.job[self._rows]
        back = np.isin(on, list(everybody - sparing.gone))
        leaves_us = np.where(back, self._outlook.work.until_us(on), self._surely_us)
        return sparing.gone if (self._slots(job, at_us, leaves_us) >= count).all() else everybody

    def _spared(self, job: int, at_us: int, most: IntArray | None) -> frozenset[int] | None:
        """Jobs that budgets can spare together so that the nodes hold a gang at an instant; None if none are found."""
        if self._holds(job, at_us, self._surely_us, most):
            return frozenset()
        if not self._holds(job, at_us, self._hopefully_us, most):
            return None
        sparing = self._sparing(job, self._doubtful(at_us), at_us, most)
        need = int(self._outlook.problem.jobs.replicas[job])
        if not sparing.keep_within(self._outlook.work.spare(self._outlook.relied), need):
            return None
        gone = np.isin(self._stays.job[self._rows], list(sparing.gone))
        leaves_us = np.where(gone, self._hopefully_us, self._surely_us)
        return sparing.gone if self._holds(job, at_us, leaves_us, most) else None

    def _holds(self, job: int, at_us: int, leaves_us: IntArray, most: IntArray | None) -> bool:
        slots = self._slots(job, at_us, leaves_us)
        if most is not None:
            slots = np.minimum(slots, most)
        return int(slots.sum()) >= int(self._outlook.problem.jobs.replicas[job])

    def _doubtful(self, at_us: int) -> IntArray:
        """Rows of the work that is there at an instant, unless its budget spares it."""
        return np.flatnonzero((self._hopefully_us <= at_us) & (at_us < self._surely_us))

    def _sparing(self, job: int, rows: IntArray, at_us: int, most: IntArray | None) -> Sparing:
        """The jobs of some rows, all gone; GPUs alone count."""
        jobs, nodes = self._outlook.problem.jobs, self._outlook.problem.nodes
        rows = rows[np.argsort(self._stays.job[self._rows[rows]], kind="stable")]
        who, of = np.unique(self._stays.job[self._rows[rows]], return_inverse=True)
        at, gpus = self._at[rows], self._stays.gpus[self._rows[rows]]
        each = np.full(len(self.nodes), jobs.gpus_per_replica[job])
        if jobs.exclusive[job]:
            each = np.maximum(each, nodes.healthy[self.nodes])
        cap = np.full(len(self.nodes), jobs.max_per_node[job] or jobs.replicas[job])
        gone = self._surely_us.copy()
        gone[rows] = at_us
        room = self._room(gone > at_us)
        end_us = self._outlook.work.spared_us(who)
        yielding = Yielding(who, jobs.size[who], jobs.leaf[who], end_us, of, at, gpus)
        return Sparing(yielding, room, each, cap if most is None else np.minimum(cap, most))

    def _slots(self, job: int, at_us: int | IntArray, leaves_us: IntArray) -> IntArray:
        problem, jobs, nodes = self._outlook.problem, self._outlook.problem.jobs, self.nodes
        stays, promised = self._stays, self._outlook.promised[nodes]
        here = leaves_us > (at_us if isinstance(at_us, int) else at_us[self._at])
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

    def _room(self, here: BoolArray) -> IntArray:
        """GPUs of each node beside the work that is ``here``, shape (W,), and what is promised; shape (n,)."""
        held = self._sum(self._at[here], self._stays.gpus[self._rows[here]])
        room: IntArray = self._outlook.problem.nodes.healthy[self.nodes] - held - self._outlook.promised[self.nodes]
        return room

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
