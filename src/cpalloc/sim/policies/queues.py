"""Policies that only start: one queue per area, served in some order, without preemption."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable

from cpalloc.problem.problem import Mode
from cpalloc.sim.policies.areas import one_area, team_areas
from cpalloc.sim.policies.base import Moves, News, Start, Traits
from cpalloc.sim.policies.line import Line, shape_of
from cpalloc.sim.policies.placement import Placement, place
from cpalloc.sim.policies.room import Area, Room
from cpalloc.sim.state import JobStatus, State

Order = Callable[[State, int], int]
"""Where a pending job stands in its queue: small is first; ties by index, which is by submission."""


class QueuePolicy:
    """Serves one queue per area in order, everything allocated, nothing protected.

    Parameters
    ----------
    name : str
    order : Order
        Of a job when it becomes pending; a function of a module, so that it can be pickled.
    placement : Placement
    partitioned : bool
        Every team has its own nodes and its own queue.
    backfill : bool
        Whether jobs may overtake one that does not fit; otherwise it blocks all behind it.

    Notes
    -----
    A job that the nodes of its team could not hold if they were empty is left out of the queue: it waits for ever and
    blocks nobody.
    """

    def __init__(
        self, name: str, order: Order, placement: Placement, *, partitioned: bool = False, backfill: bool = False
    ) -> None:
        self._name = name
        self._order = order
        self._placement = placement
        self._partitioned = partitioned
        self._backfill = backfill
        self._areas: list[Area] = []
        self._area_of_leaf: list[int] = []
        self._lines: list[Line] = []
        self._able: dict[tuple[int, Hashable], bool] = {}

    @property
    def name(self) -> str:
        """As given."""
        return self._name

    @property
    def traits(self) -> Traits:
        """No protection."""
        return Traits(protects=False)

    def begin(self, state: State) -> None:
        """Lay out the areas."""
        self._placement.prepare(state)
        self._lay_out(state)

    def decide(self, state: State, news: News) -> Moves:
        """Start from the queues something has happened to."""
        if self._partitioned and news.budgets_changed and not state.workload.team_nodes:
            self._lay_out(state)
            self._enqueue(state, state.pending)
            touched: Iterable[int] = range(len(self._areas))
        else:
            self._enqueue(state, news.arrived)
            touched = range(len(self._areas)) if news.capacity_changed else self._touched(state, news)
        room = Room(state)
        return Moves(starts=[start for area in touched for start in self._serve(state, room, area)])

    def _lay_out(self, state: State) -> None:
        self._areas, self._area_of_leaf = (team_areas if self._partitioned else one_area)(state)
        self._lines = [Line() for _ in self._areas]
        self._able = {}

    def _touched(self, state: State, news: News) -> list[int]:
        leaf = state.jobs.leaf
        return sorted({self._area_of_leaf[leaf[job]] for jobs in (news.arrived, news.left) for job in jobs})

    def _enqueue(self, state: State, jobs: Iterable[int]) -> None:
        for job in jobs:
            if state.status[job] is JobStatus.PENDING:
                area, shape = self._area_of_leaf[state.jobs.leaf[job]], shape_of(state, job)
                if self._is_able(state, area, shape, job):
                    self._lines[area].add(job, self._order(state, job), shape)

    def _is_able(self, state: State, area: int, shape: Hashable, job: int) -> bool:
        """Whether the nodes of the area could hold a job of the shape if they were empty."""
        key = (area, shape)
        if key not in self._able:
            empty = Room(state, empty=True)
            self._able[key] = place(self._placement, state, empty, self._areas[area], job) is not None
        return self._able[key]

    def _serve(self, state: State, room: Room, number: int) -> list[Start]:
        area = self._areas[number]
        starts: list[Start] = []

        def start(job: int) -> bool:
            places = place(self._placement, state, room, area, job)
            if places is None:
                return False
            room.take(places)
            starts.append(Start(job, Mode.ALLOCATED, places))
            return True

        self._lines[number].serve(start, strict=not self._backfill)
        return starts
