"""The answer of a round, and of a check: frozen models that ignore fields they don't know.

Fields that belong to certain actions only are ``None`` on the others and stay in the document as ``null``. Numbers are
never NaN or infinite.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from cpalloc.schema.types import (
    ActionName,
    AtMostMillion,
    Count,
    Flag,
    ForcedBy,
    Instant,
    ReasonCode,
    RunMode,
    SchemaVersion,
    Status,
    StopReason,
)


class AnswerModel(BaseModel):
    """Base of everything answered: frozen, unknown fields ignored, numbers finite."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


def _gpus_tag(value: object) -> str:
    return "devices" if isinstance(value, list | tuple) else "count"


Gpus = Annotated[
    Annotated[Count, Tag("count")] | Annotated[tuple[Count, ...], AtMostMillion, Tag("devices")],
    Discriminator(_gpus_tag),
]
"""The GPUs a replica holds on its node: device indices, or their number where devices are unknown."""

Amount = Annotated[int | float, Field(union_mode="left_to_right")]
"""A finite number; whole numbers stay integers."""


class DecisionPlacement(AnswerModel):
    """Where one replica runs: a node and its GPUs (device indices, or a count where devices are unknown)."""

    node: str
    gpus: Gpus


class Reason(AnswerModel):
    """Why a job waits: a code, a sentence with numbers, the jobs in the way, and how many GPUs are missing."""

    code: ReasonCode
    message: str
    blockers: tuple[str, ...] = ()
    missing_gpus: Count | None = None


class Decision(AnswerModel):
    """What the round decides for one job.

    Attributes
    ----------
    job, action
        Every job of the request has exactly one decision.
    mode, placement
        Of ``start`` and ``keep``; one placement entry a replica.
    promoted
        Of ``keep``: borrowed until now, allocated from now.
    protected_until
        Of ``start`` and ``keep`` when allocated.
    requeue
        Of ``preempt`` and ``lost``: whether the job goes back to the queue.
    lost_gpu_seconds, beneficiaries, forced
        Of ``preempt``: GPUs x lost work (without restart_cost), the starts it makes room for, why it was forced.
    position, starts_by, blocked, reason
        Of ``wait``: rank in its pool's queue, the promise if any, whether the job is one of the blocked ones that the
        tier ``delay`` speaks of, and why it waits.
    """

    job: str
    action: ActionName
    mode: RunMode | None = None
    promoted: Flag | None = None
    placement: tuple[DecisionPlacement, ...] | None = None
    protected_until: Instant | None = None
    requeue: Flag | None = None
    lost_gpu_seconds: Count | None = None
    beneficiaries: tuple[str, ...] | None = None
    forced: ForcedBy | None = None
    position: Count | None = None
    starts_by: Instant | None = None
    blocked: Flag | None = None
    reason: Reason | None = None


class BudgetRow(AnswerModel):
    """Where a budget stands: share, account in GPU-seconds, and what it wants, may claim and got, in GPUs.

    ``ratio`` and ``ratio_after`` are ``None`` where nothing is owed.
    """

    name: str
    share: float
    owed_gpu_seconds: Count
    charged_gpu_seconds: Count
    ratio: float | None
    demand_gpus: Count
    claim_gpus: Count
    entitled_gpus: Count
    granted_gpus: Count
    borrowed_gpus: Count
    shortfall_gpus: Count
    ratio_after: float | None


class TierPart(AnswerModel):
    """One of the strictly ordered parts of a tier, e.g. free GPUs before GPUs started borrowed in ``idle``."""

    name: str
    value: Amount | None = None
    bound: Amount | None = None
    gap: float | None = None
    status: Status


class TierRow(AnswerModel):
    """One tier of the objective: value reached, proven bound, relative gap; what is not known is ``None``.

    ``best`` is the value when the tier was settled, which ``bound`` and ``gap`` speak of; ``value`` is that of the
    final decision, which may have used the tier's slack (up to ``limit``). ``bound_source`` is who proved the bound:
    ``trivial`` (no solver), ``cp_sat``, ``highs``, ``lp`` (a linear relaxation), ``pooled`` (one without nodes),
    ``settled`` (nothing is left that would change the value), ``contradicted`` (none is believed).
    """

    name: str
    value: Amount | None = None
    best: Amount | None = None
    limit: Amount | None = None
    bound: Amount | None = None
    gap: float | None = None
    status: Status
    bound_source: str | None = None
    seconds: float = 0.0
    parts: tuple[TierPart, ...] = ()


class DomainRef(AnswerModel):
    """A domain of the topology by level and name."""

    level: str
    name: str


class Broken(AnswerModel):
    """Why a promise of the previous answer is not kept."""

    code: str
    message: str


class ReservationRow(AnswerModel):
    """A promise to a blocked gang: where and by when it starts; ``broken`` for a previous promise not kept."""

    job: str
    domain: DomainRef
    nodes: tuple[str, ...]
    starts_by: Instant
    broken: Broken | None = None


class ShapeRow(AnswerModel):
    """Fragmentation as one gang shape of the mix sees it (policy section 8)."""

    replicas: Count
    gpus_per_replica: Count
    level: str
    gpu_type: str | None = None
    weight: Count
    placeable_now: Count
    stranded_gpus: Amount
    time_to_place_s: Amount


class DomainRow(AnswerModel):
    """What is free in one domain now, and from when all of it could be (``None``: not known)."""

    level: str
    name: str
    free_gpus: Count
    whole_free_nodes: Count
    free_at: Instant | None = None


class Fragmentation(AnswerModel):
    """How usable the free GPUs are after the round's starts (policy section 8).

    ``largest_gang`` maps a level to the GPUs of the largest whole-node gang placeable now inside one of its domains.
    """

    free_gpus: Count
    stranded_gpus: Amount
    largest_gang: dict[str, Count]
    largest_gang_with_borrowed: dict[str, Count]
    expected_time_to_place_s: Amount
    by_shape: tuple[ShapeRow, ...]
    by_domain: tuple[DomainRow, ...]


class Measures(AnswerModel):
    """GPUs after the round, and occupancy = held / in service."""

    installed_gpus: Count
    in_service_gpus: Count
    held_gpus: Count
    held_draining_gpus: Count
    allocated_gpus: Count
    borrowed_gpus: Count
    occupancy: float


class Warning(AnswerModel):
    """Something in the request that was read in the way that harms nobody."""

    code: str
    path: str
    message: str


class Stats(AnswerModel):
    """Sizes, and seconds spent, for those who tune the solver."""

    nodes: Count
    jobs: Count
    compile_s: float
    build_s: float
    solve_s: float
    total_s: float
    variables: Count
    constraints: Count


class Engine(AnswerModel):
    """Versions of what computed the answer."""

    cpalloc: str
    ortools: str


class Allocation(AnswerModel):
    """The answer to a round: one decision per job, sorted by job id, and the account of how good it is.

    ``status`` is ``optimal`` when every tier is proved within the gap asked for.
    """

    schema_version: SchemaVersion
    request_fingerprint: str
    now: Instant
    engine: Engine
    status: Status
    stop_reason: StopReason
    decisions: tuple[Decision, ...]
    budgets: tuple[BudgetRow, ...]
    tiers: tuple[TierRow, ...]
    reservations: tuple[ReservationRow, ...]
    fragmentation: Fragmentation
    measures: Measures
    warnings: tuple[Warning, ...]
    stats: Stats


class CheckViolation(AnswerModel):
    """A rule an allocation breaks, with the jobs and nodes to blame."""

    constraint: str
    message: str
    jobs: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()


class TierValue(AnswerModel):
    """Value of one tier, computed from the answer alone."""

    name: str
    value: Amount | None


class CheckReport(AnswerModel):
    """What ``check`` finds in an allocation: every broken rule, and the value of every tier."""

    violations: tuple[CheckViolation, ...]
    tiers: tuple[TierValue, ...]
