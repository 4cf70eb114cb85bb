"""Instants, durations, decimals and ids at their edges."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from cpalloc.schema.types import (
    Count,
    Decimal6,
    Duration,
    Flag,
    GpuSeconds,
    Id,
    Instant,
    format_instant,
    parse_decimal,
    parse_duration,
    parse_instant,
)

INSTANT: TypeAdapter[datetime] = TypeAdapter(Instant)
DURATION: TypeAdapter[int] = TypeAdapter(Duration)
DECIMAL: TypeAdapter[Decimal] = TypeAdapter(Decimal6)


def refused(adapter: TypeAdapter[Any], value: object) -> str:
    with pytest.raises(ValidationError) as caught:
        adapter.validate_python(value)
    (line,) = caught.value.errors()
    return line["type"]


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("2026-11-29T12:00:00Z", "2026-11-29T12:00:00Z"),
        ("2026-11-29t12:00:00z", "2026-11-29T12:00:00Z"),
        ("2026-11-29T12:00:00+00:00", "2026-11-29T12:00:00Z"),
        ("2026-11-29T01:30:00-10:30", "2026-11-29T12:00:00Z"),
        ("2026-11-29T12:00:00.5Z", "2026-11-29T12:00:00.500000Z"),
        ("2026-11-29T12:00:00.000001Z", "2026-11-29T12:00:00.000001Z"),
        ("2026-11-29T12:00:00.000000Z", "2026-11-29T12:00:00Z"),
        ("2028-02-29T23:59:59Z", "2028-02-29T23:59:59Z"),
    ],
)
def test_instants_are_kept_in_utc_and_written_with_z(text: str, written: str) -> None:
    instant = INSTANT.validate_python(text)
    assert instant.tzinfo is UTC
    assert INSTANT.dump_python(instant, mode="json") == written
    assert INSTANT.dump_python(instant) == instant


@pytest.mark.parametrize(
    "value",
    [
        "2026-11-29T12:00:00",
        "2026-11-29 12:00:00Z",
        "2026-11-29",
        "20261129T120000Z",
        "2026-11-29T12:00Z",
        "2026-11-29T12:00:00.1234567Z",
        "2026-11-29T12:00:00,5Z",
        "2026-11-29T12:00:00+0100",
        "2026-11-29T12:00:60Z",
        "2026-11-29T24:00:00Z",
        "2026-13-01T12:00:00Z",
        "2027-02-29T12:00:00Z",
        "2026-11-29T12:00:00+24:00",
        "2026-11-29T12:00:00Z\n",
        "٢٠٢٦-11-29T12:00:00Z",
        "0001-01-01T00:00:00+01:00",
        "9999-12-31T23:59:59-01:00",
        "",
        0,
        1.5,
        True,
        None,
        datetime(2026, 11, 29),
    ],
)
def test_what_is_no_instant(value: object) -> None:
    assert refused(INSTANT, value) == "instant"


def test_aware_datetimes_are_taken() -> None:
    there = datetime(2026, 11, 29, 13, tzinfo=timezone(timedelta(hours=1)))
    assert parse_instant(there) == datetime(2026, 11, 29, 12, tzinfo=UTC)


offsets = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@settings(deadline=None)
@given(st.datetimes(timezones=offsets, min_value=datetime(2, 1, 1), max_value=datetime(9998, 1, 1)))
def test_instants_come_back_from_their_text(instant: datetime) -> None:
    assert parse_instant(format_instant(instant)) == instant.astimezone(UTC)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (0, 0),
        (7200, 7200),
        ("PT0S", 0),
        ("PT2H", 7200),
        ("PT90M", 5400),
        ("PT86400S", 86400),
        ("P7D", 604800),
        ("P1W", 604800),
        ("P1W2DT3H4M5S", 604800 + 2 * 86400 + 3 * 3600 + 4 * 60 + 5),
        (10**18, 10**18),
    ],
)
def test_durations(value: object, seconds: int) -> None:
    assert DURATION.validate_python(value) == seconds
    assert DURATION.dump_python(DURATION.validate_python(value), mode="json") == seconds


@pytest.mark.parametrize(
    "value",
    ["P", "PT", "P1DT", "P1M", "P1Y", "PT1.5H", "PT0.5S", "PT1,5S", "-PT1H", "+PT1H", "pt1h", "1H", "PT1M1H", "3600",
     "", "PT1H ", "PT1H\n", "PT-1H", "PT٣H", "P1D1W", 1.0, 3600.5, float("nan"), True, False, None, timedelta(hours=1)],
)  # fmt: skip
def test_what_is_no_duration(value: object) -> None:
    assert refused(DURATION, value) == "duration"


def test_negative_durations_are_out_of_range() -> None:
    assert refused(DURATION, -1) == "range"


@settings(deadline=None)
@given(st.tuples(*[st.integers(0, 10**6)] * 5))
def test_durations_add_up(amounts: tuple[int, int, int, int, int]) -> None:
    w, d, h, m, s = amounts
    assert parse_duration(f"P{w}W{d}DT{h}H{m}M{s}S") == ((w * 7 + d) * 24 + h) * 3600 + m * 60 + s


@pytest.mark.parametrize(
    ("value", "exact", "written"),
    [
        (5, "5", 5),
        (0.05, "0.05", 0.05),
        (0.1, "0.1", 0.1),
        ("0.05", "0.05", 0.05),
        ("0.000001", "0.000001", 0.000001),
        (1e-6, "0.000001", 0.000001),
        (0.5, "0.5", 0.5),
        (100.0, "100", 100),
        ("0.0500000", "0.05", 0.05),
        (Decimal("1.250"), "1.25", 1.25),
        (0.0, "0", 0),
        (999_999_999_999_999, "999999999999999", 999_999_999_999_999),
        ("123456789.123456", "123456789.123456", 123456789.123456),
    ],
)
def test_decimals_are_exact_and_written_as_numbers(value: object, exact: str, written: float) -> None:
    number = DECIMAL.validate_python(value)
    assert number == Decimal(exact)
    assert DECIMAL.dump_python(number, mode="json") == written
    assert type(DECIMAL.dump_python(number, mode="json")) in (int, float)
    assert DECIMAL.validate_python(DECIMAL.dump_python(number, mode="json")) == number


@pytest.mark.parametrize(
    "value",
    [1e-7, 0.1234567, 0.1 + 0.2, "0.1234567", float("nan"), float("inf"), "nan", "1e3", " 1", "1_0", "1,5", "", "٣",
     Decimal("NaN"), Decimal("-Infinity"), 10**15, 1e300, "9" * 400, True, False, None, [1]],
)  # fmt: skip
def test_what_is_no_decimal(value: object) -> None:
    assert refused(DECIMAL, value) == "decimal"


@settings(deadline=None)
@given(st.integers(0, 10**12))
def test_decimals_hold_every_millionth(millionths: int) -> None:
    exact = Decimal(millionths) / 10**6
    assert parse_decimal(float(exact)) == parse_decimal(str(f"{exact:f}")) == exact


@pytest.mark.parametrize("value", ["a", "ai2/olmo", "j-17", "b0/r3", "user@host:1+2", "x" * 253, "_", "."])
def test_ids(value: str) -> None:
    assert TypeAdapter(Id).validate_python(value) == value


@pytest.mark.parametrize("value", ["", " ", "a b", "a\n", "é", "x" * 254, "a,b", "a\x00"])
def test_what_is_no_id(value: str) -> None:
    assert refused(TypeAdapter(Id), value) == "string_pattern_mismatch"


@pytest.mark.parametrize("value", [True, False, 1.0, "1", None, float("nan")])
def test_counts_are_integers_only(value: object) -> None:
    assert refused(TypeAdapter(Count), value) == "int_type"
    assert refused(TypeAdapter(GpuSeconds), value) == "int_type"


def test_gpu_seconds_end_at_ten_to_the_fifteen() -> None:
    assert TypeAdapter(GpuSeconds).validate_python(10**15) == 10**15
    assert refused(TypeAdapter(GpuSeconds), 10**15 + 1) == "too_large"
    assert refused(TypeAdapter(GpuSeconds), -1) == "greater_than_equal"


@pytest.mark.parametrize("value", [0, 1, "true", "yes", None])
def test_flags_are_booleans_only(value: object) -> None:
    assert refused(TypeAdapter(Flag), value) == "bool_type"
