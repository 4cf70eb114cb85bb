"""Everything measured of one history, as one frozen tree that goes into JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from cpalloc.errors import InputError, Issue
from cpalloc.sim.history import History
from cpalloc.sim.measures.capacity import Capacity, capacity
from cpalloc.sim.measures.delivery import Delivery, delivery
from cpalloc.sim.measures.fragmentation import Fragmentation, fragmentation
from cpalloc.sim.measures.progress import Interruptions, JobCounts, Progress, interruptions, job_counts, progress
from cpalloc.sim.measures.rounds import RoundCosts, round_costs
from cpalloc.sim.measures.view import View, view
from cpalloc.sim.measures.waits import Waits, waits
from cpalloc.sim.workload import Provenance


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """All measures of one simulation; ``provenance`` goes with every figure of it.

    ``interrupted``: the simulation stopped at ``end_s`` before its time. ``notes``: of the workload (what was filled in
    by which recipe), then of the run.
    """

    workload: str
    provenance: Provenance
    policy: str
    seed: int
    start_s: int
    end_s: int
    interrupted: bool
    notes: tuple[str, ...]
    capacity: Capacity
    delivery: Delivery
    waits: Waits
    progress: Progress
    interruptions: Interruptions
    jobs: JobCounts
    fragmentation: Fragmentation
    rounds: RoundCosts

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON: dicts, lists, strings and numbers; what there is no value of is None."""
        return {**asdict(self), "provenance": str(self.provenance)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Summary:
        """Read what :meth:`to_dict` wrote, before or after it was JSON.

        Raises
        ------
        InputError
            ``summary``: fields are missing or of another type, e.g. written by another version.
        """
        try:
            return TypeAdapter(cls).validate_python(data)
        except ValidationError as error:
            where = ".".join(str(part) for part in error.errors()[0]["loc"])
            message = "is not a summary of this version; simulate again to write a new one"
            raise InputError([Issue("summary", where, message)]) from error


def summary(history: History | View) -> Summary:
    """Measure a history (or the view of one, where it is at hand).

    Examples
    --------
    >>> import json
    >>> json.dumps(summary(history).to_dict())  # doctest: +SKIP
    """
    v = history if isinstance(history, View) else view(history)
    h = v.history
    return Summary(
        workload=h.workload.name,
        provenance=h.workload.provenance,
        policy=h.policy,
        seed=h.seed,
        start_s=h.start_s,
        end_s=h.end_s,
        interrupted=h.interrupted,
        notes=(*h.workload.notes, *h.notes),
        capacity=capacity(v),
        delivery=delivery(v),
        waits=waits(v),
        progress=progress(v),
        interruptions=interruptions(v),
        jobs=job_counts(v),
        fragmentation=fragmentation(v),
        rounds=round_costs(v),
    )
