"""A scenario: a workload, what is changed of it, the policy it is run under, and the site's numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, field_validator
from pydantic_core import PydanticCustomError

from cpalloc.errors import InputError, Issue
from cpalloc.schema import Policy as SitePolicy
from cpalloc.schema._translate import issues_of, join_path
from cpalloc.schema.types import Duration, Id, PositiveCount, Weight, parse_duration
from cpalloc.sim.config import SimConfig
from cpalloc.sim.lab.config import SUFFIXES
from cpalloc.sim.policies.registry import PolicySpec
from cpalloc.sim.recipe import recipe_of

MAX_SEED = 2**31 - 1
"""Largest seed, as on the wire."""

MAX_SEEDS = 10_000
"""Most seeds of a scenario."""

_SPAN = re.compile(r"(?=\d)(?:(\d{1,9})w)?(?:(\d{1,9})d)?(?:(\d{1,9})h)?(?:(\d{1,9})m(?:in)?)?(?:(\d{1,9})s)?")
_SPAN_UNITS_S = (604_800, 86_400, 3_600, 60, 1)
_SEEDS = re.compile(r"(\d{1,10})(?:-(\d{1,10}))?")
_SPANS = ("until", "submissions", "round_interval", "heartbeat", "sample_interval", "warm_up", "prior")
_SITE_SPANS = ("window", "charge_horizon", "max_min_runtime", "start_timeout")

Factor = Annotated[float, Field(gt=0, le=1_000)]
"""How many times as much."""


class WorkloadSource(BaseModel):
    """Where the workload is read from, as :func:`cpalloc.sim.files.read_workload` takes it.

    ``path``: a lab (TOML or JSON), a saved workload or a trace; ``nodes``: a file that lists the cluster's nodes, or
    their number; ``recipe``: what traces lack (:class:`cpalloc.sim.recipe.Recipe`), as far as it differs from the
    default.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: Path
    format: str | None = None
    nodes: PositiveCount | Path | None = None
    gpus_per_node: PositiveCount | None = None
    recipe: dict[str, Any] | None = None
    events: Path | None = None

    def files(self) -> tuple[Path, ...]:
        """All files it is read from."""
        return tuple(p for p in (self.path, self.nodes, self.events) if isinstance(p, Path))

    def beside(self, folder: Path) -> WorkloadSource:
        """Take relative paths as from ``folder``."""
        given = {name: getattr(self, name) for name in ("path", "nodes", "events")}
        found = {name: (folder / p).resolve() for name, p in given.items() if isinstance(p, Path)}
        return self.model_copy(update=found)


class Scenario(SitePolicy):
    """One thing to simulate: the numbers of the site's policy, and everything else that decides what comes out.

    Lengths of time are written as on the wire or as in ``8h`` and ``1d12h``, and are seconds here.

    Attributes
    ----------
    seeds
        One simulation each: of the lab or the recipe, of copies of jobs, and of the solver.
    until, round_interval, heartbeat, sample_interval, warm_up, prior
        As in :class:`cpalloc.sim.config.SimConfig`; without ``until``, until nothing is left to happen.
    submissions
        How long jobs are submitted: those of later are left out, so that a queue can be watched until it is empty.
    nodes, demand
        How many times the nodes, and the work, of the workload.
    weights
        New weights of budgets, in all budget trees of the workload.
    """

    name: Annotated[str, StringConstraints(pattern=r"^[^\s\x00-\x1f](?:[^\x00-\x1f]{0,78}[^\s\x00-\x1f])?$")]
    workload: WorkloadSource
    policy: PolicySpec
    seeds: tuple[int, ...] = (0,)
    until: Annotated[Duration, Field(gt=0)] | None = None
    submissions: Annotated[Duration, Field(gt=0)] | None = None
    round_interval: Duration = 0
    heartbeat: Duration = 0
    sample_interval: Duration = 3_600
    warm_up: Duration = 0
    prior: Annotated[Duration, Field(gt=0)] | None = None
    nodes: Factor | None = None
    demand: Factor | None = None
    weights: dict[Id, Weight] = Field(default_factory=dict)

    @field_validator(*_SPANS, *_SITE_SPANS, mode="before")
    @classmethod
    def _read_span(cls, value: object) -> object:
        return None if value is None else parse_span(value)

    @field_validator("seeds", mode="before")
    @classmethod
    def _read_seeds(cls, value: object) -> object:
        return parse_seeds(value)

    @property
    def site(self) -> SitePolicy:
        """The numbers of the site's policy."""
        return SitePolicy.model_construct(**{name: getattr(self, name) for name in SitePolicy.model_fields})

    def config(self, seed: int) -> SimConfig:
        """How it is simulated with a seed."""
        return SimConfig(
            site=self.site,
            round_interval_s=self.round_interval,
            heartbeat_s=self.heartbeat,
            until_s=self.until,
            sample_interval_s=self.sample_interval,
            warm_up_s=self.warm_up,
            prior_s=self.prior,
            seed=seed,
        )


def parse_scenario(document: Mapping[str, Any], *, folder: Path | None = None, where: str = "") -> Scenario:
    """Read a scenario from a mapping, as it stands in TOML or JSON.

    Parameters
    ----------
    document : mapping
        Fields of :class:`Scenario`; ``workload`` may be a path and ``policy`` a name instead of a table.
    folder : Path, optional
        What relative paths start from; default: the working directory.
    where : str
        Path that issues begin with.

    Raises
    ------
    InputError
        With every issue.
    """
    full = expanded(document)
    issues: list[Issue] = []
    scenario = None
    try:
        scenario = Scenario.model_validate(full)
    except ValidationError as error:
        issues += issues_of(error, full, where)
    issues += _recipe_issues(full, where)
    if issues or scenario is None:
        raise InputError(issues)
    return scenario.model_copy(update={"workload": scenario.workload.beside(folder or Path.cwd())})


def expanded(document: Mapping[str, Any]) -> dict[str, Any]:
    """Write out what may be written short: ``workload`` as a path, ``policy`` as a name."""
    out = dict(document)
    for key, short in (("workload", "path"), ("policy", "name")):
        if isinstance(out.get(key), str):
            out[key] = {short: out[key]}
    return out


def _recipe_issues(document: Mapping[str, Any], where: str) -> Sequence[Issue]:
    source = document.get("workload")
    recipe = source.get("recipe") if isinstance(source, Mapping) else None
    if not (isinstance(source, Mapping) and isinstance(recipe, Mapping)):
        return ()
    base = join_path(where, "workload")
    if str(source.get("path")).endswith(SUFFIXES):
        return (Issue("recipe", f"{base}.recipe", "is for traces; a lab states all of this itself, so remove it"),)
    try:
        recipe_of(recipe)
    except InputError as error:
        return [Issue(i.code, f"{base}.{i.path}", i.message) for i in error.issues]
    return ()


def parse_span(value: object) -> int:
    """Read a length of time, in seconds: ``8h``, ``1d12h``, ``90min``, ISO 8601, or whole seconds.

    Raises
    ------
    PydanticCustomError
        Type ``duration``, when it is none; ``range`` when it is negative.

    Examples
    --------
    >>> parse_span("1d12h"), parse_span("PT90M"), parse_span(60)
    (129600, 5400, 60)
    """
    match = _SPAN.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is not None:
        return sum(int(n) * unit_s for n, unit_s in zip(match.groups(), _SPAN_UNITS_S, strict=True) if n)
    try:
        return parse_duration(value)
    except PydanticCustomError as error:
        if error.type == "range":
            raise
        message = "must be a length of time such as 8h, 30d, 1d12h, PT8H, or whole seconds"
        raise PydanticCustomError("duration", message) from None


def parse_seeds(value: object) -> tuple[int, ...]:
    """Read seeds: a number, a list of numbers, or a text such as ``1-10`` or ``1,4,7-9``.

    Raises
    ------
    PydanticCustomError
        Type ``seeds``.

    Examples
    --------
    >>> parse_seeds("1-3,8")
    (1, 2, 3, 8)
    """
    seeds: list[int] = []
    for part in _parts(value):
        if isinstance(part, int) and not isinstance(part, bool):
            first = last = part
        else:
            match = _SEEDS.fullmatch(part.strip()) if isinstance(part, str) else None
            if match is None:
                raise PydanticCustomError("seeds", "must be seeds such as 1-10, or a list of whole numbers")
            first, last = int(match[1]), int(match[2] or match[1])
        # In all of them: many short texts must not become a list that no memory holds.
        if not 0 <= first <= last <= MAX_SEED or len(seeds) + last - first >= MAX_SEEDS:
            message = f"must be from 0 to {MAX_SEED}, the lower first, and at most {MAX_SEEDS} of them"
            raise PydanticCustomError("seeds", message)
        seeds += range(first, last + 1)
    if not seeds or len(set(seeds)) < len(seeds):
        raise PydanticCustomError("seeds", "must be one seed or more, each of them once")
    return tuple(seeds)


def _parts(value: object) -> Sequence[object]:
    if isinstance(value, str):
        return value.split(",")
    return value if isinstance(value, list | tuple) else [value]
