"""Strict priority classes with preemption: how a shared cluster is usually run before it has budgets."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from fractions import Fraction
from math import ceil

from cpalloc.problem.problem import Mode
from cpalloc.schema.types import Priority as Class
from cpalloc.sim.columns import PRIORITIES
from cpalloc.sim.policies.areas import one_area
from cpalloc.sim.policies.base import Moves, News, Start, Traits
from cpalloc.sim.policies.best_fit import BestFit
from cpalloc.sim.policies.line import Line, shape_of
from cpalloc.sim.policies.placement import Placement, place
from cpalloc.sim.policies.room import Area, Room
from cpalloc.sim.state import JobStatus, NodePlaces, State

URGENT = PRIORITIES[Class.URGENT]


class Priority:
    """Urgent before high before normal before low, over all teams; by submission inside a class.

    - A job that does not fit preempts running jobs of lower classes, those with the fewest lost GPU-seconds first,
      never one that has opted out (``wants_opt_out``). In a round each class stops preempting at the first of its jobs
      that cannot be helped so.
    - Jobs may overtake one that does not fit, into free GPUs (backfill without reservations), so that large gangs wait
      for the cluster to drain by chance or by class.
    - A team holds at most ``limit_factor`` × share × in-service GPUs at once, rounded up; a job larger than that runs
      when its team runs nothing else. Jobs over the limit wait and block nobody.
    - Inflation: jobs with ``inflates`` are submitted one class higher than they are, at most as urgent.

    Parameters
    ----------
    placement : Placement, optional
        Default: best-fit.
    limit_factor : Fraction or int, optional
        None: no limits.
    """

    def __init__(
        self,
        placement: Placement | None = None,
        *,
        limit_factor: Fraction | int | None = Fraction(2),
        name: str = "priority",
    ) -> None:
        self._name = name
        self._placement = placement or BestFit()
        self._limit_factor = limit_factor
        self._line = Line()
        self._class: list[int] = []
        self._opted_out: list[bool] = []
        self._areas: list[Area] = []
        self._limits: list[int] | None = None

    @property
    def name(self) -> str:
        """As given."""
        return self._name

    @property
    def traits(self) -> Traits:
        """No protection."""
        return Traits(protects=False)

    def begin(self, state: State) -> None:
        """Note who shouts and who has opted out."""
        self._placement.prepare(state)
        self._areas, _ = one_area(state)
        shouted = ((own, job.inflates) for own, job in zip(state.jobs.priority, state.workload.jobs, strict=True))
        self._class = [own + 1 if inflates and own < URGENT else own for own, inflates in shouted]
        self._opted_out = [job.wants_opt_out for job in state.workload.jobs]
        self._set_limits(state)

    def decide(self, state: State, news: News) -> Moves:
        """Start in order, preempting where that helps."""
        for job in news.arrived:
            if state.status[job] is JobStatus.PENDING:
                kind = (self._class[job], state.jobs.leaf[job], shape_of(state, job))
                self._line.add(job, -self._class[job], kind)
        if news.capacity_changed or news.budgets_changed:
            self._set_limits(state)
        draft = _Draft(state, self._placement, self._areas[0], self._class, self._opted_out, self._limits)
        self._line.serve(draft.start, strict=False)
        # Who was preempted, and who was passed over before GPUs were freed, may find room now.
        return Moves(starts=draft.starts, preempts=draft.preempts, wake_s=state.now_s + 1 if draft.preempts else -1)

    def _set_limits(self, state: State) -> None:
        if self._limit_factor is not None:
            self._limits = [ceil(self._limit_factor * share * state.in_service_gpus) for share in state.ledger.shares]


class _Draft:
    """A round while it is being decided."""

    def __init__(
        self,
        state: State,
        placement: Placement,
        area: Area,
        classes: list[int],
        opted_out: list[bool],
        limits: list[int] | None,
    ) -> None:
        self.starts: list[Start] = []
        self.preempts: list[int] = []
        self._state = state
        self._placement = placement
        self._area = area
        self._class = classes
        self._opted_out = opted_out
        self._limits = limits
        self._room = Room(state)
        self._held = [state.ledger.allocated_gpus(leaf) for leaf in range(len(state.ledger.leaf_names))]
        self._hopeless: set[Hashable] = set()
        """Shapes that there is no room for."""
        self._stuck: set[int] = set()
        """Classes that have stopped preempting."""

    def start(self, job: int) -> bool:
        """Start a job if the limit of its team allows it and there is room, or room can be made."""
        state, leaf = self._state, self._state.jobs.leaf[job]
        held, size = self._held[leaf], state.jobs.size[job]
        if self._limits is not None and held and held + size > self._limits[leaf]:
            return False
        places = self._place(job) or self._preempt_for(job)
        if places is None:
            return False
        self._room.take(places)
        self._held[leaf] += size
        self.starts.append(Start(job, Mode.ALLOCATED, places))
        return True

    def _place(self, job: int) -> NodePlaces | None:
        shape = shape_of(self._state, job)
        if shape in self._hopeless:
            return None
        places = place(self._placement, self._state, self._room, self._area, job)
        if places is None:
            self._hopeless.add(shape)
        return places

    def _preempt_for(self, job: int) -> NodePlaces | None:
        state, own = self._state, self._class[job]
        if own in self._stuck:
            return None
        victims = self._victims(own)
        free = self._area.free_gpus(self._room)
        if free + sum(state.jobs.size[v] for v in victims) >= state.jobs.size[job]:
            needed = self._fewest(job, victims)
            if needed is not None:
                for victim in needed:
                    self._room.give(state.places[victim])
                    self._held[state.jobs.leaf[victim]] -= state.jobs.size[victim]
                self.preempts += needed
                self._hopeless.clear()
                return place(self._placement, state, self._room, self._area, job)
        self._stuck.add(own)
        return None

    def _victims(self, own: int) -> list[int]:
        """Running jobs of lower classes that may be preempted, cheapest first."""
        state, taken = self._state, set(self.preempts)
        able = (j for j in state.running if self._class[j] < own and not self._opted_out[j] and j not in taken)
        return sorted(able, key=lambda j: (state.lost_gpu_s(j), self._class[j], j))

    def _fewest(self, job: int, victims: list[int]) -> list[int] | None:
        """The shortest beginning of the list that makes room, without those of it that are not needed for that."""
        if not self._fits_without(job, victims):
            return None
        least, enough = 0, len(victims)
        while least < enough:
            middle = (least + enough) // 2
            if self._fits_without(job, victims[:middle]):
                enough = middle
            else:
                least = middle + 1
        needed = victims[:enough]
        for victim in reversed(victims[:enough]):
            others = [v for v in needed if v != victim]
            if self._fits_without(job, others):
                needed = others
        return needed

    def _fits_without(self, job: int, victims: Iterable[int]) -> bool:
        room = self._room.copy()
        for victim in victims:
            room.give(self._state.places[victim])
        return place(self._placement, self._state, room, self._area, job) is not None
