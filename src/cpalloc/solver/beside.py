"""What kept reservations leave to an allocated start: the GPUs it may take beside them (policy section 6)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from cpalloc.problem.grants import granted
from cpalloc.problem.problem import Action, Decision, IntArray, Mode, Problem, Replica
from cpalloc.problem.releases import bound_by, release_us, start_release_us

Stay = tuple[int, int]
"""(GPUs, release in microseconds) of allocated work on a node."""


class Beside:
    """GPUs of the nodes that kept reservations hold which are left for allocated starts.

    A start leaves a reservation alone when it ranks higher or surely leaves before the reservation's instant; it is
    *bound* by the others. Kept work is read from ``decision`` when a node is first asked about.

    Parameters
    ----------
    problem
        The round; ``problem.holds`` are its kept reservations.
    decision
        What is decided so far; a greedy goes on changing it.
    placement
        Places of the starts in it.
    """

    def __init__(self, problem: Problem, decision: Decision, placement: dict[int, tuple[Replica, ...]]) -> None:
        self._problem, self._decision = problem, decision
        self._nodes = [np.array(hold.nodes, dtype=np.int64) for hold in problem.holds]
        self._left: dict[int, IntArray] = {}
        self._kept: dict[int, list[Stay]] = {}
        self._started: dict[int, list[Stay]] = defaultdict(list)
        self._held_at: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for h, hold in enumerate(problem.holds):
            for at, node in enumerate(hold.nodes):
                self._held_at[node].append((h, at))
        self._running = self._running_on() if problem.holds else {}
        if problem.holds:
            for job, mode in zip(list(placement), decision.mode[list(placement)].tolist(), strict=True):
                if mode == Mode.ALLOCATED:
                    self.started(job, placement[job])

    def started(self, job: int, placement: Iterable[Replica]) -> None:
        """Count an allocated start."""
        if not self._held_at:
            return
        until: int | None = None
        for rep in placement:
            if rep.node not in self._held_at:
                continue
            until = start_release_us(self._problem, job) if until is None else until
            self._started[rep.node].append((rep.gpus, until))
            for h, at in self._held_at[rep.node]:
                if h in self._left and until > self._problem.holds[h].starts_us:
                    self._left[h][at] -= rep.gpus

    def limit(self, job: int, slots: IntArray) -> None:
        """Lower the replicas a job may start per node, shape (N,), to what the reservations that bind it leave."""
        each = int(self._problem.jobs.gpus_per_replica[job])
        for h in bound_by(self._problem, job):
            nodes = self._nodes[h]
            slots[nodes] = np.minimum(slots[nodes], np.maximum(self._left_by(h), 0) // each)

    def most_on(self, job: int, node: int) -> int | None:
        """GPUs a job may take on a node at most; None where no reservation that binds it holds any there."""
        if node not in self._held_at:
            return None
        at = dict(self._held_at[node])
        return min(
            (max(0, int(self._left_by(h)[at[h]])) for h in bound_by(self._problem, job) if h in at), default=None
        )

    def _left_by(self, h: int) -> IntArray:
        """GPUs per node that a reservation leaves to allocated starts it binds; below 0 where it has too few itself."""
        if h not in self._left:
            hold, healthy = self._problem.holds[h], self._problem.nodes.healthy
            self._left[h] = healthy[self._nodes[h]] - np.array(
                [
                    gpus + sum(g for g, until in self._stays(node) if until > hold.starts_us)
                    for node, gpus in zip(hold.nodes, hold.gpus, strict=True)
                ],
                dtype=np.int64,
            )
        return self._left[h]

    def _stays(self, node: int) -> Sequence[Stay]:
        """Allocated work that stays or starts on a node."""
        if node not in self._kept:
            problem, decision = self._problem, self._decision
            have = granted(problem, decision)
            self._kept[node] = [
                (gpus, release_us(problem, decision, job, have))
                for job, gpus in self._running.get(node, {}).items()
                if decision.mode[job] == Mode.ALLOCATED and decision.action[job] == Action.KEEP
            ]
        return [*self._kept[node], *self._started[node]]

    def _running_on(self) -> dict[int, dict[int, int]]:
        """GPUs of running jobs on the nodes that reservations hold, by node and job."""
        on: dict[int, dict[int, int]] = {node: {} for node in self._held_at}
        jobs = self._problem.jobs
        for job in np.flatnonzero(jobs.mode != Mode.NONE).tolist():
            for rep in jobs.placement[job]:
                if rep.node in on:
                    on[rep.node][job] = on[rep.node].get(job, 0) + rep.gpus
        return on
