"""All policies by name: what each is in a line, what it can be told, and how it is made.

The ones that go through the allocator are loaded when they are made, so that the others need no solver.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from cpalloc.schema.types import Decimal6, Flag, PositiveCount
from cpalloc.sim.policies.base import Policy
from cpalloc.sim.policies.best_fit import BestFit
from cpalloc.sim.policies.consolidate import Consolidate
from cpalloc.sim.policies.fgd import Fgd
from cpalloc.sim.policies.fifo import fifo
from cpalloc.sim.policies.partition import partition
from cpalloc.sim.policies.placement import Placement
from cpalloc.sim.policies.priority import Priority
from cpalloc.sim.policies.sjf import sjf
from cpalloc.sim.policies.srtf import Srtf

PLACEMENTS: dict[str, Callable[[], Placement]] = {"consolidate": Consolidate, "best-fit": BestFit, "fgd": Fgd}
"""Where the policies that place greedily can put a gang."""


class PolicySpec(BaseModel):
    """A policy by name and what it is told; what is not given is as the policy has it by default.

    Attributes
    ----------
    placement
        ``consolidate``, ``best-fit`` or ``fgd``.
    partitioned
        Every team has its own nodes.
    backfill
        Jobs may overtake one that does not fit.
    limit_factor
        A team holds at most so many times its share at once; 0: no limit.
    depth
        How many like jobs of a budget a round looks at.
    deterministic_limit
        The solver's effort a round, in its own deterministic seconds.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: str
    placement: str | None = None
    partitioned: Flag | None = None
    backfill: Flag | None = None
    limit_factor: Annotated[Decimal6, Field(ge=0)] | None = None
    depth: PositiveCount | None = None
    deterministic_limit: Annotated[Decimal6, Field(gt=0)] | None = None

    @model_validator(mode="after")
    def _known(self) -> Self:
        problems = self._problems()
        if problems:
            message = "; ".join(text for _, _, text in problems)
            raise PydanticCustomError("several", "{message}", {"message": message, "problems": problems})
        return self

    def told(self) -> dict[str, Any]:
        """What is given besides the name."""
        return self.model_dump(exclude={"name"}, exclude_none=True)

    def _problems(self) -> list[tuple[str, str, str]]:
        """List what is wrong, as (code, path below the policy, message)."""
        kind = POLICIES.get(self.name)
        if kind is None:
            return [("unknown_policy", ".name", f"`{self.name}` is no policy; use one of {', '.join(POLICIES)}")]
        takes = ", ".join(kind.takes)
        problems = [
            ("unknown_field", f".{key}", f"is nothing that `{self.name}` can be told; it takes {takes}")
            for key in self.told()
            if key not in kind.takes
        ]
        if self.placement is not None and self.placement not in PLACEMENTS:
            message = f"`{self.placement}` is no placement; use one of {', '.join(PLACEMENTS)}"
            problems.append(("unknown_placement", ".placement", message))
        return problems


@dataclass(frozen=True, slots=True)
class PolicyKind:
    """A policy in a line; ``takes``: the fields of :class:`PolicySpec` it knows; ``make(given, seed)`` makes one."""

    line: str
    takes: tuple[str, ...]
    make: Callable[[dict[str, Any], int], Policy]


def make_policy(spec: PolicySpec, seed: int = 0) -> Policy:
    """Make a fresh policy.

    Parameters
    ----------
    seed : int
        Of the solver, where there is one.
    """
    given = spec.told()
    if "placement" in given:
        given["placement"] = PLACEMENTS[given["placement"]]()
    return POLICIES[spec.name].make(given, seed)


def _priority(given: dict[str, Any], _seed: int) -> Policy:
    if "limit_factor" in given:
        given["limit_factor"] = Fraction(given["limit_factor"]) or None
    return Priority(**given)


def _fair_share(given: dict[str, Any], _seed: int) -> Policy:
    from cpalloc.sim.policies.allocator import fair_share

    return fair_share(**given)


def _cpalloc(given: dict[str, Any], seed: int) -> Policy:
    from cpalloc.sim.policies.allocator import cpalloc_policy

    if "deterministic_limit" in given:
        given["deterministic_limit"] = float(given["deterministic_limit"])
    return cpalloc_policy(**given, seed=seed)


POLICIES: dict[str, PolicyKind] = {
    "cpalloc": PolicyKind(
        "budgets, protection windows and promises, every round optimised",
        ("depth", "deterministic_limit"),
        _cpalloc,
    ),
    "fair-share": PolicyKind(
        "the same rules and actions as cpalloc, decided greedily: a good conventional scheduler",
        ("depth",),
        _fair_share,
    ),
    "priority": PolicyKind(
        "strict priority classes with preemption, opt-out, inflation and per-team limits",
        ("placement", "limit_factor"),
        _priority,
    ),
    "partition": PolicyKind(
        "every team its own nodes; by class, then submission",
        ("placement", "backfill"),
        lambda given, _: partition(**given),
    ),
    "fifo": PolicyKind(
        "by submission; the first that does not fit blocks all others",
        ("placement", "partitioned"),
        lambda given, _: fifo(**given),
    ),
    "sjf": PolicyKind(
        "shortest job first: an oracle, it knows how long jobs will run",
        ("placement", "partitioned"),
        lambda given, _: sjf(**given),
    ),
    "srtf": PolicyKind(
        "shortest remaining time first: an oracle, and preemption loses it no work",
        ("placement", "partitioned"),
        lambda given, _: Srtf(**given),
    ),
}
"""Policies by name, those with budgets first."""
