"""The least delay that promises to a few gangs can have, by trying everything."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from cpalloc.metrics.outlook import Outlook
from cpalloc.models.objectives.delay import places
from cpalloc.problem.problem import US, Action, Decision, IntArray, Mode, Problem


def room_for(p: Problem, job: int, room: IntArray) -> bool:
    """Whether there are as many GPUs as a gang needs in one of the domains it may use."""
    g, replicas = int(p.jobs.gpus_per_replica[job]), int(p.jobs.replicas[job])
    return any(int((np.maximum(room[nodes], 0) // g).sum()) >= replicas for nodes in places(p, job))


@dataclass(frozen=True)
class Way:
    """One way to hold a gang: so many GPUs of each node from an instant on."""

    job: int
    at_us: int
    cost: int
    gpus: IntArray


def spread(most: Sequence[int], replicas: int) -> Iterator[tuple[int, ...]]:
    """Every way to have so many replicas on nodes that hold so many at most."""
    if not most:
        yield from [()] if replicas == 0 else []
        return
    for count in range(min(most[0], replicas) + 1):
        yield from ((count, *rest) for rest in spread(most[1:], replicas - count))


class Best:
    """The least delay there is of some gangs, by trying everything.

    Each is held from an instant on, or can start at once beside all promises, or has no room beside them, ever. Nobody
    is promised what it could have at once. ``spared``: jobs that leave as soon as their budgets may spare them.
    """

    def __init__(self, p: Problem, d: Decision, jobs: Sequence[int], spared: frozenset[int] = frozenset()) -> None:
        every = np.arange(len(p.nodes.names))
        nearby = Outlook(p, d).over(every, spared)
        self.p, self.jobs = p, [j for j in jobs if d.action[j] == Action.WAIT]
        self.room = {t: nearby.room(t) for t in nearby.instants.tolist()}
        self.now, self.last = self.room[p.now_us], self.room[int(nearby.instants[-1])]
        self.ways = {j: sorted(self._ways(j), key=lambda way: way.cost) for j in self.jobs}
        self.least = sum(self._window(j) for j in self.jobs) + 1
        self._try(0, [], (), ())

    def _window(self, job: int) -> int:
        return int(self.p.jobs.size[job]) * self.p.policy.window_s

    def _ways(self, job: int) -> Iterator[Way]:
        jobs, now_us = self.p.jobs, self.p.now_us
        g = int(jobs.gpus_per_replica[job])
        for nodes in places(self.p, job):
            for at_us, room in self.room.items():
                for counts in spread((room[nodes] // g).tolist(), int(jobs.replicas[job])) if at_us > now_us else ():
                    gpus = np.zeros_like(room)
                    gpus[nodes] = np.array(counts) * g
                    yield Way(job, at_us, int(jobs.size[job]) * (at_us - now_us) // US, gpus)

    def _taken(self, held: Sequence[Way], but: int = -1) -> IntArray:
        return sum((way.gpus for way in held if way.job != but), np.zeros_like(self.now))

    def _try(self, i: int, held: Sequence[Way], able: tuple[int, ...], none: tuple[int, ...]) -> None:
        cost = sum(way.cost for way in held) + sum(self._window(j) for j in none)
        left = self.now - self._taken(held)
        if cost >= self.least or not all(room_for(self.p, j, left) for j in able):
            return
        if i == len(self.jobs):
            never = not any(room_for(self.p, j, self.last - self._taken(held)) for j in none)
            if never and not any(room_for(self.p, w.job, self.now - self._taken(held, but=w.job)) for w in held):
                self.least = cost
            return
        job = self.jobs[i]
        self._try(i + 1, held, (*able, job), none)
        for way in self.ways[job]:
            if cost + way.cost >= self.least:
                break
            among = [*held, way]
            if all(
                (self._taken([w for w in among if w.at_us <= t]) <= self.room[t]).all()
                for t in {w.at_us for w in among}
            ):
                self._try(i + 1, among, able, none)
        self._try(i + 1, held, able, (*none, job))


def least_of_all(p: Problem, d: Decision, jobs: Sequence[int]) -> int:
    """The least delay there is, whomever budgets spare of all they can spare together."""
    work = Outlook(p, d).work
    runs = np.flatnonzero(d.mode == Mode.ALLOCATED)
    may = runs[work.spared_us(runs) < work.until_us(runs)].tolist()
    some = (frozenset(spared) for n in range(len(may) + 1) for spared in combinations(may, n))
    return min(Best(p, d, jobs, spared).least for spared in some if (work.spare(spared) >= 0).all())
