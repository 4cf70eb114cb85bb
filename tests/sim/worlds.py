"""Small workloads built by hand, and a policy that does what it is told when it is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from cpalloc.problem.problem import Mode
from cpalloc.schema import Budget, Cluster, Node
from cpalloc.sim.history import History, IntArray, RunEnd
from cpalloc.sim.policies.base import NO_MOVES, Moves, News, Start, Traits
from cpalloc.sim.state import State
from cpalloc.sim.workload import Provenance, WorkJob, Workload

EPOCH = datetime(2026, 1, 5, tzinfo=UTC)
HOUR = 3600


def job(id: str, at: int, gpus: int, work: int, team: str = "a", *, replicas: int = 1, **more: Any) -> WorkJob:
    """A job of ``replicas`` × ``gpus``."""
    return WorkJob(id=id, budget=team, submitted_s=at, replicas=replicas, gpus_per_replica=gpus, work_s=work, **more)


def nodes(count: int, gpus: int = 8, **more: Any) -> tuple[Node, ...]:
    """Equal nodes n0, n1, …"""
    return tuple(Node(name=f"n{i}", gpu_type="h100", gpus=gpus, **more) for i in range(count))


def world(
    jobs: Sequence[WorkJob],
    cluster: int | Sequence[Node] = 1,
    *,
    teams: Mapping[str, int] | None = None,
    levels: tuple[str, ...] = (),
    **more: Any,
) -> Workload:
    """A workload of jobs (put into order), nodes of 8 GPUs and equal or weighed teams."""
    weights = teams or {j.budget: 1 for j in jobs} or {"a": 1}
    return Workload(
        name="made-up",
        provenance=Provenance.CONSTRUCTED,
        epoch=EPOCH,
        cluster=Cluster(name="c", levels=levels, nodes=nodes(cluster) if isinstance(cluster, int) else tuple(cluster)),
        budgets=tuple(Budget(name=name, weight=weight) for name, weight in sorted(weights.items())),
        jobs=tuple(sorted(jobs, key=lambda j: (j.submitted_s, j.order, j.id))),
        **more,
    )


class Scripted:
    """Does what the script says at each instant, waking for it, and nothing at others; keeps the news it was told."""

    def __init__(self, script: Mapping[int, Moves], *, protects: bool = True, suspends: bool = False) -> None:
        self._script = script
        self._traits = Traits(protects=protects, suspends=suspends)
        self.asked: list[tuple[int, News]] = []

    @property
    def name(self) -> str:
        return "scripted"

    @property
    def traits(self) -> Traits:
        return self._traits

    def begin(self, state: State) -> None:
        pass

    def decide(self, state: State, news: News) -> Moves:
        self.asked.append((state.now_s, news))
        wake_s = min((at for at in self._script if at > state.now_s), default=-1)
        return replace(self._script.get(state.now_s, NO_MOVES), wake_s=wake_s)


def allocated(job: int, *places: tuple[int, int]) -> Start:
    """Start a job allocated at (node, device bitmask) …"""
    return Start(job, Mode.ALLOCATED, places)


def borrowed(job: int, *places: tuple[int, int]) -> Start:
    """Start a job borrowed at (node, device bitmask) …"""
    return Start(job, Mode.BORROWED, places)


def runs_of(history: History, job: int) -> list[tuple[int, int, RunEnd]]:
    """(start, end, why) of every run of a job."""
    runs = history.runs
    rows = np.flatnonzero(runs.job == job)
    return [(int(runs.start_s[r]), int(runs.end_s[r]), RunEnd(int(runs.end[r]))) for r in rows]


def waits(history: History) -> dict[str, int]:
    """Seconds each job waited until it left, by id."""
    held: IntArray = np.zeros(len(history.job_end), dtype=np.int64)
    np.add.at(held, history.runs.job, history.runs.end_s - history.runs.start_s)
    return {
        j.id: int(history.finished_s[i]) - j.submitted_s - int(held[i]) for i, j in enumerate(history.workload.jobs)
    }


def first_starts(history: History) -> dict[str, int]:
    """When each job that ran was first started, by id."""
    jobs, runs = history.workload.jobs, history.runs
    return {jobs[j].id: int(runs.start_s[runs.job == j].min()) for j in sorted(set(runs.job.tolist()))}


def same(a: History, b: History) -> bool:
    """Whether two histories agree in everything but the seconds rounds took."""
    for part in ("runs", "places", "rounds", "samples"):
        one, other = getattr(a, part), getattr(b, part)
        for name in one.__slots__:
            if name != "seconds" and not np.array_equal(getattr(one, name), getattr(other, name)):
                return False
    for name in ("capacity_s", "capacity_gpus", "share_s", "share", "job_end", "finished_s"):
        if not np.array_equal(getattr(a, name), getattr(b, name)):
            return False
    return (a.start_s, a.end_s, a.leaf_names, a.notes) == (b.start_s, b.end_s, b.leaf_names, b.notes)
