"""Delay: how long the blocked gangs still wait for what they were promised."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from ortools.sat.python import cp_model

from cpalloc.models.base import PartSpec
from cpalloc.models.earliest import Choice, Gang, cost_of_waiting, in_the_way, share, steps
from cpalloc.models.variables import Linear, ModelContext, dot
from cpalloc.problem.problem import US, Action, Decision, IntArray, JobState, Mode, NodeState, Problem
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

        Beyond the delay the partition knows a job need not be told apart. Jobs held at the same time share no GPU,
        counted for every set of pools over the jobs that accept no others.
        """
        problem = ctx.problem
        free_at = RoomAt(problem)
        total: Linear = 0
        waiting: list[tuple[frozenset[int], Gang, Choice]] = []
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
            choice = cost_of_waiting(ctx, gang, choices, known, free_at, ctx.started(job))
            total = total + choice.cost
            pools = frozenset(int(problem.nodes.pool[nodes[0]]) for nodes in gang.domains)
            waiting.append((pools, gang, choice))
        for pools in sorted({p for p, _, _ in waiting}, key=sorted):
            inside = np.isin(problem.nodes.pool, sorted(pools)) & (problem.nodes.state == NodeState.READY)
            gangs = [(gang, choice) for p, gang, choice in waiting if p <= pools]
            if len(gangs) > 1:
                share(ctx, gangs, np.flatnonzero(inside), free_at)
            _keep_claims(ctx, gangs, np.flatnonzero(inside), free_at)
        return (total,)

    def evaluate(self, problem: Problem, decision: Decision) -> tuple[int, ...]:
        """Job by job; one that starts after all waits no longer."""
        return (sum(delay_of(problem, decision, j) for j in decision.blocked),)


def _keep_claims(ctx: ModelContext, gangs: Sequence[tuple[Gang, Choice]], nodes: IntArray, room: RoomAt) -> None:
    """For every instant t: Σ_{gangs held by t} size ≤ GPUs of the pool that others leave by t (:meth:`RoomAt.back`)."""
    for at_us in sorted({t for _, choice in gangs for t, _ in choice.held_by}):
        held = [
            (gang.replicas * gang.gpus, literal)
            for gang, choice in gangs
            for t, literal in choice.held_by
            if t <= at_us
        ]
        back = room.back(ctx, nodes, at_us)
        if back is not None:
            left = int(room.at(at_us)[nodes].sum()) - in_the_way(ctx, nodes, at_us) - back
            ctx.model.add(dot(held) <= left)


def _spare(ctx: ModelContext, leaf: int) -> cp_model.IntVar:
    """At most max(0, granted − claim) of a leaf."""
    claim, most = int(ctx.problem.budgets.claim[leaf]), ctx.problem.in_service_gpus
    over = ctx.model.new_bool_var(f"over{leaf}")
    var = ctx.model.new_int_var(0, most, f"spare{leaf}")
    ctx.model.add(var <= ctx.granted([leaf]) - claim).only_enforce_if(over)
    ctx.model.add(var == 0).only_enforce_if(over.negated())
    return var


def delay_of(problem: Problem, decision: Decision, job: int) -> int:
    """GPU-seconds that a blocked job still waits."""
    if decision.action[job] != Action.WAIT:
        return 0
    size = int(problem.jobs.size[job])
    for hold in decision.reservations:
        if hold.job == job:
            return size * max(0, hold.starts_us - problem.now_us) // US
    return size * problem.policy.window_s


def places(problem: Problem, job: int) -> list[IntArray]:
    """Nodes of every (domain of the required level, pool) that a job may use."""
    level = int(problem.jobs.required_level[job])
    out: dict[tuple[int, int], list[int]] = defaultdict(list)
    for n in np.flatnonzero(problem.eligibility[problem.jobs.eligibility[job]]).tolist():
        out[int(problem.topology.domain_of[level, n]), int(problem.nodes.pool[n])].append(n)
    return [np.array(nodes, dtype=np.int64) for _, nodes in sorted(out.items())]


class RoomAt:
    """GPUs of a node that running allocated work may have left by an instant, read in the most hopeful way."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        jobs = problem.jobs
        runs = (jobs.state == JobState.FIXED) & (jobs.mode == Mode.ALLOCATED)
        stays: list[tuple[int, int, int]] = []
        for j in np.flatnonzero(runs).tolist():
            until = hopeful_release_us(problem, j)
            for rep in jobs.placement[j]:
                if rep.node >= 0:
                    gpus = rep.gpus
                    if rep.devices >= 0:
                        gpus = (rep.devices & problem.nodes.healthy_devices[rep.node]).bit_count()
                    stays.append((rep.node, until, gpus))
        self._stays: IntArray = np.array(stays, dtype=np.int64).reshape(len(stays), 3)
        self._at: dict[int, IntArray] = {}
        self._leaving = self._over_share_jobs()
        self._spare: dict[int, cp_model.IntVar] = {}

    def at(self, at_us: int) -> IntArray:
        """Healthy GPUs of every node less those held beyond the instant."""
        if at_us not in self._at:
            node, until, gpus = self._stays.T
            left = self.problem.nodes.healthy.copy()
            beyond = until > at_us
            np.subtract.at(left, node[beyond], gpus[beyond])
            self._at[at_us] = np.maximum(left, 0)
        return self._at[at_us]

    def back(self, ctx: ModelContext, nodes: IntArray, at_us: int) -> Linear | None:
        """What budgets over their share keep back: they give way only as far as they keep their claim.

        Σ_leaf back, back ≥ GPUs of the leaf's jobs on the nodes that leave by then only for others to claim, less
        what is preempted now, less max(0, granted − claim).
        """
        terms = []
        for leaf, gone in self.gone(nodes, at_us).items():
            total = sum(g for _, g in gone)
            if leaf not in self._spare:
                self._spare[leaf] = _spare(ctx, leaf)
            var = ctx.model.new_int_var(0, total, f"back{leaf}@{at_us}")
            preempted = dot([(g, ctx.e[j]) for j, g in gone if j in ctx.e])
            ctx.model.add(var + preempted + self._spare[leaf] >= total)
            terms.append((1, var))
        return dot(terms) if terms else None

    def gone(self, nodes: IntArray, at_us: int) -> dict[int, list[tuple[int, int]]]:
        """Per leaf over its share, (job, GPUs on the nodes) of jobs that leave by then only for others to claim."""
        here = np.zeros(len(self.problem.nodes.names), dtype=np.bool_)
        here[nodes] = True
        out: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for j, leaf, end, timeout, on in self._leaving:
            if end <= at_us < timeout:
                gpus = sum(g for n, g in on if here[n])
                if gpus:
                    out[leaf].append((j, gpus))
        return dict(out)

    def _over_share_jobs(self) -> list[tuple[int, int, int, int, list[tuple[int, int]]]]:
        """(job, leaf, end of protection, timeout, (node, GPUs) …) of the allocated jobs that leave for others because
        their budget is over its share."""
        problem, jobs = self.problem, self.problem.jobs
        runs = (jobs.state == JobState.FIXED) | (jobs.state == JobState.EVICTABLE)
        return [
            (
                j,
                int(jobs.leaf[j]),
                max(problem.now_us, int(jobs.protected_until_us[j])),
                timeout_us(problem, j),
                [(r.node, r.gpus) for r in jobs.placement[j] if r.node >= 0],
            )
            for j in np.flatnonzero(runs & (jobs.mode == Mode.ALLOCATED)).tolist()
            if problem.budgets.over_share(int(jobs.leaf[j]))
        ]


def hopeful_release_us(problem: Problem, job: int) -> int:
    """Earliest instant at which a running allocated job could be out of the way, whatever its budget ends up with."""
    release = max(problem.now_us, timeout_us(problem, job))
    if problem.budgets.over_share(int(problem.jobs.leaf[job])):
        release = min(release, max(problem.now_us, int(problem.jobs.protected_until_us[job])))
    return release


def instants(problem: Problem) -> tuple[int, ...]:
    """Now, and every later instant at which running, starting or promoted allocated work may be out of the way."""
    jobs, out = problem.jobs, {problem.now_us}
    runs = (jobs.state == JobState.FIXED) | (jobs.state == JobState.EVICTABLE)
    for j in np.flatnonzero(runs & (jobs.mode == Mode.ALLOCATED)).tolist():
        # Where its budget keeps its claim back a job leaves at its timeout only.
        out |= {hopeful_release_us(problem, j), max(problem.now_us, timeout_us(problem, j))}
    for j in np.flatnonzero((jobs.state == JobState.PENDING) & jobs.may_allocate | jobs.may_promote).tolist():
        out.add(start_release_us(problem, j))
    return tuple(sorted(t for t in out if t < NEVER))
