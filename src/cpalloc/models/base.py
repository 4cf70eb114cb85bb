"""What a constraint and a tier of the objective look like."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

if TYPE_CHECKING:
    from cpalloc.models.variables import Linear, ModelContext
    from cpalloc.problem.problem import Decision, Problem


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that a decision breaks: which constraint, a sentence with numbers, the jobs and nodes to blame."""

    constraint: str
    message: str
    jobs: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()


class OutOfTime(Exception):
    """The round's time is over before a model was built."""


class Constraint(Protocol):
    """A hard rule, stated twice: for the solver and, written apart, in plain Python."""

    name: ClassVar[str]

    def applies(self, problem: Problem) -> bool:
        """Whether the rule can bind at all in this round."""
        ...

    def build(self, ctx: ModelContext) -> None:
        """Add the rule to the model; only restricts, relies on no other constraint having run."""
        ...

    def check(self, problem: Problem, decision: Decision) -> Iterator[Violation]:
        """Yield every breach of the rule in a decision."""
        ...


@dataclass(frozen=True, slots=True)
class PartSpec:
    """One of the strictly ordered parts of a tier: its name and its unit."""

    name: str
    unit: str


class Objective(Protocol):
    """A tier: strictly ordered parts, each minimised in turn, stated twice like a constraint.

    ``limits_model``: whether the expressions may be bounded to keep the tier's value in later tiers.
    """

    name: ClassVar[str]
    parts: ClassVar[tuple[PartSpec, ...]]
    limits_model: ClassVar[bool]

    def floor(self, problem: Problem) -> tuple[int, ...]:
        """A lower bound of each part that needs no solver."""
        ...

    def build(self, ctx: ModelContext) -> tuple[Linear, ...]:
        """An expression for each part that never exceeds its exact value at the decisions a solution stands for."""
        ...

    def evaluate(self, problem: Problem, decision: Decision) -> tuple[int, ...]:
        """Exact value of each part for a decision, in plain Python."""
        ...
