"""Units of measures, which way is better, and how values and differences are written."""

from __future__ import annotations

from enum import StrEnum

NONE = "–"
"""Written where there is no value."""

_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86_400
_STEPS = ((_DAY_S, "d"), (_HOUR_S, "h"), (_MINUTE_S, "min"), (1, "s"), (1e-3, "ms"))


class Unit(StrEnum):
    """What a value is counted in; ``share`` is 0 … 1 and written in percent."""

    SHARE = "share"
    SECONDS = "s"
    GPU_HOURS = "GPU-h"
    GPUS = "GPUs"
    COUNT = "count"
    RATIO = "ratio"


class Direction(StrEnum):
    """Which way is better."""

    HIGHER = "higher"
    LOWER = "lower"
    NEITHER = "neither"


_WORDS = {Unit.GPU_HOURS: " GPU-h", Unit.GPUS: " GPUs"}


def write(value: float | None, unit: Unit) -> str:
    """Write a value with its unit.

    Examples
    --------
    >>> write(0.9731, Unit.SHARE), write(5400, Unit.SECONDS), write(12345.6, Unit.GPU_HOURS)
    ('97.3 %', '1 h 30 min', '12,346 GPU-h')
    """
    if value is None:
        return NONE
    if unit is Unit.SHARE:
        return f"{value * 100:.1f} %"
    if unit is Unit.SECONDS:
        return duration(value)
    return _number(value) + _WORDS.get(unit, "")


def write_difference(value: float | None, unit: Unit) -> str:
    """Write a difference with its sign; of shares in percentage points.

    Examples
    --------
    >>> write_difference(-0.012, Unit.SHARE), write_difference(90, Unit.SECONDS), write_difference(0, Unit.COUNT)
    ('−1.2 pp', '+1 min 30 s', '±0')
    """
    if value is None:
        return NONE
    size = f"{abs(value) * 100:.1f} pp" if unit is Unit.SHARE else write(abs(value), unit)
    if not any(digit in size for digit in "123456789"):
        return "±0"
    return f"{'+' if value > 0 else '−'}{size}"


def write_range(low: float, high: float, unit: Unit, *, signed: bool = False) -> str:
    """Write two values in one unit, of time the one that suits the larger; ``signed`` as differences.

    Examples
    --------
    >>> write_range(0.975, 0.986, Unit.SHARE), write_range(-600, 5400, Unit.SECONDS, signed=True)
    ('97.5 … 98.6 %', '−0.2 … +1.5 h')
    """
    factor, words = _scale(max(abs(low), abs(high)), unit, signed=signed)

    def one(value: float) -> str:
        text = _number(abs(value)) if factor == 1 else f"{abs(value * factor):.1f}"
        sign = "" if float(text.replace(",", "")) == 0 else "−" if value < 0 else "+" if signed else ""
        return sign + text

    return f"{one(low)} … {one(high)}{words}"


def _scale(largest: float, unit: Unit, *, signed: bool) -> tuple[float, str]:
    """Factor and words of the unit in which a range is written."""
    if unit is Unit.SHARE:
        return 100.0, " pp" if signed else " %"
    if unit is Unit.SECONDS:
        seconds, words = next((step for step in _STEPS if largest >= step[0]), _STEPS[-1])
        return 1 / seconds, f" {words}"
    return 1.0, "" if signed else _WORDS.get(unit, "")


def duration(seconds: float) -> str:
    """Write a length of time in its two largest units; below ten seconds in three digits.

    Examples
    --------
    >>> duration(0.0123), duration(30), duration(3600), duration(200_000)
    ('12.3 ms', '30 s', '1 h', '2 d 8 h')
    """
    if 0 < seconds < 1:
        return f"{1000 * seconds:.3g} ms"
    if seconds < 9.995:
        return f"{seconds:.3g} s"
    whole = round(seconds)
    if whole < _MINUTE_S:
        return f"{whole} s"
    if whole < _HOUR_S:
        return _two(whole, _MINUTE_S, "min", "s")
    minutes = round(seconds / _MINUTE_S)
    if minutes < 24 * 60:
        return _two(minutes, 60, "h", "min")
    return _two(round(seconds / _HOUR_S), 24, "d", "h")


def _two(amount: int, large: int, large_name: str, small_name: str) -> str:
    whole, rest = divmod(amount, large)
    return f"{whole} {large_name} {rest} {small_name}" if rest else f"{whole} {large_name}"


def _number(value: float) -> str:
    if value == int(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:,.1f}" if abs(value) >= 10 else f"{value:.3g}"
