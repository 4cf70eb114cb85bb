"""A round as it is asked: frozen models that refuse fields they don't know.

The models hold what one object can say about itself. What several objects must agree on (ids, parents, placements) is
in :mod:`cpalloc.schema.validate`, so that all of it can be reported at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    field_validator,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError

from cpalloc.schema.answer import Gpus, ReservationRow
from cpalloc.schema.types import (
    AtMostMillion,
    Count,
    Decimal6,
    Duration,
    Flag,
    Funding,
    GpuCount,
    GpuSeconds,
    Id,
    Instant,
    JobKind,
    LabelValue,
    NodeState,
    PositiveCount,
    Priority,
    RunMode,
    SchemaVersion,
    TierName,
    Weight,
)

DEFAULT_SHORTFALL_SLACK = Decimal("0.05")
"""Slack of the tier ``shortfall`` where none is given."""

MAX_POLICY_SECONDS = 10**9
"""Longest duration of a policy, about 31 years: 10^6 GPUs for that long are 10^15 GPU-seconds."""

CLUSTER_NEEDS = "needs `nodes` (with `levels`) or `graph`"
CLUSTER_TAKES = "takes either `levels` and `nodes`, or `graph`, not both"


class RequestModel(BaseModel):
    """Base of everything asked: frozen, unknown fields refused, numbers finite."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Node(RequestModel):
    """A node and its GPUs, numbered 0 to ``gpus`` - 1.

    Attributes
    ----------
    domains
        Level name to domain name; a missing level makes the node a domain of its own there.
    resources
        Whole amounts of anything besides GPUs.
    gpu_groups
        GPUs joined by NVLink or NUMA; disjoint, not necessarily all.
    unhealthy_gpus
        Out of service; a job on one keeps it.
    """

    name: Id
    gpu_type: Id
    gpus: GpuCount
    domains: dict[Id, Id] = Field(default_factory=dict)
    state: NodeState = NodeState.READY
    resources: dict[Id, GpuSeconds] = Field(default_factory=dict)
    labels: dict[Id, LabelValue] = Field(default_factory=dict)
    gpu_groups: tuple[tuple[Count, ...], ...] | None = None
    unhealthy_gpus: tuple[Count, ...] = ()


def is_node_link(graph: Mapping[str, Any]) -> bool:
    """Whether a mapping looks like networkx node-link data: a list of vertices, and one of edges or links."""
    edges = [key for key in ("edges", "links") if isinstance(graph.get(key), list)]
    return isinstance(graph.get("nodes"), list) and len(edges) == 1


class Cluster(RequestModel):
    """The nodes and their topology: either ``levels`` (coarse to fine) and ``nodes``, or a node-link ``graph``."""

    name: Id
    levels: tuple[Id, ...] = ()
    nodes: Annotated[tuple[Node, ...], AtMostMillion] = ()
    graph: dict[str, Any] | None = None

    @field_validator("graph")
    @classmethod
    def _node_link(cls, graph: dict[str, Any] | None) -> dict[str, Any] | None:
        if graph is not None and not is_node_link(graph):
            raise PydanticCustomError("graph", "must be node-link data: a list `nodes`, and a list `edges` or `links`")
        return graph

    @model_validator(mode="after")
    def _one_form(self) -> Cluster:
        if self.graph is None and "nodes" not in self.model_fields_set:
            raise PydanticCustomError("cluster_form", CLUSTER_NEEDS)
        if self.graph is not None and (self.nodes or self.levels):
            raise PydanticCustomError("cluster_form", CLUSTER_TAKES)
        return self


class Budget(RequestModel):
    """A vertex of the funding tree; amounts are GPU-seconds and belong to leaves, caps are GPUs."""

    name: Id
    parent: Id | None = None
    weight: Weight
    charged_gpu_seconds: GpuSeconds = 0
    owed_gpu_seconds: GpuSeconds | None = None
    max_gpus: Count | None = None
    max_borrowed_gpus: Count | None = None


class Topology(RequestModel):
    """Level inside one domain of which a gang must, or should, lie."""

    required: Id | None = None
    preferred: Id | None = None


class Placement(RequestModel):
    """Where one replica runs: a node and its GPUs (device indices, or a count where devices are unknown)."""

    node: Id
    gpus: Gpus

    @property
    def num_gpus(self) -> int:
        """How many GPUs the replica holds."""
        return self.gpus if isinstance(self.gpus, int) else len(self.gpus)


class Running(RequestModel):
    """How and where a job runs.

    ``started_at`` is ``None`` for a job that an earlier round placed and that is not up yet. ``allocated_since``
    defaults to ``started_at``; promoted jobs have a later one.
    """

    mode: RunMode
    placed_at: Instant | None = None
    started_at: Instant | None
    allocated_since: Instant | None = None
    checkpointed_at: Instant | None = None
    placement: Annotated[tuple[Placement, ...], AtMostMillion]
    stopping: Flag = False
    utilisation: Annotated[float, Field(strict=True, ge=0)] | None = None


class Job(RequestModel):
    """A job: a gang of equal replicas, pending unless ``running`` says where it runs.

    Sizes and durations have no upper bound here: what is absurd on one pending job must only make that job wait.
    """

    id: Id
    budget: Id
    submitted_at: Instant
    replicas: Count
    gpus_per_replica: Count
    priority: Priority = Priority.NORMAL
    kind: JobKind = JobKind.BATCH
    resources_per_replica: dict[Id, Count] = Field(default_factory=dict)
    max_replicas_per_node: Count | None = None
    exclusive_nodes: Flag = False
    gpu_types: tuple[Id, ...] | None = None
    node_selector: dict[Id, LabelValue] = Field(default_factory=dict)
    exclude_nodes: tuple[Id, ...] = ()
    topology: Topology = Field(default_factory=Topology)
    same_gpu_group: Flag = False
    min_runtime: Duration = 0
    resumable: Flag = False
    funding: Funding | None = None
    timeout: Duration | None = None
    restart_cost: Duration = 0
    running: Running | None = None

    @property
    def size(self) -> int:
        """GPUs of the whole gang."""
        return self.replicas * self.gpus_per_replica


class Finished(RequestModel):
    """A job that ended since the last round; the ledger charges it, solving does not look at it."""

    id: Id
    budget: Id
    mode: RunMode
    gpus: GpuCount
    allocated_since: Instant | None = None
    ended_at: Instant
    outcome: Id | None = None


class Previous(RequestModel):
    """What the caller hands back from the last answer."""

    reservations: Annotated[tuple[ReservationRow, ...], AtMostMillion] = ()


class TierSpec(RequestModel):
    """A tier of the objective and the slack later tiers may give back; read from a bare name as well.

    Without ``slack``, ``shortfall`` gets 0.05 and the others 0.
    """

    name: TierName
    slack: Annotated[Decimal6, Field(ge=0, le=1)] = Decimal(0)

    @model_validator(mode="before")
    @classmethod
    def _normalise(cls, value: object) -> object:
        if isinstance(value, str):
            value = {"name": value}
        if isinstance(value, Mapping) and "slack" not in value and value.get("name") == TierName.SHORTFALL:
            return {**value, "slack": DEFAULT_SHORTFALL_SLACK}
        return value

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Describe both forms: the object and the bare name."""
        described = handler(schema)
        if handler.mode != "validation":
            return described
        return {"anyOf": [{"type": "string", "enum": [str(name) for name in TierName]}, described]}


def tier_problems(tiers: tuple[TierSpec, ...]) -> list[tuple[str, str, str]]:
    """List what is wrong with an order of tiers, as (code, path below the list, message)."""
    problems: list[tuple[str, str, str]] = []
    first: dict[TierName, int] = {}
    for i, tier in enumerate(tiers):
        if first.setdefault(tier.name, i) != i:
            problems.append(("tier_duplicate", f"[{i}]", f"`{tier.name}` is listed twice; keep one"))
        if tier.name is TierName.STARVATION and tier.slack != 0:
            problems.append(("tier_slack", f"[{i}].slack", "`starvation` takes no slack"))
    at = first.get(TierName.PREEMPTION)
    if at is None:
        problems.append(("tier_order", "", "`preemption` may not be dropped; add it before `delay` and `idle`"))
        return problems
    before = [str(n) for n in (TierName.DELAY, TierName.IDLE) if first.get(n, at) < at]
    if before:
        problems.append(("tier_order", f"[{at}]", f"`preemption` must come before `{'` and `'.join(before)}`"))
    return problems


def _checked_tiers(tiers: tuple[TierSpec, ...]) -> tuple[TierSpec, ...]:
    problems = tier_problems(tiers)
    if problems:
        message = "; ".join(m for _, _, m in problems)
        raise PydanticCustomError("several", "{message}", {"message": message, "problems": problems})
    return tiers


def default_tiers() -> tuple[TierSpec, ...]:
    """All tiers in the order of policy section 7, with their default slack."""
    return tuple(TierSpec.model_validate(name) for name in TierName)


class ShapeMix(RequestModel):
    """A gang shape of the fragmentation mix and its weight."""

    replicas: PositiveCount
    gpus_per_replica: PositiveCount
    level: Id = "cluster"
    weight: Weight = 1


class Policy(RequestModel):
    """The site's policy; durations in seconds inside. ``tiers`` is the strict order of the objective."""

    window: Annotated[Duration, Field(gt=0, le=MAX_POLICY_SECONDS)] = 604_800
    charge_horizon: Annotated[Duration, Field(gt=0, le=MAX_POLICY_SECONDS)] = 3_600
    max_min_runtime: Annotated[Duration, Field(le=MAX_POLICY_SECONDS)] = 28_800
    start_timeout: Annotated[Duration, Field(le=MAX_POLICY_SECONDS)] = 900
    preempt_under_share: Flag = False
    reservations: Count = 4
    max_preempted_gpus: Count | None = None
    tiers: Annotated[tuple[TierSpec, ...], AfterValidator(_checked_tiers)] = Field(default_factory=default_tiers)
    shape_mix: Annotated[tuple[ShapeMix, ...], AtMostMillion] | None = None


class Options(RequestModel):
    """How long and how the solver may work; ``time_limit`` in seconds, ``gap`` relative."""

    time_limit: Annotated[Decimal6, Field(ge=Decimal("0.05"), le=3600)] = Decimal(5)
    workers: Annotated[int, Field(strict=True, ge=1, le=1024)] = 2
    seed: Annotated[int, Field(strict=True, ge=0, le=2**31 - 1)] = 0
    deterministic: Flag = False
    deterministic_limit: Annotated[Decimal6, Field(gt=0, le=10**6)] | None = None
    gap: Annotated[Decimal6, Field(ge=0, le=1)] = Decimal(0)


class Round(RequestModel):
    """One question to the allocator: the state of a cluster at an instant, its budgets and its jobs."""

    schema_version: SchemaVersion
    now: Instant
    cluster: Cluster
    budgets: Annotated[tuple[Budget, ...], AtMostMillion]
    jobs: Annotated[tuple[Job, ...], AtMostMillion]
    finished: Annotated[tuple[Finished, ...], AtMostMillion] = ()
    previous: Previous = Field(default_factory=Previous)
    policy: Policy = Field(default_factory=Policy)
    options: Options = Field(default_factory=Options)
