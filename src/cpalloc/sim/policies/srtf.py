"""Shortest remaining time first, a preemptive oracle: it knows how long jobs will run, and preemption loses no work."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field

from cpalloc.problem.problem import Mode
from cpalloc.sim.policies.areas import one_area, team_areas
from cpalloc.sim.policies.base import Moves, News, Start, Traits
from cpalloc.sim.policies.consolidate import Consolidate
from cpalloc.sim.policies.placement import Placement, place
from cpalloc.sim.policies.room import Area, Room
from cpalloc.sim.state import State

Entry = tuple[int, int]
"""(seconds it still needs, job) for pending jobs, (instant at which it will end, job) for running ones."""


@dataclass(slots=True)
class _Lane:
    """The jobs of an area, pending and running, each sorted by what they still need; its GPUs in service."""

    area: Area
    gpus: int = 0
    pending: list[Entry] = field(default_factory=list)
    running: list[Entry] = field(default_factory=list)
    ends_s: dict[int, int] = field(default_factory=dict)

    def run(self, job: int, end_s: int) -> None:
        self.ends_s[job] = end_s
        insort(self.running, (end_s, job))

    def drop(self, job: int) -> None:
        entry = (self.ends_s.pop(job), job)
        del self.running[bisect_left(self.running, entry)]


class Srtf:
    """At every round each area's GPUs are promised to its jobs in order of the seconds they still need.

    Jobs the promise does not reach are preempted, and pay their restart cost when they go on; jobs it reaches are
    started where they can be placed. GPUs are counted, not nodes: what does not fit for fragmentation waits, its GPUs
    kept for it. Of equal jobs the pending one is first. These are the rules of the replays published with the Helios
    traces, which step second by second: therefore a round that preempts is followed by another a second later.

    Parameters
    ----------
    placement : Placement, optional
        Default: consolidated.
    partitioned : bool
        Every team has its own nodes.
    """

    def __init__(self, placement: Placement | None = None, *, partitioned: bool = False, name: str = "srtf") -> None:
        self._name = name
        self._placement = placement or Consolidate()
        self._partitioned = partitioned
        self._lanes: list[_Lane] = []
        self._lane_of_leaf: list[int] = []

    @property
    def name(self) -> str:
        """As given."""
        return self._name

    @property
    def traits(self) -> Traits:
        """No protection, and no work is lost."""
        return Traits(protects=False, suspends=True)

    def begin(self, state: State) -> None:
        """Lay out the areas."""
        self._placement.prepare(state)
        areas, self._lane_of_leaf = (team_areas if self._partitioned else one_area)(state)
        self._lanes = [_Lane(area) for area in areas]
        self._count_gpus()

    def decide(self, state: State, news: News) -> Moves:
        """Decide for the areas something has happened to."""
        touched = self._read(state, news)
        room = Room(state)
        starts: list[Start] = []
        preempts: list[int] = []
        for number in sorted(touched):
            lane = self._lanes[number]
            if lane.pending:
                chosen, stopped = _promise(state, lane)
                _preempt(state, room, lane, stopped)
                starts += self._start(state, room, lane, chosen)
                preempts += stopped
        return Moves(starts=starts, preempts=preempts, wake_s=state.now_s + 1 if preempts else -1)

    def _count_gpus(self) -> None:
        for lane in self._lanes:
            lane.gpus = lane.area.in_service_gpus()

    def _read(self, state: State, news: News) -> set[int]:
        lanes = self._lanes
        touched: set[int] = set()
        if news.capacity_changed:
            self._count_gpus()
            touched.update(range(len(lanes)))
        for job in news.left:
            number = self._lane_of_leaf[state.jobs.leaf[job]]
            lanes[number].drop(job)
            touched.add(number)
        for job in news.arrived:
            number = self._lane_of_leaf[state.jobs.leaf[job]]
            insort(lanes[number].pending, (state.needed_s(job), job))
            touched.add(number)
        return touched

    def _start(self, state: State, room: Room, lane: _Lane, chosen: list[Entry]) -> list[Start]:
        starts = []
        for entry in chosen:
            needed_s, job = entry
            places = place(self._placement, state, room, lane.area, job)
            if places is not None:
                room.take(places)
                del lane.pending[bisect_left(lane.pending, entry)]
                lane.run(job, state.now_s + needed_s)
                starts.append(Start(job, Mode.ALLOCATED, places))
        return starts


def _promise(state: State, lane: _Lane) -> tuple[list[Entry], list[int]]:
    """Pending jobs that the GPUs of the area reach, and running ones that they don't."""
    size, now_s, left = state.jobs.size, state.now_s, lane.gpus
    chosen: list[Entry] = []
    stopped: list[int] = []
    at = 0
    for entry in lane.pending:
        needed_s, job = entry
        while at < len(lane.running) and lane.running[at][0] - now_s < needed_s:
            left = _keep(size[lane.running[at][1]], lane.running[at][1], left, stopped)
            at += 1
        if not left:
            break
        if size[job] <= left:
            left -= size[job]
            chosen.append(entry)
    for _, job in lane.running[at:]:
        left = _keep(size[job], job, left, stopped)
    return chosen, stopped


def _keep(gpus: int, job: int, left: int, stopped: list[int]) -> int:
    """What is left for others when a running job keeps its GPUs, or is stopped as too few are left."""
    if gpus <= left:
        return left - gpus
    stopped.append(job)
    return left


def _preempt(state: State, room: Room, lane: _Lane, stopped: list[int]) -> None:
    for job in stopped:
        room.give(state.places[job])
        lane.drop(job)
