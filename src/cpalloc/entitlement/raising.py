"""Raising λ over many vertices at once under several limits: whoever runs into one freezes, the rest go on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from heapq import heappop, heappush

from cpalloc.entitlement.level import Amount, Line, water_level


@dataclass(frozen=True, slots=True)
class Limit:
    """``Σ_v max(given_v, low_v) ≤ total`` over the vertices of ``low``: all lows 0 for a sum, else an excess."""

    low: Mapping[int, int]
    total: Amount


def progressive_fill(lines: Mapping[int, Line], limits: Sequence[Limit], horizon_s: int) -> dict[int, Fraction]:
    """GPUs of every vertex when λ rises for all and a limit, once reached, freezes whoever would break it.

    The first limit reached is the one whose own water level is lowest. From then on none of its vertices may get more
    than max(what it has, its low), which leaves the limit's sum as it is for good: every limit is dealt with once.
    Freezing only ever raises the levels of the other limits, so a level known from before is a lower bound and is
    worked out again only when it comes first.

    Parameters
    ----------
    lines
        Per vertex; its low is where it starts.
    limits
        With the limits of all routable amounts (a polymatroid) the result is the one whose projected ratios are
        max-min fair, lexicographically (Megiddo 1974; Fujishige 1980).
    horizon_s
        h, seconds, over 0.
    """
    high: dict[int, Amount] = {v: line.high for v, line in lines.items()}
    freezes = 0

    def level_of(limit: Limit) -> Fraction | None:
        rows = (replace(lines[v], low=low, high=max(low, high[v])) for v, low in limit.low.items())
        return water_level(rows, limit.total, horizon_s)

    heap: list[tuple[Fraction, int, int]] = []
    for k, limit in enumerate(limits):
        if (level := level_of(limit)) is not None:
            heappush(heap, (level, k, freezes))
    while heap:
        known, k, then = heappop(heap)
        level = known if then == freezes else level_of(limits[k])
        if level is None:
            continue
        if heap and level > heap[0][0]:
            heappush(heap, (level, k, freezes))
            continue
        for v, low in limits[k].low.items():
            reached = max(Fraction(low), lines[v].at(level, horizon_s))
            high[v] = min(Fraction(high[v]), reached)
        freezes += 1
    return {v: Fraction(amount) for v, amount in high.items()}
