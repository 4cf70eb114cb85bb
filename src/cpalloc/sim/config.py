"""How a simulation is run: the site's numbers, when rounds happen, how long, and how it tells how far it is."""

from __future__ import annotations

from dataclasses import dataclass, field

from cpalloc.errors import InputError, Issue
from cpalloc.schema import Policy as SitePolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class SimConfig:
    """How to simulate; times are seconds of the workload.

    Parameters
    ----------
    site : cpalloc.schema.Policy
        The numbers of the site's policy: window, charge horizon, ``max_min_runtime``, …. Jobs whose ``min_runtime`` is
        over the maximum ask for the maximum instead, as their users would have to; the history notes how many.
    round_interval_s : int
        Rounds happen at multiples of it only; what happens in between takes effect at its own instant and is decided
        on at the next round. 0: a round at every instant at which something happens.
    heartbeat_s : int
        While something is pending, a round at least this often even if nothing happens. 0: none.
    start_s : int
        When the simulation starts, with an empty cluster.
    until_s : int, optional
        When it stops; what happens at this very instant is not seen any more. None: when nothing is left to happen.
    sample_interval_s : int
        Distance of the samples of the state. 0: none.
    warm_up_s : int
        Measures leave out this much of the beginning: capacity, delivery and runs count from its end, waits only of
        jobs submitted after it. The cluster starts empty, and filling it up says little about a policy.
    prior_s : int, optional
        So long before the start the cluster is taken to have been in service, unused: what is owed from the beginning.
        None: the charge horizon, so that ratios soon say what they say in the middle of a year.
    seed : int
        Written to the history; what is random is drawn when the workload is made.
    """

    site: SitePolicy = field(default_factory=SitePolicy)
    round_interval_s: int = 0
    heartbeat_s: int = 0
    start_s: int = 0
    until_s: int | None = None
    sample_interval_s: int = 3600
    warm_up_s: int = 0
    prior_s: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        issues = [
            Issue("range", name, "must not be negative")
            for name in ("round_interval_s", "heartbeat_s", "sample_interval_s", "warm_up_s")
            if getattr(self, name) < 0
        ]
        if self.prior_s is not None and self.prior_s < 1:
            issues.append(Issue("range", "prior_s", "must be at least 1 s: before anything is owed nothing is funded"))
        if self.until_s is not None and self.until_s < self.start_s:
            issues.append(Issue("range", "until_s", f"must not be before the start at {self.start_s} s"))
        if issues:
            raise InputError(issues)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a simulation is: ``fraction`` 0 … 1 of its time, or of its jobs where no end is set."""

    fraction: float
    now_s: int
    rounds: int
    pending: int
