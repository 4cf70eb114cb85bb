"""What a decision is worth, and what it breaks: all in plain Python, apart from the model."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cpalloc.models.base import Violation
from cpalloc.models.constraints import CONSTRAINTS
from cpalloc.models.objectives import OBJECTIVES
from cpalloc.models.objectives.delay import Delay
from cpalloc.problem.problem import Decision, Problem


def violations(problem: Problem, decision: Decision) -> list[Violation]:
    """Every rule a decision breaks, by the plain checks."""
    return [v for c in CONSTRAINTS if c.applies(problem) for v in c.check(problem, decision)]


class Values:
    """A decision's value in every tier, in plain Python, each worked out when it is first asked for.

    ``promised`` gives the decision with its promises, which ``delay`` alone minds; by default it has them.
    """

    def __init__(self, problem: Problem, decision: Decision, promised: Callable[[], Decision] | None = None) -> None:
        self._problem, self._decision = problem, decision
        self._promised = promised or (lambda: decision)
        self._known: dict[str, tuple[int, ...]] = {}

    def __getitem__(self, tier: str) -> tuple[int, ...]:
        """Values of the parts of a tier."""
        if tier not in self._known:
            decision = self._promised() if tier == Delay.name else self._decision
            self._known[tier] = OBJECTIVES[tier].evaluate(self._problem, decision)
        return self._known[tier]


def same(a: Decision, b: Decision) -> bool:
    """Whether two decisions do the same to every job, promises aside."""
    return (
        np.array_equal(a.action, b.action)
        and np.array_equal(a.mode, b.mode)
        and np.array_equal(a.promoted, b.promoted)
        and a.placement == b.placement
    )
