"""What a solve of one model found, whoever solved it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from ortools.sat.python.cp_model import IntVar


class Status(StrEnum):
    """What a solve found."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Run:
    """Outcome of one solve.

    Attributes
    ----------
    values
        Of every variable of the model, by index; None where no solution was found.
    objective
        What the solution is worth; None likewise.
    bound
        A proven lower bound; None where none is known.
    source
        Who proved it.
    deterministic
        Units of CP-SAT's deterministic time; 0 for others.
    """

    status: Status
    values: Sequence[int] | None = None
    objective: int | None = None
    bound: int | None = None
    source: str = "cp_sat"
    seconds: float = 0.0
    deterministic: float = 0.0

    def value(self, var: IntVar) -> int:
        """Value of a variable in the solution found.

        Raises
        ------
        ValueError
            When none was found.
        """
        if self.values is None:
            raise ValueError(f"no solution was found (status {self.status}): there is no value to read")
        return int(self.values[var.index])

    @property
    def found(self) -> bool:
        """Whether there is a solution to read."""
        return self.status in (Status.OPTIMAL, Status.FEASIBLE)
