"""Instants as integer microseconds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


def to_us(instant: datetime) -> int:
    """Microseconds since the epoch of an aware instant, exactly."""
    return (instant - EPOCH) // MICROSECOND


def from_us(microseconds: int) -> datetime:
    """The aware UTC instant of microseconds since the epoch."""
    return EPOCH + microseconds * MICROSECOND
