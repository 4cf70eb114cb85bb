"""The scalar types of the wire: instants, durations, exact decimals, ids, counts, and the closed lists of words."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, StringConstraints, WithJsonSchema
from pydantic_core import PydanticCustomError

MAX_COUNT = 10**6
"""Most nodes, jobs, budgets, list entries and GPUs a round may have."""

MAX_GPU_SECONDS = 10**15
"""Largest amount of GPU-seconds (and of any node resource)."""

MAX_WEIGHT = 10**6
"""Largest weight of a budget or a shape."""

_INSTANT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?(?:[Zz]|[+-][0-9]{2}:[0-9]{2})"
)
_DURATION = re.compile(
    r"P(?=[0-9T])(?:([0-9]{1,15})W)?(?:([0-9]{1,15})D)?"
    r"(?:T(?=[0-9])(?:([0-9]{1,15})H)?(?:([0-9]{1,15})M)?(?:([0-9]{1,15})S)?)?"
)
_DURATION_SCHEMA_PATTERN = r"^P(?=[0-9T])([0-9]+W)?([0-9]+D)?(T(?=[0-9])([0-9]+H)?([0-9]+M)?([0-9]+S)?)?$"
_UNIT_SECONDS = (604_800, 86_400, 3_600, 60, 1)
_DECIMAL = re.compile(r"-?[0-9]{1,15}(?:\.[0-9]{1,30})?")
_DECIMAL_PLACES = 6


def parse_instant(value: object) -> datetime:
    """Parse an instant and normalise it to UTC.

    Parameters
    ----------
    value : str or datetime
        RFC 3339 with offset and at most six decimals of a second, or an aware ``datetime``.

    Returns
    -------
    datetime
        Aware, in UTC, to the microsecond.

    Raises
    ------
    PydanticCustomError
        Type ``instant``, when the value is neither.

    Examples
    --------
    >>> parse_instant("2026-11-29T13:00:00+01:00").isoformat()
    '2026-11-29T12:00:00+00:00'
    """
    if isinstance(value, str):
        if _INSTANT.fullmatch(value) is None:
            raise PydanticCustomError(
                "instant", "must be RFC 3339 with offset and at most microseconds, as in 2026-11-29T12:00:00Z"
            )
        try:
            return datetime.fromisoformat(value.upper()).astimezone(UTC)  # fromisoformat knows no "z"
        except (ValueError, OverflowError):
            raise PydanticCustomError("instant", "names a date, time or offset that does not exist") from None
    if isinstance(value, datetime):
        if value.tzinfo is None or value.utcoffset() is None:
            raise PydanticCustomError("instant", "must carry an offset; give the datetime a tzinfo")
        try:
            return value.astimezone(UTC)
        except OverflowError:
            raise PydanticCustomError("instant", "lies outside the years 1 to 9999 in UTC") from None
    raise PydanticCustomError("instant", "must be an RFC 3339 string with offset, as in 2026-11-29T12:00:00Z")


def format_instant(value: datetime) -> str:
    """Write an aware instant as RFC 3339 in UTC with ``Z``; microseconds only where there are some.

    Examples
    --------
    >>> format_instant(parse_instant("2026-11-29T12:00:00.5Z"))
    '2026-11-29T12:00:00.500000Z'
    """
    if value.tzinfo is not UTC:
        value = value.astimezone(UTC)
    return value.isoformat().removesuffix("+00:00") + "Z"


def parse_duration(value: object) -> int:
    """Parse a duration to whole seconds.

    Parameters
    ----------
    value : int or str
        Seconds, or ISO 8601 made of weeks, days, hours, minutes and seconds. Years, months and fractions are refused.

    Returns
    -------
    int
        Seconds, at least 0.

    Raises
    ------
    PydanticCustomError
        Type ``duration`` when it is not a duration, ``range`` when it is negative.

    Examples
    --------
    >>> parse_duration("P1DT2H")
    93600
    """
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 0:
            raise PydanticCustomError("range", "must not be negative")
        return value
    if isinstance(value, str):
        match = _DURATION.fullmatch(value)
        if match is not None:
            return sum(int(n) * unit for n, unit in zip(match.groups(), _UNIT_SECONDS, strict=True) if n is not None)
    raise PydanticCustomError(
        "duration",
        "must be whole seconds or ISO 8601 of weeks, days, hours, minutes and seconds, as in 7200 or PT2H; "
        "years, months and fractions are refused",
    )


def parse_decimal(value: object) -> Decimal:
    """Parse a decimal of at most six places, exactly.

    Floats stand for the shortest decimal that prints them, so that 0.05 is 5/100.

    Parameters
    ----------
    value : int, float, str or Decimal
        A finite number; strings in plain notation.

    Returns
    -------
    Decimal
        The exact value.

    Raises
    ------
    PydanticCustomError
        Type ``decimal`` when it is not a finite number of at most six places.

    Examples
    --------
    >>> parse_decimal(0.05)
    Decimal('0.05')
    """
    number: Decimal | None = None
    if isinstance(value, Decimal):
        number = value
    elif isinstance(value, bool):
        number = None
    elif isinstance(value, int):
        number = Decimal(value)
    elif isinstance(value, float):
        number = Decimal(repr(value))
    elif isinstance(value, str) and _DECIMAL.fullmatch(value) is not None:
        number = Decimal(value)
    if number is None or not number.is_finite():
        raise PydanticCustomError("decimal", "must be a finite number")
    if abs(number) >= 10**15:
        raise PydanticCustomError("decimal", "must be below 10^15")
    # below 10^15 with at most six places quantize is exact: 21 digits of the default context's 28
    exact = number.quantize(Decimal(1).scaleb(-_DECIMAL_PLACES))
    if exact != number:
        raise PydanticCustomError("decimal", "must have at most six decimal places")
    whole = exact.to_integral_value()
    return whole if whole == exact else exact.normalize()


def _decimal_to_json(value: Decimal) -> float:
    return int(value) if value == value.to_integral_value() else float(value)


def _at_most(limit: int, code: str, message: str) -> Callable[[Any], Any]:
    """Refuse longer lists before anything in them is looked at."""

    def check(value: Any) -> Any:
        if isinstance(value, list | tuple) and len(value) > limit:
            raise PydanticCustomError(code, message)
        return value

    return check


def _bounded_gpu_seconds(value: object) -> object:
    if isinstance(value, int) and value > MAX_GPU_SECONDS:
        raise PydanticCustomError("too_large", "must be at most 10^15")
    return value


def _version_is_integer(value: object) -> object:
    """Keep 1.0 and True, which equal 1, out of the literal."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise PydanticCustomError("type", "must be the integer 1")
    return value


SchemaVersion = Annotated[Literal[1], BeforeValidator(_version_is_integer)]
"""The version of the wire format a document is written in."""

Instant = Annotated[
    datetime, BeforeValidator(parse_instant), PlainSerializer(format_instant, return_type=str, when_used="json")
]
"""RFC 3339 with offset; an aware datetime in UTC inside, written with ``Z``."""

Duration = Annotated[
    int,
    BeforeValidator(parse_duration),
    WithJsonSchema(
        {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": _DURATION_SCHEMA_PATTERN}]},
        mode="validation",
    ),
]
"""Whole seconds, read from an integer or from ISO 8601 of weeks to seconds; written as an integer."""

Decimal6 = Annotated[
    Decimal,
    BeforeValidator(parse_decimal),
    PlainSerializer(_decimal_to_json, return_type=float, when_used="json"),
    WithJsonSchema(
        {"anyOf": [{"type": "number"}, {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?$"}]}, mode="validation"
    ),
]
"""A number of at most six decimal places, held exactly; written as a JSON number."""

Id = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._:/@+-]{1,253}$")]
"""Name of a node, domain, level, budget, job, GPU type or resource."""

LabelValue = Annotated[str, StringConstraints(max_length=253)]
"""Value of a node label; may be empty."""

Count = Annotated[int, Field(strict=True, ge=0)]
"""A whole number of at least 0; neither booleans nor floats."""

PositiveCount = Annotated[int, Field(strict=True, ge=1)]
"""A whole number of at least 1."""

GpuCount = Annotated[int, Field(strict=True, ge=0, le=MAX_COUNT)]
"""A number of GPUs that exist or ran, at most 10^6."""

GpuSeconds = Annotated[int, BeforeValidator(_bounded_gpu_seconds), Field(strict=True, ge=0)]
"""GPU-seconds, at most 10^15; more is the issue ``too_large``."""

Weight = Annotated[int, Field(strict=True, ge=0, le=MAX_WEIGHT)]
"""A relative weight, 0 to 10^6."""

Flag = Annotated[bool, Field(strict=True)]
"""A boolean; words and numbers are refused."""

AtMostMillion = BeforeValidator(_at_most(MAX_COUNT, "too_many", "has more than 10^6 entries"))
"""Marks a list that may have at most 10^6 entries."""


class NodeState(StrEnum):
    """State of a node; only ready nodes take new work and are in service."""

    READY = "ready"
    DRAINING = "draining"
    DOWN = "down"


class Priority(StrEnum):
    """Order of jobs inside a budget, from last to first; it never preempts."""

    LOW = "low"
    NORMAL = "normal"
    HIGH = "high"
    URGENT = "urgent"
    IMMEDIATE = "immediate"


class JobKind(StrEnum):
    """What a job is for; only reported."""

    BATCH = "batch"
    INTERACTIVE = "interactive"


class Funding(StrEnum):
    """What a job may run on (policy section 2)."""

    ALLOCATED = "allocated"
    BORROWED = "borrowed"
    ANY = "any"


class RunMode(StrEnum):
    """How a job runs: charged and protected, or neither."""

    ALLOCATED = "allocated"
    BORROWED = "borrowed"


class ActionName(StrEnum):
    """What a round decides for a job."""

    START = "start"
    KEEP = "keep"
    PREEMPT = "preempt"
    WAIT = "wait"
    LOST = "lost"


class ForcedBy(StrEnum):
    """Why a job is preempted although nobody needs its GPUs."""

    DRAIN = "drain"
    STOPPING = "stopping"


class ReasonCode(StrEnum):
    """Why a job waits."""

    CAPACITY = "capacity"
    TOPOLOGY = "topology"
    CLAIM = "claim"
    ORDER = "order"
    RESERVED = "reserved"
    PROTECTED = "protected"
    BUDGET_LIMIT = "budget_limit"
    NO_FUNDING = "no_funding"
    NEVER_FITS = "never_fits"
    INADMISSIBLE = "inadmissible"
    NOT_PROVED = "not_proved"


class TierName(StrEnum):
    """The tiers of the objective, in their default order (policy section 7)."""

    STARVATION = "starvation"
    SHORTFALL = "shortfall"
    INVERSION = "inversion"
    PREEMPTION = "preemption"
    DELAY = "delay"
    IDLE = "idle"
    LEND = "lend"
    FRAGMENTATION = "fragmentation"
    LOCALITY = "locality"
    CHURN = "churn"


class Status(StrEnum):
    """How good an answer, or one tier of it, is."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"


class StopReason(StrEnum):
    """Why the solver stopped."""

    PROVED = "proved"
    TIME_LIMIT = "time_limit"
    CANCELLED = "cancelled"
    GUARD_FAILED = "guard_failed"
