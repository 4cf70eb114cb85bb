"""Delay: how long the blocked gangs still wait for what they were promised."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from cpalloc.models.base import PartSpec
from cpalloc.models.earliest import Gang, cost_of_waiting, steps
from cpalloc.models.variables import Linear, ModelContext
from cpalloc.problem.problem import US, Action, Decision, JobState, Mode, Problem
from cpalloc.problem.releases import NEVER, start_release_us, timeout_us


class Delay:
    """Σ over the blocked jobs of GPUs × (starts_by − now); no promise counts as the window."""

    name: ClassVar[str] = "delay"
    parts: ClassVar[tuple[PartSpec, ...]] = (PartSpec("delay", "GPU-seconds"),)
    limits_model: ClassVar[bool] = False

    def floor(self, problem: Problem) -> tuple[int, ...]:
        """A promise can be for now."""
        return (0,)

    def build(self, ctx: ModelContext) -> tuple[Linear, ...]:
        """What each blocked job of the partition waits at least, traded against starts that stand in its way.

        A job whose best known delay the partition gives need not be told apart beyond that; sharing among the blocked
        is relaxed.
        """
        problem = ctx.problem
        free_at = RoomAt(problem)
        total: Linear = 0
        for job, known in ctx.partition.blocked:
            size, now = int(problem.jobs.size[job]), problem.now_us

            def cost(at_us: int, size: int = size, now: int = now) -> int:
                return size * max(0, at_us - now) // US

            gang = Gang(
                f"w{job}",
                int(problem.jobs.replicas[job]),
                int(problem.jobs.gpus_per_replica[job]),
                places(problem, job),
            )
            choices = steps(ctx.partition.instants, cost, 0, known)
            total = total + cost_of_waiting(ctx, gang, choices, known, free_at, ctx.started(job))
        return (total,)

    def evaluate(self, problem: Problem, decision: Decision) -> tuple[int, ...]:
        """Job by job; one that starts after all waits no longer."""
        return (sum(delay_of(problem, decision, j) for j in decision.blocked),)


def delay_of(problem: Problem, decision: Decision, job: int) -> int:
    """GPU-seconds that a blocked job still waits."""
    if decision.action[job] != Action.WAIT:
        return 0
    size = int(problem.jobs.size[job])
    for hold in decision.reservations:
        if hold.job == job:
            return size * max(0, hold.starts_us - problem.now_us) // US
    return size * problem.policy.window_s


def places(problem: Problem, job: int) -> list[list[int]]:
    """Nodes of every (domain of the required level, pool) that a job may use."""
    level = int(problem.jobs.required_level[job])
    out: dict[tuple[int, int], list[int]] = defaultdict(list)
    for n in np.flatnonzero(problem.eligibility[problem.jobs.eligibility[job]]).tolist():
        out[int(problem.topology.domain_of[level, n]), int(problem.nodes.pool[n])].append(n)
    return [nodes for _, nodes in sorted(out.items())]


class RoomAt:
    """GPUs of a node that running allocated work may have left by an instant, read in the most hopeful way."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._stays: dict[int, list[tuple[int, int]]] = defaultdict(list)
        jobs = problem.jobs
        runs = (jobs.state == JobState.FIXED) & (jobs.mode == Mode.ALLOCATED)
        for j in np.flatnonzero(runs).tolist():
            until = hopeful_release_us(problem, j)
            for rep in jobs.placement[j]:
                if rep.node >= 0:
                    gpus = rep.gpus
                    if rep.devices >= 0:
                        gpus = (rep.devices & problem.nodes.healthy_devices[rep.node]).bit_count()
                    self._stays[rep.node].append((until, gpus))
        self._leaving = self._over_share_jobs()
        self._spare = self._most_spare()

    def __call__(self, node: int, at_us: int) -> int:
        """Healthy GPUs less those held beyond the instant."""
        held = sum(gpus for until, gpus in self._stays[node] if until > at_us)
        return max(0, int(self.problem.nodes.healthy[node]) - held)

    def total(self, nodes: Sequence[int], at_us: int) -> int:
        """The same over some nodes; a budget over its share gives up no more than it can have over its claim."""
        jobs, inside = self.problem.jobs, set(nodes)
        gone: dict[int, int] = defaultdict(int)
        for j, end in self._leaving:
            if end <= at_us and timeout_us(self.problem, j) > at_us:
                gone[int(jobs.leaf[j])] += sum(r.gpus for r in jobs.placement[j] if r.node in inside)
        kept_back = sum(max(0, gpus - self._spare[leaf]) for leaf, gpus in gone.items())
        return sum(self(n, at_us) for n in nodes) - kept_back

    def _over_share_jobs(self) -> list[tuple[int, int]]:
        """(job, end of protection) of the allocated jobs that leave for others because their budget is over share."""
        problem, jobs = self.problem, self.problem.jobs
        runs = (jobs.state == JobState.FIXED) | (jobs.state == JobState.EVICTABLE)
        return [
            (j, max(problem.now_us, int(jobs.protected_until_us[j])))
            for j in np.flatnonzero(runs & (jobs.mode == Mode.ALLOCATED)).tolist()
            if problem.budgets.over_share(int(jobs.leaf[j]))
        ]

    def _most_spare(self) -> list[int]:
        """Per leaf, most GPUs it could end the round with above its claim."""
        jobs, budgets = self.problem.jobs, self.problem.budgets
        most = [0] * len(budgets.claim)
        runs = (jobs.state == JobState.FIXED) | (jobs.state == JobState.EVICTABLE)
        could = (runs & (jobs.mode == Mode.ALLOCATED)) | jobs.may_promote
        could |= (jobs.state == JobState.PENDING) & jobs.may_allocate
        for j in np.flatnonzero(could & (jobs.leaf >= 0)).tolist():
            most[int(jobs.leaf[j])] += int(jobs.size[j])
        return [max(0, m - int(c)) for m, c in zip(most, budgets.claim, strict=True)]


def hopeful_release_us(problem: Problem, job: int) -> int:
    """Earliest instant at which a running allocated job could be out of the way, whatever its budget ends up with."""
    release = max(problem.now_us, timeout_us(problem, job))
    if problem.budgets.over_share(int(problem.jobs.leaf[job])):
        release = min(release, max(problem.now_us, int(problem.jobs.protected_until_us[job])))
    return release


def instants(problem: Problem) -> tuple[int, ...]:
    """Now, and every later instant at which running or starting allocated work may be out of the way."""
    jobs, out = problem.jobs, {problem.now_us}
    for j in np.flatnonzero((jobs.state == JobState.FIXED) & (jobs.mode == Mode.ALLOCATED)).tolist():
        out.add(hopeful_release_us(problem, j))
    for j in np.flatnonzero((jobs.state == JobState.PENDING) & jobs.may_allocate).tolist():
        out.add(start_release_us(problem, j))
    return tuple(sorted(t for t in out if t < NEVER))
