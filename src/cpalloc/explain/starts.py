"""The starts of a decision, budget by budget: who goes before a job, and who is largest."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

from cpalloc.problem.problem import Decision, IntArray, Problem

MAX_BLOCKERS = 5
"""Jobs named as being in the way, the largest first."""


class Starts:
    """Starts in the order of their budgets; like questions share the answer."""

    def __init__(self, problem: Problem, decision: Decision) -> None:
        self._jobs = problem.jobs
        self._starts: IntArray = np.array(list(decision.placement), dtype=np.int64)
        self._of_leaf: dict[int, tuple[list[int], list[int]]] = {}
        self._largest_of: dict[tuple[int, int], list[int]] = {}
        self._largest_beside: dict[int, list[int]] = {}

    def of_leaf(self, leaf: int) -> Sequence[int]:
        """Starts of a budget, the first in its order first."""
        return self._ordered(leaf)[0]

    def better(self, leaf: int, order: int) -> int:
        """How many starts of a budget go before a position in its order."""
        return bisect_left(self._ordered(leaf)[1], order)

    def largest_of(self, leaf: int, count: int) -> list[int]:
        """The largest among the first ``count`` starts of a budget."""
        if (leaf, count) not in self._largest_of:
            self._largest_of[leaf, count] = self._largest(np.array(self.of_leaf(leaf)[:count], dtype=np.int64))
        return self._largest_of[leaf, count]

    def largest_beside(self, leaf: int) -> list[int]:
        """The largest starts of other budgets."""
        if leaf not in self._largest_beside:
            self._largest_beside[leaf] = self._largest(self._starts[self._jobs.leaf[self._starts] != leaf])
        return self._largest_beside[leaf]

    def _ordered(self, leaf: int) -> tuple[list[int], list[int]]:
        if leaf not in self._of_leaf:
            own = self._starts[self._jobs.leaf[self._starts] == leaf]
            own = own[np.argsort(self._jobs.order[own])]
            self._of_leaf[leaf] = own.tolist(), self._jobs.order[own].tolist()
        return self._of_leaf[leaf]

    def _largest(self, jobs: IntArray) -> list[int]:
        largest: list[int] = jobs[np.lexsort((jobs, -self._jobs.size[jobs]))][:MAX_BLOCKERS].tolist()
        return largest
