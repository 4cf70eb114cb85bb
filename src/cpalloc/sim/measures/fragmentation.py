"""What protection and fragmentation left for large gangs, over the samples of a history."""

from __future__ import annotations

from dataclasses import dataclass

from cpalloc.sim.measures.quantiles import Spread, spread
from cpalloc.sim.measures.view import View


@dataclass(frozen=True, slots=True)
class Fragmentation:
    """Fragmentation over the samples (policy section 8); None where the policy's run was not sampled for it.

    ``stranded_gpus``: free GPUs that the mix of shapes cannot use. ``time_to_place_s``: expected time until a shape of
    the mix could be placed if nothing new started. ``largest_gang_gpus``: largest gang of whole nodes placeable at once
    without preemption.
    """

    stranded_gpus: Spread | None
    time_to_place_s: Spread | None
    largest_gang_gpus: Spread | None


def fragmentation(v: View) -> Fragmentation:
    """Fragmentation over the samples after the warm-up."""
    s = v.history.samples
    counts = s.at_s >= v.from_s
    return Fragmentation(spread(s.stranded[counts]), spread(s.time_to_place_s[counts]), spread(s.largest_gang[counts]))
