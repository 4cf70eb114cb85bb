"""The water level of one limit, exactly: where clamped straight lines add up to a total."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

Amount = int | Fraction


@dataclass(frozen=True, slots=True)
class Line:
    """GPUs of one vertex as its ratio λ rises: ``clamp((λ · owed − charged) / h, low, high)``.

    ``owed`` and ``charged`` in GPU-seconds, ``low`` and ``high`` in GPUs. Where nothing is owed the ratio is infinite
    from the start and the vertex stays at ``low``.
    """

    owed: int
    charged: int
    low: Amount
    high: Amount

    def at(self, level: Fraction, horizon_s: int) -> Fraction:
        """GPUs at the level λ."""
        if not self.owed:
            return Fraction(self.low)
        value = Fraction(level.numerator * self.owed - self.charged * level.denominator, level.denominator * horizon_s)
        return Fraction(min(max(value, self.low), self.high))


def water_level(lines: Iterable[Line], total: Amount, horizon_s: int) -> Fraction | None:
    """The smallest λ at which the lines add up to ``total``; None when they may all rise to their ends.

    ``Σ_i clamp((λ · owed_i − charged_i) / h, low_i, high_i)`` is piecewise linear and rises between the breakpoints
    ``(charged_i + h · low_i) / owed_i`` and ``(charged_i + h · high_i) / owed_i``. The sweep keeps the sum as
    ``(λ · slope − base + done) / h`` with exact coefficients and solves the first segment that reaches the total.

    Parameters
    ----------
    lines
        In any order.
    total
        GPUs. At or under ``Σ low`` the level is the first breakpoint: nothing may rise.
    horizon_s
        h, seconds, over 0.
    """
    rise = total * horizon_s
    reach: Amount = 0
    breakpoints: list[tuple[Fraction, bool, int, Amount, Amount]] = []
    for line in lines:
        rise -= line.low * horizon_s
        if not line.owed or line.low >= line.high:
            continue
        start = line.charged + line.low * horizon_s
        end = line.charged + line.high * horizon_s
        breakpoints.append((Fraction(start, line.owed), True, line.owed, start, 0))
        breakpoints.append((Fraction(end, line.owed), False, line.owed, start, end - start))
        reach += end - start
    if reach <= max(rise, 0):
        return None
    breakpoints.sort(key=lambda b: b[0])
    slope = 0
    base: Amount = 0
    done: Amount = 0
    for level, starts, owed, start, gain in breakpoints:
        wanted = rise - done + base
        if slope * level.numerator >= wanted * level.denominator:
            return Fraction(wanted) / slope if slope else level
        if starts:
            slope, base = slope + owed, base + start
        else:
            slope, base, done = slope - owed, base - start, done + gain
    raise AssertionError("the last breakpoint reaches every total under the sum of the highs")
