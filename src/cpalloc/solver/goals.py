"""What is being minimised, and what kinds of tiers there are for those who look for decisions."""

from __future__ import annotations

from dataclasses import dataclass

REGIONAL = ("starvation", "shortfall", "inversion", "preemption")
"""Tiers that are improved region by region where the whole model did not reach its bound."""

RELAXED = ("starvation", "shortfall", "preemption")
"""Those of them whose linear relaxation is worth its time."""

FEW_NODES = 512
"""Nodes up to which the relaxation without nodes is solved in whole numbers, and only for tiers that mind nothing but
grants: there the whole model proves ``preemption`` as fast as any relaxation bounds it. Beyond, with fractions."""

BY_GRANTS = ("starvation", "shortfall")
"""Tiers that mind nothing but what budgets are granted."""

PLACED = ("fragmentation", "locality")
"""Tiers that mind where starts are."""

TIMED = ("delay", *PLACED)
"""Tiers whose models know of some instants only."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What is being minimised: a part of a tier, and the tier's place in the order.

    ``slack``: what later tiers may give back. ``prefer``: a part to improve whatever earlier tiers say.
    """

    tier: str
    index: int
    part: int
    slack: int = 0
    prefer: tuple[str, int] | None = None
