"""States of the cluster in which a waiting job is looked at: as decided, without some starts, without protection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cpalloc.problem.problem import Decision, Hold, NodeState, Problem
from cpalloc.problem.usage import Usage


@dataclass(frozen=True, slots=True)
class Room:
    """The domain that comes closest to holding a gang, and the replicas it takes."""

    fits: bool
    level: int
    domain: int
    pool: int
    slots: int


class State:
    """What is free in one state of the cluster; jobs of one kind share the look-up."""

    def __init__(self, usage: Usage, kind: Sequence[int]) -> None:
        self.usage = usage
        self._kind = kind
        self._rooms: dict[tuple[int, tuple[Hold, ...]], Room] = {}

    def room(self, job: int, *, beside: tuple[Hold, ...] = ()) -> Room:
        """The domain that takes most replicas of a job, on nodes where nothing is kept by ``beside``."""
        key = self._kind[job], beside
        if key not in self._rooms:
            self._rooms[key] = self._look(job, beside)
        return self._rooms[key]

    def _look(self, job: int, beside: tuple[Hold, ...]) -> Room:
        problem, jobs = self.usage.problem, self.usage.problem.jobs
        level, width = int(jobs.required_level[job]), max(1, len(problem.pool_names))
        slots = self.usage.slots_all(job)
        for hold in beside:
            slots[list(hold.nodes)] = 0
        where = problem.topology.domain_of[level] * width + problem.nodes.pool
        total = np.bincount(where, weights=slots).astype(np.int64) if len(slots) else np.zeros(1, dtype=np.int64)
        best = int(total.argmax())
        return Room(bool(total[best] >= jobs.replicas[job]), level, best // width, best % width, int(total[best]))


class States:
    """The states after one decision, each made when it is first asked for."""

    def __init__(self, problem: Problem, decision: Decision) -> None:
        self._problem, self._decision = problem, decision
        self._kind = _kinds(problem)
        self._without_best: dict[int, tuple[int, State]] = {}

    @cached_property
    def without_starts(self) -> State:
        """As decided, but nothing starts."""
        usage = Usage.of(self._problem, self._decision, without=self._decision.placement.keys())
        return State(usage, self._kind)

    @cached_property
    def now(self) -> State:
        """As decided."""
        usage = self.without_starts.usage.copy()
        for job, placement in self._decision.placement.items():
            usage.place(job, placement)
        return State(usage, self._kind)

    @cached_property
    def open(self) -> State:
        """Nothing is protected: every job on ready nodes is gone."""
        usage, nodes = self.without_starts.usage.copy(), self._problem.nodes
        ready = nodes.state == NodeState.READY
        usage.free_gpus = np.where(ready, nodes.healthy, 0)
        usage.free_devices = [m if r else 0 for m, r in zip(nodes.healthy_devices, ready.tolist(), strict=True)]
        usage.free_resources = np.where(ready[:, None], nodes.resources, 0)
        usage.clear_company()
        return State(usage, self._kind)

    def without_best(self, leaf: int, best: Sequence[int]) -> State:
        """As decided, but without the first starts of a budget; quick where those asked for grow from call to call."""
        gone, state = self._without_best.get(leaf, (0, None))
        if state is None or gone > len(best):
            gone, state = 0, State(self.now.usage.copy(), self._kind)
        if gone < len(best):
            for job in best[gone:]:
                state.usage.remove(job, self._decision.placement[job])
            state = State(state.usage, self._kind)
        self._without_best[leaf] = len(best), state
        return state


def _kinds(problem: Problem) -> list[int]:
    """Number of the kind of every job; jobs of one kind fit in the same places."""
    jobs = problem.jobs
    columns = (
        jobs.eligibility,
        jobs.gpus_per_replica,
        jobs.replicas,
        jobs.required_level,
        jobs.max_per_node,
        jobs.exclusive,
        jobs.same_gpu_group,
        jobs.resources,
    )
    kinds: dict[tuple[int, ...], int] = {}
    rows = map(tuple, np.column_stack(columns).tolist())
    return [kinds.setdefault(row, len(kinds)) for row in rows]
