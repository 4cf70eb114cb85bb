"""The jobs of a lab: drawn class by class, until the stated demand is met."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from cpalloc.errors import InputError, Issue
from cpalloc.schema.types import Funding, Priority
from cpalloc.sim.lab.config import Estimate, JobClass, LabConfig, Team, shape_of
from cpalloc.sim.lab.rhythm import Calendar
from cpalloc.sim.lab.streams import IntArray, draw_from, draw_spread, stream
from cpalloc.sim.workload import WorkJob

_BLOCK = 256
"""Groups drawn at a time where the number that meets the demand is not known beforehand."""


@dataclass(frozen=True, slots=True)
class Draft:
    """Shape and work of one job, before it has a team and a time; jobs of one ``group`` share both."""

    group: int
    replicas: int
    gpus_per_replica: int
    intended_s: int
    work_s: int

    @property
    def gpu_s(self) -> int:
        """GPU-seconds it asks for."""
        return self.replicas * self.gpus_per_replica * self.work_s


def leaf_shares(config: LabConfig) -> dict[str, float]:
    """Share of every team: product of its weights among its siblings, down the tree."""
    total = sum(p.weight for p in config.programmes)
    of = {p.name: p.weight / total if total else 0.0 for p in config.programmes}
    below: dict[str, int] = {}
    for team in config.teams:
        below[team.programme] = below.get(team.programme, 0) + team.weight
    return {
        leaf_name(t): of[t.programme] * t.weight / below[t.programme] if below[t.programme] else 0.0
        for t in config.teams
    }


def leaf_name(team: Team) -> str:
    """Name of a team's budget: programme/team."""
    return f"{team.programme}/{team.name}"


def make_jobs(config: LabConfig, seed: int) -> tuple[WorkJob, ...]:
    """Draw all jobs of the lab, in order of submission; ``order`` is their position, ids tell the class.

    Raises
    ------
    InputError
        When the classes with a stated number of jobs alone exceed the demand.
    """
    gpus = config.cluster.nodes * config.cluster.gpus_per_node
    left_gpu_s = config.demand * gpus * config.days * 86_400
    calendar = Calendar(config, seed)
    jobs: list[WorkJob] = []
    for name, cls in config.classes.items():
        if cls.jobs_per_day is not None:
            rng = stream(seed, "class", name)
            drafts = list(_groups(rng, cls, round(cls.jobs_per_day * config.days / _mean_group(cls)), 0))
            left_gpu_s -= sum(d.gpu_s for d in drafts)
            jobs += _finish(config, calendar, name, cls, drafts, rng)
    if left_gpu_s < 0:
        message = "is less than the classes with jobs_per_day alone ask for; raise it or have fewer of these jobs"
        raise InputError([Issue("demand", "demand", message)])
    shares = sum(cls.demand_share or 0.0 for cls in config.classes.values())
    for name, cls in config.classes.items():
        if cls.demand_share is not None:
            rng = stream(seed, "class", name)
            drafts = _until(rng, cls, left_gpu_s * cls.demand_share / shares)
            jobs += _finish(config, calendar, name, cls, drafts, rng)
    return _numbered(jobs)


def _mean_group(cls: JobClass) -> float:
    return (cls.group[0] + cls.group[1]) / 2


def _groups(rng: np.random.Generator, cls: JobClass, count: int, first: int) -> Iterator[Draft]:
    """So many groups of equal shape; every job of a group has work of its own."""
    sizes = draw_from(rng, cls.sizes, count)
    lengths = rng.integers(cls.group[0], cls.group[1] + 1, size=count)
    jobs = int(lengths.sum())
    intended = draw_spread(rng, cls.work, jobs)
    early = rng.random(jobs) < cls.early_end
    early_s = draw_spread(rng, cls.early_work, jobs) if cls.early_work is not None else intended
    work = np.where(early, np.minimum(early_s, intended), intended)
    at = 0
    for i, (size, length) in enumerate(zip(sizes, lengths.tolist(), strict=True)):
        replicas, gpus = shape_of(size)
        for j in range(at, at + length):
            yield Draft(first + i, replicas, gpus, int(intended[j]), int(work[j]))
        at += length


def _until(rng: np.random.Generator, cls: JobClass, target_gpu_s: float) -> list[Draft]:
    """Groups until their work comes as near to the target as whole jobs can."""
    drafts: list[Draft] = []
    sum_gpu_s, group = 0, 0
    while sum_gpu_s < target_gpu_s:
        for draft in _groups(rng, cls, _BLOCK, group):
            if sum_gpu_s + draft.gpu_s / 2 > target_gpu_s:  # further off with it than without
                return drafts
            drafts.append(draft)
            sum_gpu_s += draft.gpu_s
        group += _BLOCK
    return drafts


def _teams_of(config: LabConfig, name: str, cls: JobClass) -> dict[Team, float]:
    """How likely each team is to bring a group of the class: by its people, or by its share and appetite."""
    shares = leaf_shares(config)
    return {
        team: config.profiles[team.profile].get(name, 0.0)
        * (team.users if cls.jobs_per_day is not None else shares[leaf_name(team)] * team.appetite)
        for team in config.teams
    }


@dataclass(frozen=True, slots=True)
class _Ask:
    """What a group is asked for, alike for all its jobs."""

    team: Team
    user: str
    submitted_s: int
    priority: Priority
    min_runtime_s: int
    resumable: bool
    checkpoint_s: int
    restart_cost_s: int
    funding: Funding
    required_level: str | None
    preferred_level: str | None


def _asks(
    config: LabConfig, calendar: Calendar, name: str, cls: JobClass, count: int, rng: np.random.Generator
) -> list[_Ask]:
    """Give every group a team, a user, a time, and what is asked for it."""
    teams = draw_from(rng, _teams_of(config, name, cls), count)
    people = rng.random(count)
    priorities = draw_from(rng, cls.priorities, count)
    min_runtime = draw_from(rng, cls.min_runtime, count)
    checkpoint = draw_from(rng, cls.checkpoint, count)
    restart = draw_from(rng, cls.restart_cost, count)
    resumes, wants_any, prefers, requires = (_chances(cls) > rng.random((4, count)).T).T.tolist()
    return [
        _Ask(
            team=team,
            user=f"{leaf_name(team)}/u{int(people[g] * team.users):02}",
            submitted_s=calendar.draw(rng, leaf_name(team), cls.rhythm),
            priority=priorities[g],
            min_runtime_s=min_runtime[g],
            resumable=resumes[g],
            checkpoint_s=checkpoint[g] if resumes[g] else 0,
            restart_cost_s=restart[g] if resumes[g] else 0,
            funding=Funding.ANY if wants_any[g] and cls.funding is Funding.ALLOCATED else cls.funding,
            required_level=cls.required_level if requires[g] else None,
            preferred_level=cls.preferred_level if prefers[g] else None,
        )
        for g, team in enumerate(teams)
    ]


def _chances(cls: JobClass) -> list[float]:
    return [cls.resumable, cls.any_share, cls.preferred_share, cls.required_share]


def _finish(
    config: LabConfig, calendar: Calendar, name: str, cls: JobClass, drafts: list[Draft], rng: np.random.Generator
) -> list[WorkJob]:
    """Jobs of a class, in no order yet and all with the class as id."""
    asks = _asks(config, calendar, name, cls, 1 + max((d.group for d in drafts), default=-1), rng)
    estimates = estimates_s(rng, cls.estimate, np.array([d.intended_s for d in drafts], dtype=np.int64)).tolist()
    states_timeout = (rng.random(len(drafts)) < cls.estimate.timeout_share).tolist()
    behaves = rng.random((len(drafts), 2)).tolist()
    jobs: list[WorkJob] = []
    for draft, estimate_s, states, (opts, inflates) in zip(drafts, estimates, states_timeout, behaves, strict=True):
        ask = asks[draft.group]
        jobs.append(
            WorkJob(
                id=name,
                budget=leaf_name(ask.team),
                user=ask.user,
                submitted_s=ask.submitted_s,
                replicas=draft.replicas,
                gpus_per_replica=draft.gpus_per_replica,
                work_s=draft.work_s,
                priority=ask.priority,
                kind=cls.kind,
                min_runtime_s=min(ask.min_runtime_s, estimate_s),
                timeout_s=estimate_s if states else -1,
                resumable=ask.resumable,
                restart_cost_s=ask.restart_cost_s,
                checkpoint_interval_s=ask.checkpoint_s,
                funding=ask.funding,
                required_level=ask.required_level,
                preferred_level=ask.preferred_level,
                wants_opt_out=opts < ask.team.opts_out,
                inflates=inflates < ask.team.inflates,
            )
        )
    return jobs


def estimates_s(rng: np.random.Generator, estimate: Estimate, intended_s: IntArray) -> IntArray:
    """What users think their jobs will take, in seconds; never less than they do."""
    factor = np.maximum(1.0, estimate.over_median * np.exp(estimate.over_sigma * rng.standard_normal(len(intended_s))))
    thought = np.maximum(estimate.least, np.ceil(intended_s * factor)).astype(np.int64)
    step = np.where(thought > 3_600, 3_600, 300)
    return -(-thought // step) * step


def _numbered(jobs: list[WorkJob]) -> tuple[WorkJob, ...]:
    """Sort by submission and number, ids being the class and the number."""
    jobs = sorted(jobs, key=lambda job: job.submitted_s)
    return tuple(replace(job, id=f"{job.id}-{i:05}", order=i) for i, job in enumerate(jobs))
