"""A constructed lab as its file states it: every distribution a job, a team or a node is drawn from."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from cpalloc.errors import InputError, Issue
from cpalloc.schema._translate import issues_of
from cpalloc.schema.types import Duration, Funding, Id, Instant, JobKind, PositiveCount, Priority, Weight

SUFFIXES = (".toml", ".json")
"""What the names of files that state a lab end in."""

_SIZE = re.compile(r"([1-9][0-9]{0,5})x([1-9][0-9]{0,2})")

Share = Annotated[float, Field(ge=0, le=1)]
"""A probability, or a part of a whole."""

Amount = Annotated[float, Field(ge=0)]
"""A weight, a rate or a factor."""

PositiveAmount = Annotated[float, Field(gt=0)]


def _some_weight(weights: dict[Any, float]) -> dict[Any, float]:
    if not any(weights.values()):
        raise ValueError("needs at least one entry with a weight above 0")
    return weights


def _is_size(key: str) -> str:
    if _SIZE.fullmatch(key) is None:
        raise ValueError("must be replicas x GPUs per replica, as in 4x8")
    return key


Sizes = Annotated[dict[Annotated[str, AfterValidator(_is_size)], Amount], AfterValidator(_some_weight)]
"""Weights of gang shapes, written ``4x8`` (replicas x GPUs per replica)."""

Durations = Annotated[dict[Duration, Amount], AfterValidator(_some_weight)]
"""Weights of durations."""


class LabModel(BaseModel):
    """Base of all tables of the file: frozen, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Spread(LabModel):
    """A log-normal duration in seconds; what falls outside ``least`` … ``most`` is set to them."""

    median: Annotated[Duration, Field(gt=0)]
    sigma: Amount
    most: Annotated[Duration, Field(gt=0)]
    least: Annotated[Duration, Field(gt=0)] = 1


class LabCluster(LabModel):
    """Equal nodes in racks in blocks; the last rack and block may be partial."""

    nodes: PositiveCount
    gpus_per_node: PositiveCount
    gpu_type: Id
    nodes_per_rack: PositiveCount
    racks_per_block: PositiveCount


class Rhythm(LabModel):
    """Relative rates of submission by hour of the day (24) and day of the week (7, Monday first)."""

    hourly: Annotated[tuple[Amount, ...], Field(min_length=24, max_length=24)]
    daily: Annotated[tuple[Amount, ...], Field(min_length=7, max_length=7)]


class Activity(LabModel):
    """How unevenly a team works over the weeks.

    ``idle_week``: probability that a week of a team sees no submission. ``bursts_per_week``: mean number of bursts, of
    ``burst_days`` (uniform, days) each, in which its rate is multiplied by ``burst_factor`` (uniform).
    """

    idle_week: Share
    bursts_per_week: Amount
    burst_days: tuple[PositiveAmount, PositiveAmount]
    burst_factor: tuple[PositiveAmount, PositiveAmount]


class Estimate(LabModel):
    """How users judge how long a job takes, before it has failed early.

    The estimate is the intended work times a log-normal factor (never below 1), at least ``least``, rounded up to five
    minutes, above an hour to hours. ``timeout_share`` of the jobs state it as their timeout; no minimum runtime is
    longer.
    """

    timeout_share: Share
    over_median: Annotated[float, Field(ge=1)]
    over_sigma: Amount
    least: Annotated[Duration, Field(gt=0)]


class JobClass(LabModel):
    """One kind of work.

    Exactly one of ``jobs_per_day`` (of the lab) and ``demand_share`` is given. Demand shares divide the demand that the
    classes with a number of jobs leave. ``group``: jobs come in groups of this many equal ones (uniform between both).
    ``rhythm``: 1 follows the rhythm of day and week fully, 0 not at all. ``early_end`` of the jobs end early, after
    ``early_work``. ``checkpoint`` and ``restart_cost`` are of resumable jobs; ``any_share`` of those that are not
    borrowed have funding ``any``.
    """

    kind: JobKind = JobKind.BATCH
    jobs_per_day: PositiveAmount | None = None
    demand_share: PositiveAmount | None = None
    group: tuple[PositiveCount, PositiveCount] = (1, 1)
    rhythm: Share = 1.0
    sizes: Sizes
    work: Spread
    early_end: Share = 0.0
    early_work: Spread | None = None
    estimate: Estimate
    min_runtime: Durations
    funding: Funding = Funding.ALLOCATED
    any_share: Share = 0.0
    resumable: Share = 0.0
    checkpoint: Durations = Field(default_factory=lambda: {0: 1.0})
    restart_cost: Durations = Field(default_factory=lambda: {0: 1.0})
    priorities: Annotated[dict[Priority, Amount], AfterValidator(_some_weight)] = Field(
        default_factory=lambda: {Priority.NORMAL: 1.0}
    )
    preferred_level: Id | None = None
    preferred_share: Share = 0.0
    required_level: Id | None = None
    required_share: Share = 0.0


class Programme(LabModel):
    """A vertex at the top of the budget tree."""

    name: Id
    weight: Weight


class Team(LabModel):
    """A leaf of the budget tree and its habits.

    ``appetite``: relative demand per share; a team of appetite 2 asks for twice as much of its share as one of 1.
    ``profile``: which classes its work is made of. ``inflates`` and ``opts_out``: probabilities, for each job, that it
    shouts a higher priority than it has, and that it asks not to be preempted (policy ``priority`` only).
    """

    name: Id
    programme: Id
    weight: Weight
    appetite: Amount
    users: PositiveCount
    profile: Id
    inflates: Share
    opts_out: Share


class Failures(LabModel):
    """Nodes that break: at a constant rate; ``drained_share`` of them are noticed in time and drained first."""

    per_node_month: Amount
    drained_share: Share
    repair: Spread


class Drains(LabModel):
    """Planned work on whole racks, which drain for ``notice`` before and are down for ``work``."""

    racks_per_month: Amount
    hour: Annotated[int, Field(ge=0, le=23)]
    notice: Duration
    work: Spread


class LabConfig(LabModel):
    """A lab: what is offered to its cluster, by whom and when, and what happens to its nodes.

    ``demand``: GPU-seconds of all jobs submitted in ``days`` days, over the GPU-seconds the cluster has in that time.
    """

    name: Id
    start: Instant
    days: PositiveCount
    demand: PositiveAmount
    cluster: LabCluster
    rhythm: Rhythm
    activity: Activity
    profiles: dict[Id, dict[Id, Amount]]
    programmes: Annotated[tuple[Programme, ...], Field(min_length=1)]
    teams: Annotated[tuple[Team, ...], Field(min_length=1)]
    classes: Annotated[dict[Id, JobClass], Field(min_length=1)]
    failures: Failures
    drains: Drains


def load_lab(path: Path) -> LabConfig:
    """Read a lab from its file: TOML, or the same as JSON.

    Raises
    ------
    InputError
        Every issue, each naming the key, as in ``lab.toml: classes.debug.work.median``.
    """
    path = Path(path)
    try:
        return parse_lab(_document(path))
    except InputError as error:
        raise InputError([_in_file(issue, path) for issue in error.issues]) from None


def parse_lab(document: Mapping[str, Any]) -> LabConfig:
    """Read a lab from a mapping, as it stands in TOML or JSON.

    Raises
    ------
    InputError
        Every issue, each naming the key, as in ``classes.debug.work.median``.
    """
    try:
        config = LabConfig.model_validate(document)
    except ValidationError as error:
        raise InputError(issues_of(error, document)) from None
    issues = list(_contradictions(config))
    if issues:
        raise InputError(issues)
    return config


def _document(path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
        return json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError([Issue("file", "", f"cannot be read: {error}")]) from None
    except tomllib.TOMLDecodeError as error:
        raise InputError([Issue("toml", "", f"is not TOML: {error}")]) from None
    except ValueError as error:
        raise InputError([Issue("json", "", f"is not JSON: {error}")]) from None


def shape_of(size: str) -> tuple[int, int]:
    """Replicas and GPUs per replica of a size such as ``4x8``."""
    replicas, gpus = size.split("x")
    return int(replicas), int(gpus)


def _in_file(issue: Issue, path: Path) -> Issue:
    return Issue(issue.code, f"{path.name}: {issue.path}" if issue.path else str(path), issue.message)


def _contradictions(config: LabConfig) -> Iterator[Issue]:
    """What the parts of a lab must agree on."""
    yield from _team_issues(config)
    for profile, mix in config.profiles.items():
        for name in mix.keys() - config.classes.keys():
            yield Issue("unknown_class", f"profiles.{profile}.{name}", "is not among the classes")
    for name, cls in config.classes.items():
        yield from _class_issues(config, name, cls)
    for low, high, key in (
        (*config.activity.burst_days, "activity.burst_days"),
        (*config.activity.burst_factor, "activity.burst_factor"),
    ):
        if low > high:
            yield Issue("range", key, "must be [least, most]")
    if not any(config.rhythm.hourly):
        yield Issue("range", "rhythm.hourly", "needs an hour with a rate above 0")
    if not any(config.rhythm.daily):
        yield Issue("range", "rhythm.daily", "needs a day with a rate above 0")


def _team_issues(config: LabConfig) -> Iterator[Issue]:
    programmes = [p.name for p in config.programmes]
    names = programmes + [f"{t.programme}/{t.name}" for t in config.teams]
    for name in {n for n in names if names.count(n) > 1}:
        yield Issue("duplicate_id", "teams", f"`{name}` is there twice")
    for i, programme in enumerate(config.programmes):
        if not any(t.programme == programme.name for t in config.teams):
            yield Issue("empty", f"programmes[{i}]", f"`{programme.name}` has no team")
    for i, team in enumerate(config.teams):
        if team.programme not in programmes:
            yield Issue("unknown_programme", f"teams[{i}].programme", f"`{team.programme}` is not a programme")
        if team.profile not in config.profiles:
            yield Issue("unknown_profile", f"teams[{i}].profile", f"`{team.profile}` is not among the profiles")


def _class_issues(config: LabConfig, name: str, cls: JobClass) -> Iterator[Issue]:
    at = f"classes.{name}"
    if (cls.jobs_per_day is None) == (cls.demand_share is None):
        yield Issue("amount", at, "needs exactly one of jobs_per_day and demand_share")
    if cls.group[0] > cls.group[1]:
        yield Issue("range", f"{at}.group", "must be [least, most]")
    if cls.early_end and cls.early_work is None:
        yield Issue("missing", f"{at}.early_work", "is required where jobs end early")
    for size in cls.sizes:
        replicas, gpus = shape_of(size)
        if gpus > config.cluster.gpus_per_node or replicas * gpus > config.cluster.nodes * config.cluster.gpus_per_node:
            yield Issue("never_fits", f"{at}.sizes.{size}", "is larger than the cluster or one of its nodes")
    for level in (cls.preferred_level, cls.required_level):
        if level not in (None, "rack", "block"):
            yield Issue("unknown_level", at, f"`{level}` is not a level; use rack or block")
    if not any(config.profiles.get(team.profile, {}).get(name) for team in config.teams):
        yield Issue("no_team", at, "is in the profile of no team")
