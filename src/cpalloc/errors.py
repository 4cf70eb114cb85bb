"""The exceptions cpalloc raises; each message says what to do next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Issue:
    """One thing wrong with (or worth a warning in) a request: a stable code, where, and what to do.

    ``path`` is written as in ``jobs[17].min_runtime``; it is empty when the whole document is meant.
    """

    code: str
    path: str
    message: str


class CpallocError(Exception):
    """Base of everything cpalloc raises on purpose."""


class InputError(CpallocError):
    """The request cannot be used; ``issues`` lists everything wrong with it, not only the first."""

    def __init__(self, issues: Sequence[Issue]) -> None:
        self.issues = tuple(issues)
        first = "; ".join(f"{i.path or 'document'}: {i.message} [{i.code}]" for i in self.issues[:5])
        more = f" (and {len(self.issues) - 5} more)" if len(self.issues) > 5 else ""
        super().__init__(first + more)


class SolverError(CpallocError):
    """The solver misbehaved; the round is still answered with its fallback."""


class ModelInvalid(SolverError):
    """CP-SAT refused the model: a bug of ours."""


class GuardFailed(SolverError):
    """A decision broke a rule on its way out: a bug of ours; it is never handed out."""
