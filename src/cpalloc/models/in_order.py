"""Starts in the order of their budgets, in the relaxation without nodes.

Who starts in a solution of :class:`~cpalloc.models.pooled.Pooled` passes over those of his budget who rank better, as
no row says that he may not. Where nobody may be passed over, every decision satisfies rows that do. With x_j whether
job j starts allocated and v_j whether it starts borrowed, as it may instead:

- a start brings with it everybody of its budget who ranks better and fits in its very place
  (:func:`~cpalloc.models.places.takes_place_of`):  x_w ≤ x_b + v_b;
- a gang of R_b replicas that may span all domains waits only behind starts that together leave it less room; with
  s_bw replicas of it in the place of a replica of w,

      Σ_{w behind b} s_bw R_w x_w ≤ R_b − 1 + M (x_b + v_b).

Whether a job fits once all behind it are taken away depends on nodes as well, so that a solution may still pass
somebody over. The optimum is a bound all the same, mostly a sharper one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from ortools.sat.python.cp_model import IntVar

from cpalloc.models.places import Places
from cpalloc.models.pooled import Pooled
from cpalloc.models.variables import dot
from cpalloc.problem.problem import Mode


@dataclass(slots=True)
class _Group:
    """Waiting jobs of a budget that are the same to everybody but for their rank, best first.

    Attributes
    ----------
    jobs, order
        The jobs, and their places in the order of the budget.
    lent
        Whether they may start borrowed as well.
    begins
        By pool, whether each of them starts there.
    any_from
        By pool (−1: any) and position, whether any of them starts from there on, once it was asked for.
    """

    lent: bool
    jobs: list[int] = field(default_factory=list)
    order: list[int] = field(default_factory=list)
    begins: dict[int, list[IntVar]] = field(default_factory=dict)
    any_from: dict[int, dict[int, IntVar]] = field(default_factory=dict)

    @property
    def like(self) -> int:
        """One of the jobs."""
        return self.jobs[0]


class InOrder:
    """The rows that say so, added to a relaxation.

    Parameters
    ----------
    pooled
        The relaxation. Its starts are told apart from here on (:attr:`~cpalloc.models.pooled.Pooled.begins`).
    """

    def __init__(self, pooled: Pooled) -> None:
        self._pooled, self._model, problem = pooled, pooled.model, pooled.problem
        self._places = problem.once("places", lambda: Places(problem))
        self._width = len(problem.pool_names)
        self._lent: dict[int, IntVar] = {}
        self._lent_in: dict[int, dict[int, IntVar]] = {}
        self._groups: dict[int, list[_Group]] = defaultdict(list)
        self._start()
        for groups in self._groups.values():
            for better in groups:
                for worse in groups:
                    self._bring(better, worse)
                self._leave_room(better, groups)

    def lent(self, values: Sequence[float]) -> dict[int, int]:
        """Jobs that start borrowed in a solution, and the pool of each."""
        return {job: pool for job, at in self._lent_in.items() for pool, var in at.items() if round(values[var.index])}

    def forbid(self, jobs: Collection[int]) -> None:
        """Let nobody of their budget who ranks worse start unless some jobs do, whether they fit or not; no bound any
        more."""
        problem = self._pooled.problem
        for job in sorted(jobs):
            own = [self._pooled.begins[job]] if job in self._pooled.begins else []
            for worse in self._groups.get(int(problem.jobs.leaf[job]), ()):
                position = bisect_right(worse.order, int(problem.jobs.order[job]))
                for begins in self._any_from(worse, position, worse.begins):
                    self._model.add_bool_or([begins.negated(), *own])

    def _start(self) -> None:
        """Every start by itself, in each pool, and borrowed ones of those who may start either way."""
        pooled, jobs = self._pooled, self._pooled.problem.jobs
        lendable = {job for job, mode in pooled.can.starts if mode is Mode.BORROWED}
        for members, starts in pooled.waiting:
            groups: dict[tuple[int, bool, bool], _Group] = {}
            for job in members:
                key = (*self._places.alike(job), job in lendable)
                if key not in groups:
                    groups[key] = _Group(key[2], begins={pool: [] for pool in starts})
                    self._groups[int(jobs.leaf[job])].append(groups[key])
                groups[key].jobs.append(job)
                groups[key].order.append(int(jobs.order[job]))
                pooled.begins[job] = self._model.new_bool_var("")
                begins = dict.fromkeys(starts, pooled.begins[job])
                if len(starts) > 1:
                    begins = {pool: self._model.new_bool_var("") for pool in starts}
                    self._model.add(dot([(1, var) for var in begins.values()]) == pooled.begins[job])
                for pool, var in begins.items():
                    groups[key].begins[pool].append(var)
                if job in lendable:
                    self._lend(job, starts)
            for pool, y in starts.items():
                self._model.add(dot([(1, var) for group in groups.values() for var in group.begins[pool]]) == y)
        pooled.limit_slots()

    def _lend(self, job: int, pools: Collection[int]) -> None:
        """A borrowed start, which takes its slots like any other."""
        jobs, at = self._pooled.problem.jobs, {pool: self._model.new_bool_var("") for pool in pools}
        self._lent_in[job] = at
        self._lent[job] = self._model.new_bool_var("")
        self._model.add(dot([(1, var) for var in at.values()]) == self._lent[job])
        self._model.add_bool_or([self._lent[job].negated(), self._pooled.begins[job].negated()])
        for pool, var in at.items():
            self._pooled.take(pool, int(jobs.gpus_per_replica[job]), int(jobs.replicas[job]), var)

    def _served(self, job: int) -> list[IntVar]:
        """Whether a job starts, in either mode."""
        return [of[job] for of in (self._pooled.begins, self._lent) if job in of]

    def _bring(self, better: _Group, worse: _Group) -> None:
        """Starts of a group that bring with them those of another one, who fit in their place."""
        pools = worse.begins.keys() & set(self._places.pools(better.like, worse.like))
        if not pools:
            return
        first = [bisect_right(worse.order, order) for order in better.order]
        for at, (job, position) in enumerate(zip(better.jobs, first, strict=True)):
            # Who brings a worse one of those alike brings this one with it, unless that one may be lent to instead.
            implied = not better.lent and at + 1 < len(first) and first[at + 1] == position
            if not implied:
                for begins in self._any_from(worse, position, pools):
                    self._model.add_bool_or([begins.negated(), *self._served(job)])

    def _leave_room(self, better: _Group, groups: Sequence[_Group]) -> None:
        """What those behind a gang may take together in a pool while it waits."""
        jobs = self._pooled.problem.jobs
        replicas = int(jobs.replicas[better.like])
        if replicas < 2 or jobs.required_level[better.like] > 0:
            return
        slots = [(g, self._places.replicas(better.like, g.like) * int(jobs.replicas[g.like])) for g in groups]
        for pool in better.begins:
            inside = [
                (group.order, number, group.begins[pool])
                for group, number in slots
                if number and pool in group.begins and self._places.covers(better.like, group.like, pool)
            ]
            for job, place in zip(better.jobs, better.order, strict=True):
                terms = [(n, var) for order, n, begins in inside for var in begins[bisect_right(order, place) :]]
                most = sum(number for number, _ in terms)
                if most >= replicas:
                    served = dot([(most - replicas + 1, var) for var in self._served(job)])
                    self._model.add(dot(terms) <= replicas - 1 + served)

    def _any_from(self, group: _Group, position: int, pools: Collection[int]) -> Iterator[IntVar]:
        """Literals of which one holds if any of a group starts in some pools from a position on."""
        if position >= len(group.jobs):
            return
        everywhere = len(pools) == len(group.begins)
        if everywhere and not group.lent and len(self._places.pools(group.like, group.like)) == self._width:
            yield self._pooled.begins[group.jobs[position]]  # they start in their order
            return
        for pool in (-1,) if everywhere else sorted(pools):
            begins = group.begins[pool] if pool >= 0 else [self._pooled.begins[job] for job in group.jobs]
            chain = group.any_from.setdefault(pool, {})
            if not chain:
                chain[len(begins) - 1] = begins[-1]
                for at, begun in reversed(list(enumerate(begins[:-1]))):
                    chain[at] = self._model.new_bool_var("")
                    self._model.add_implication(begun, chain[at])
                    self._model.add_implication(chain[at + 1], chain[at])
            yield chain[position]
