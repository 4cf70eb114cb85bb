"""Whom budgets spare so that a gang has room.

Work past its protection, of a budget over its share, leaves for a promise as long as the budget keeps its claim without
all those it gives up (policy section 6). Who of them leaves is chosen for each promise: with s_n slots on node n once
the jobs G ⊆ S are gone, of all S that may be,

    Σ_n s_n(G) ≥ R   and   Σ_{j ∈ G of leaf ℓ} size_j ≤ spare_ℓ for every leaf.

That is a knapsack with several sides, and mostly a small one. At first all of S are gone, and come back one after the
other, those first who cost the fewest slots for each of the GPUs that their budget needs back. At a dead end the last
one is gone for good, which finds whatever there is if the dead ends are few.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cpalloc.problem.problem import BoolArray, IntArray

MOST_DEAD_ENDS = 20
"""Dead ends after which nothing is found."""

ONE_BY_ONE = 32
"""So many come back one by one; of more, several at a time."""


@dataclass(frozen=True, slots=True)
class Yielding:
    """Work on some nodes that may be spared.

    Attributes
    ----------
    jobs, size, leaf, end_us : IntArray, shape (S,)
        The jobs, their GPUs wherever they are, their leaves, and when they may be spared.
    who, at, gpus : IntArray, shape (W,)
        Their GPUs node by node: whose they are (an index of ``jobs``, ascending), and the position of the node.
    """

    jobs: IntArray
    size: IntArray
    leaf: IntArray
    end_us: IntArray
    who: IntArray
    at: IntArray
    gpus: IntArray


class Sparing:
    """Jobs of which all are gone at first. Only GPUs count.

    Parameters
    ----------
    room : IntArray, shape (n,)
        GPUs of each node with all of them gone; changed here.
    gpus, most : IntArray, shape (n,)
        What a replica needs of each node, and how many of them count there.
    """

    def __init__(self, yielding: Yielding, room: IntArray, gpus: IntArray, most: IntArray) -> None:
        self._yielding, self._room, self._gpus, self._most = yielding, room, gpus, most
        self._gone: BoolArray = np.ones(len(yielding.jobs), dtype=bool)
        self._first: list[int] = np.searchsorted(yielding.who, np.arange(len(yielding.jobs) + 1)).tolist()

    @property
    def gone(self) -> frozenset[int]:
        """The jobs that are gone."""
        return frozenset(self._yielding.jobs[self._gone].tolist())

    def keep_within(self, spare: IntArray, need: int) -> bool:
        """Let jobs come back until no leaf gives up more GPUs than it can spare and slots are left for the replicas.

        ``spare``: shape (L,). False where no such choice is found.
        """
        jobs = self._yielding
        beyond = np.bincount(jobs.leaf, jobs.size, minlength=len(spare)).astype(np.int64) - spare
        if self._needs_more(beyond, spare, need):
            return False
        free, came = np.ones(len(jobs.jobs), dtype=bool), list[tuple[list[int], list[int]]]()
        barred: list[int] = []
        dead_ends = 0
        while (beyond > 0).any():
            back = self._next(free, beyond, need)
            if back:
                self._move(back, gone=False)
                if len(back) > 1 and self._total() < need:  # together they cost more than each alone
                    self._move(back[1:], gone=True)
                    back = back[:1]
                np.subtract.at(beyond, jobs.leaf[back], jobs.size[back])
                came.append((back, barred))
                barred = []
                continue
            dead_ends += 1
            if not came or dead_ends > MOST_DEAD_ENDS:
                return False
            free[barred] = True
            last, barred = came.pop()
            self._move(last, gone=True)
            np.add.at(beyond, jobs.leaf[last], jobs.size[last])
            free[last] = False
            barred.extend(last)
        return True

    def keep_needed(self) -> None:
        """Let all those come back who cost no slot that counts, who would be spared last first."""
        while len(able := np.flatnonzero(self._gone & (self._loss() == 0))):
            jobs = self._yielding
            self._move([int(able[np.lexsort((-jobs.jobs[able], -jobs.end_us[able]))[0]])], gone=False)

    def _needs_more(self, beyond: IntArray, spare: IntArray, need: int) -> bool:
        """Whether more GPUs have to go than budgets can spare, each of them or all together, were it parts of jobs."""
        jobs = self._yielding
        scarce = np.flatnonzero(beyond > 0)
        for leaves in [scarce, *(scarce[i : i + 1] for i in range(len(scarce) if len(scarce) > 1 else 0))]:
            rows = np.isin(jobs.leaf[jobs.who], leaves)
            held = np.bincount(jobs.at[rows], jobs.gpus[rows], minlength=len(self._room)).astype(np.int64)
            room = self._room - held
            slots = self._slots(room, slice(None))
            extra = need - int(slots.sum())
            most = self._slots(self._room, slice(None)) - slots
            # The first slot more on a node takes what its room lacks, every other one all its GPUs.
            first, some = (slots + 1) * self._gpus - room, most > 0
            costs = np.concatenate((first[some], np.repeat(self._gpus[some], most[some] - 1)))
            if extra > 0 and int(np.sort(costs)[:extra].sum()) > int(spare[leaves].sum()):
                return True
        return False

    def _next(self, free: BoolArray, beyond: IntArray, need: int) -> list[int]:
        """Who comes back next; nobody where some budget does not get back enough, whoever else does."""
        jobs, loss = self._yielding, self._loss()
        able = np.flatnonzero(self._gone & free & (beyond[jobs.leaf] > 0) & (loss <= self._total() - need))
        if (np.bincount(jobs.leaf[able], jobs.size[able], minlength=len(beyond)) < beyond).any():
            return []
        price = loss[able] / np.minimum(jobs.size, beyond[jobs.leaf])[able]
        first = able[np.lexsort((-jobs.jobs[able], -jobs.end_us[able], price))]
        back: list[int] = first[: max(1, len(able) // ONE_BY_ONE)].tolist()
        return back

    def _total(self) -> int:
        return int(self._slots(self._room, slice(None)).sum())

    def _slots(self, room: IntArray, at: IntArray | slice) -> IntArray:
        slots: IntArray = np.minimum(np.maximum(room, 0) // self._gpus[at], self._most[at])
        return slots

    def _loss(self) -> IntArray:
        """Slots that each job costs if it comes back, alone; shape (S,)."""
        jobs, room = self._yielding, self._room[self._yielding.at]
        lost = self._slots(room, jobs.at) - self._slots(room - jobs.gpus, jobs.at)
        loss: IntArray = np.bincount(jobs.who, lost, minlength=len(jobs.jobs)).astype(np.int64)
        return loss

    def _move(self, who: list[int], *, gone: bool) -> None:
        for j in who:
            rows = slice(self._first[j], self._first[j + 1])
            change = self._yielding.gpus[rows]
            self._room[self._yielding.at[rows]] += change if gone else -change  # each node once
        self._gone[who] = gone
