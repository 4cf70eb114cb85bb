"""What solving a round gives, and how its time is kept."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from fractions import Fraction

from cpalloc.problem.problem import Decision


@dataclass(frozen=True, slots=True)
class PartResult:
    """What was reached and proved of one part of a tier.

    ``best`` is the value when the part was settled, ``bound`` a proven lower bound of it (None: not known), ``limit``
    what later tiers had to respect (best plus slack).
    """

    name: str
    unit: str
    best: int
    bound: int | None
    limit: int
    source: str
    seconds: float

    def proved(self, gap: Fraction) -> bool:
        """Whether ``best`` is within ``gap`` (relative) of the bound."""
        return self.bound is not None and self.best - self.bound <= gap * max(1, abs(self.best))


@dataclass(frozen=True, slots=True)
class TierResult:
    """One tier's parts."""

    name: str
    parts: tuple[PartResult, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Solution:
    """The decision, how good each tier is known to be, and how the work ended."""

    decision: Decision
    tiers: tuple[TierResult, ...]
    stop_reason: str
    variables: int
    constraints: int
    build_s: float
    solve_s: float


@dataclass(slots=True)
class Clock:
    """Time of a round, shared among its tiers; what one leaves rolls on to the next."""

    limit_s: float
    started: float = field(default_factory=time.perf_counter)
    used_deterministic: float = 0.0

    def left(self, deterministic: bool) -> float:
        """Seconds (or units of deterministic time) left."""
        used = self.used_deterministic if deterministic else time.perf_counter() - self.started
        return max(0.0, self.limit_s - used)
