"""The allocated work after a decision, and when it leaves: by its own terms, or for its budget (policy section 6)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cpalloc.problem.grants import granted
from cpalloc.problem.problem import US, Action, Decision, IntArray, Mode, NodeState, Problem
from cpalloc.problem.releases import NEVER
from cpalloc.problem.replicas import by_node

_BEYOND_S = 5 * 10**12
"""Seconds after which it is later than NEVER, whenever they begin; in microseconds an array still holds them."""

MOST_REMEMBERED = 8
"""Decisions whose work is remembered."""


@dataclass(frozen=True, slots=True)
class Stays:
    """Allocated work on ready nodes, one row per (node, job), by node; ``devices`` -1: unknown."""

    job: IntArray
    node: IntArray
    gpus: IntArray
    devices: tuple[int, ...]
    resources: IntArray


@dataclass(frozen=True, slots=True)
class Here:
    """The allocated work on some nodes.

    Attributes
    ----------
    rows, at : IntArray, shape (W,)
        Rows of :class:`Stays`, and the position of each one's node among those asked about.
    surely_us, hopefully_us : IntArray, shape (W,)
        When it leaves at the latest, and if its budget spares it.
    instants : IntArray, ascending
        Now, and when some of it may leave (µs).
    """

    rows: IntArray
    at: IntArray
    surely_us: IntArray
    hopefully_us: IntArray
    instants: IntArray


class Work:
    """The allocated work after a decision, and when it leaves. Promises are no part of it.

    A job leaves at its timeout; past its protection it may have to leave before, where its budget is over its share and
    keeps its claim without it. Who does so is chosen for every promise (:mod:`cpalloc.metrics.sparing`).
    """

    def __init__(self, problem: Problem, decision: Decision) -> None:
        self.problem = problem
        self.stays = _stays(problem, decision)
        self._first = np.searchsorted(self.stays.node, np.arange(len(problem.nodes.names) + 1))
        self._surplus: IntArray = np.maximum(granted(problem, decision) - problem.budgets.claim, 0)
        self._until_us, self._spared_us = _leaves(problem, decision, self._surplus)
        self._here: dict[tuple[bytes, frozenset[int]], Here] = {}

    @classmethod
    def after(cls, problem: Problem, decision: Decision) -> Work:
        """That of a decision; the last few are remembered, as decisions are often asked about again and again."""
        allocated = decision.mode == Mode.ALLOCATED
        starts = [(j, places) for j, places in sorted(decision.placement.items()) if allocated[j]]
        key = allocated.tobytes(), decision.promoted.tobytes(), tuple(starts)
        recent: dict[object, Work] = problem.once("work", dict)
        work = recent.pop(key, None) or cls(problem, decision)
        if len(recent) >= MOST_REMEMBERED:
            recent.pop(next(iter(recent)), None)
        recent[key] = work  # the last to be forgotten
        return work

    def over(self, nodes: IntArray, relied: frozenset[int] = frozenset()) -> Here:
        """What is on some nodes; those ``relied`` on leave as soon as their budgets may spare them."""
        key = nodes.tobytes(), relied
        if key not in self._here:
            first = self._first[nodes]
            count = self._first[nodes + 1] - first
            nth = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
            rows = np.repeat(first, count) + nth
            job = self.stays.job[rows]
            hopefully_us = self._spared_us[job]
            surely_us = self._until_us[job]
            if relied:
                surely_us = np.where(np.isin(job, list(relied)), hopefully_us, surely_us)
            instants = np.concatenate((surely_us, hopefully_us))
            instants = np.unique(np.append(instants[instants < NEVER], self.problem.now_us))
            self._here[key] = Here(rows, np.repeat(np.arange(len(nodes)), count), surely_us, hopefully_us, instants)
        return self._here[key]

    def until_us(self, jobs: IntArray) -> IntArray:
        """Instant by which each of some allocated jobs has left by its own terms; NEVER where nothing says so."""
        return self._until_us[jobs]

    def spared_us(self, jobs: IntArray) -> IntArray:
        """The same if their budgets spare them as soon as they may."""
        return self._spared_us[jobs]

    def spare(self, relied: frozenset[int]) -> IntArray:
        """GPUs that every leaf has beyond its claim, less what promises rely on; shape (L,)."""
        left, jobs, who = self._surplus.copy(), self.problem.jobs, list(relied)
        np.subtract.at(left, jobs.leaf[who], jobs.size[who])
        return left


def _leaves(problem: Problem, decision: Decision, surplus: IntArray) -> tuple[IntArray, IntArray]:
    """When allocated jobs leave by their own terms, and if they are spared; for all at once what
    :mod:`cpalloc.problem.releases` says of one. Shape (J,) each, nothing of use where a job does not run allocated."""
    jobs, budgets, now_us = problem.jobs, problem.budgets, problem.now_us
    runs = np.flatnonzero(decision.mode == Mode.ALLOCATED)
    leaf, started_us, placed_us = jobs.leaf[runs], jobs.started_us[runs], jobs.placed_us[runs]
    over = (budgets.charged[leaf] > budgets.owed[leaf]) | (budgets.owed[leaf] == 0)
    fresh = (decision.action[runs] == Action.START) | decision.promoted[runs]
    began_us = np.where(started_us >= 0, started_us, placed_us)
    began_us = np.where(fresh & (started_us < 0) & (placed_us < 0), now_us, began_us)
    at_us = _after(began_us, jobs.timeout_s[runs])
    ends = fresh & over & (budgets.claim[leaf] == 0)
    at_us = np.where(ends, np.minimum(at_us, _after(now_us, jobs.min_runtime_s[runs])), at_us)
    at_us = np.where(fresh, at_us, np.maximum(at_us, now_us))
    yields = over & ~fresh & (jobs.size[runs] <= surplus[leaf])
    end_us = np.maximum(jobs.protected_until_us[runs], now_us)
    until_us, spared_us = np.zeros(len(jobs), dtype=np.int64), np.zeros(len(jobs), dtype=np.int64)
    until_us[runs], spared_us[runs] = at_us, np.where(yields, np.minimum(at_us, end_us), at_us)
    return until_us, spared_us


def _after(began_us: IntArray | int, span_s: IntArray) -> IntArray:
    """Instants some seconds later; NEVER where that is later still, or the span is below 0 and there is none."""
    later_us = np.minimum(began_us + np.minimum(span_s, _BEYOND_S) * US, NEVER)
    after: IntArray = np.where(span_s < 0, NEVER, later_us)
    return after


def _stays(problem: Problem, decision: Decision) -> Stays:
    """Allocated work on ready nodes after a decision."""
    jobs, nodes = problem.jobs, problem.nodes
    ready = (nodes.state == NodeState.READY).tolist()
    allocated = np.flatnonzero(decision.mode == Mode.ALLOCATED)
    starts = (decision.action[allocated] == Action.START).tolist()
    rows: list[tuple[int, int, int, int]] = []
    devices: list[int] = []
    for j, fresh in zip(allocated.tolist(), starts, strict=True):
        for node, count, gpus, mask in by_node(decision.placement[j] if fresh else jobs.placement[j]):
            if ready[node]:
                healthy = mask & nodes.healthy_devices[node] if mask >= 0 else -1
                rows.append((node, j, gpus if mask < 0 else healthy.bit_count(), count))
                devices.append(healthy)
    table = np.array(rows, dtype=np.int64).reshape(len(rows), 4)
    at, job, gpus_on, replicas = table[:, 0], table[:, 1], table[:, 2], table[:, 3]
    alone = jobs.exclusive[job]
    for row in np.flatnonzero(alone).tolist():
        devices[row] = nodes.healthy_devices[rows[row][0]]
    gpus_on = np.where(alone, nodes.healthy[at], gpus_on)
    order = np.argsort(at, kind="stable")
    return Stays(
        job=job[order],
        node=at[order],
        gpus=gpus_on[order],
        devices=tuple(devices[row] for row in order.tolist()),
        resources=(jobs.resources[job] * replicas[:, None])[order],
    )
