"""What happens by itself, in order of time: arrivals, ends, protections that end, nodes and budgets that change."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from heapq import heappop, heappush

from cpalloc.sim.state import JobStatus, State
from cpalloc.sim.workload import BudgetChange, NodeEvent, Workload

NEVER = 1 << 62
"""After everything."""


class Happening(IntEnum):
    """What is timed for a running job, in the order in which things of one instant are applied."""

    END = 0
    """Its work is done or its time is up."""
    EXPIRY = 1
    """Its protection ends."""


class Events:
    """The events to come. Those timed for a run are dropped once the run is over; of one instant, as listed."""

    def __init__(self, workload: Workload) -> None:
        self._nodes = sorted(workload.node_events, key=lambda event: event.at_s)
        self._budgets = sorted(workload.budget_changes, key=lambda change: change.at_s)
        self._arrivals = [job.submitted_s for job in workload.jobs]
        self._next_node = self._next_budget = self._next_arrival = 0
        self._timed: list[tuple[int, int, int, int]] = []
        """Heap of (instant, Happening, job, number of the run)."""

    def time(self, state: State, job: int, what: Happening, at_s: int) -> None:
        """Time something for the present run of a job."""
        heappush(self._timed, (at_s, what, job, state.starts[job]))

    def next_s(self, state: State) -> int:
        """Instant of the next event, NEVER if there is none."""
        while self._timed and not _is_live(state, self._timed[0]):
            heappop(self._timed)
        next_s = self._timed[0][0] if self._timed else NEVER
        if self._next_arrival < len(self._arrivals):
            next_s = min(next_s, self._arrivals[self._next_arrival])
        if self._next_node < len(self._nodes):
            next_s = min(next_s, self._nodes[self._next_node].at_s)
        if self._next_budget < len(self._budgets):
            next_s = min(next_s, self._budgets[self._next_budget].at_s)
        return next_s

    def timed(self, state: State, what: Happening) -> Iterator[int]:
        """Take the jobs for which something of a kind (or of a kind before it) is timed by now."""
        bound = (state.now_s, what + 1)
        while self._timed and self._timed[0][:2] < bound:
            entry = heappop(self._timed)
            if _is_live(state, entry):
                yield entry[2]

    def nodes(self, now_s: int) -> Iterator[NodeEvent]:
        """Take the changes of nodes that are due."""
        while self._next_node < len(self._nodes) and self._nodes[self._next_node].at_s <= now_s:
            self._next_node += 1
            yield self._nodes[self._next_node - 1]

    def budgets(self, now_s: int) -> Iterator[BudgetChange]:
        """Take the changes of budgets that are due."""
        while self._next_budget < len(self._budgets) and self._budgets[self._next_budget].at_s <= now_s:
            self._next_budget += 1
            yield self._budgets[self._next_budget - 1]

    def arrivals(self, now_s: int) -> Iterator[int]:
        """Take the jobs that are submitted by now."""
        while self._next_arrival < len(self._arrivals) and self._arrivals[self._next_arrival] <= now_s:
            self._next_arrival += 1
            yield self._next_arrival - 1


def _is_live(state: State, entry: tuple[int, int, int, int]) -> bool:
    at_s, what, job, run = entry
    if state.starts[job] != run or state.status[job] is not JobStatus.RUNNING:
        return False
    return what == Happening.END or state.protected_until_s[job] == at_s
