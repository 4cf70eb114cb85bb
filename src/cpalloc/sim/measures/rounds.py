"""What the rounds cost and how well they were solved."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cpalloc.sim.history import IntArray, RoundPath
from cpalloc.sim.measures.quantiles import Spread, spread
from cpalloc.sim.measures.view import View


@dataclass(frozen=True, slots=True)
class RoundCosts:
    """Rounds by path, proofs, and wall clock.

    Attributes
    ----------
    nothing, quick, solved
        Rounds by ``RoundPath``; they add up to ``rounds``.
    proved_share
        Rounds with every tier proven (or needing no proof) / rounds; ``solved_proved_share`` of the solved ones only.
    unproved_tiers
        Mean number of unproven tiers per solved round.
    seconds
        Wall clock of solved rounds; ``total_s`` of all rounds. The only measures that differ between equal runs.
    """

    rounds: int
    nothing: int
    quick: int
    solved: int
    proved_share: float | None
    solved_proved_share: float | None
    unproved_tiers: float | None
    seconds: Spread | None
    total_s: float


def round_costs(v: View) -> RoundCosts:
    """What the rounds of the history cost."""
    r = v.history.rounds
    count = np.bincount(r.path, minlength=len(RoundPath))
    solved = r.path == RoundPath.SOLVED
    return RoundCosts(
        rounds=len(r.path),
        nothing=int(count[RoundPath.NOTHING]),
        quick=int(count[RoundPath.QUICK]),
        solved=int(count[RoundPath.SOLVED]),
        proved_share=_mean(r.proved),
        solved_proved_share=_mean(r.proved[solved]),
        unproved_tiers=_mean(r.unproved_tiers[solved]),
        seconds=spread(r.seconds[solved]),
        total_s=float(r.seconds.sum()),
    )


def _mean(values: IntArray) -> float | None:
    return float(values.mean()) if len(values) else None
