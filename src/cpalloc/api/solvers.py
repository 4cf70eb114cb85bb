"""The solvers of an application: one a cluster, so that what did not change since its last round is kept."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cpalloc.engine import Solver


class Solvers:
    """Solvers by the names of their clusters; of more than so many the one not asked for longest is forgotten."""

    def __init__(self, keep: int) -> None:
        self._keep, self._lock = keep, Lock()
        self._of: OrderedDict[str, Solver] = OrderedDict()

    def of(self, cluster: object) -> Solver:
        """The solver of a cluster; what is no name gets one of its own."""
        from cpalloc.engine import Solver

        if not isinstance(cluster, str) or not self._keep:
            return Solver()
        with self._lock:
            solver = self._of.setdefault(cluster, Solver())
            self._of.move_to_end(cluster)
            while len(self._of) > self._keep:
                self._of.popitem(last=False)
            return solver
