"""The part of every budget's queue that a round looks at.

A queue of thousands is no better decided than its head: what cannot be served for days needs no answer every minute.
Per leaf the first jobs of every size are shown, in the order inside a budget (policy section 5). Jobs of one size want
the same room, so those behind wait for those before them anyway, while a small job behind many large ones is seen.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable

from cpalloc.sim.state import JobStatus, State

Entry = tuple[int, int, str, int]
"""(−priority, submitted, id, job): the order inside a budget."""


class QueueWindow:
    """The queue of every (leaf, gang, modes) in order, and the window of it that is shown.

    Parameters
    ----------
    depth : int
        Most jobs shown of each queue.
    """

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._queues: dict[tuple[object, ...], list[Entry]] = {}
        self._known: set[int] = set()

    def add(self, state: State, arrived: Iterable[int]) -> None:
        """Let jobs in that have become pending."""
        jobs, works = state.jobs, state.workload.jobs
        for job in arrived:
            if job not in self._known:
                self._known.add(job)
                like = (
                    jobs.leaf[job],
                    jobs.replicas[job],
                    jobs.gpus_per_replica[job],
                    jobs.required_level[job],
                    jobs.pools[job],
                    jobs.may_allocate[job],
                    jobs.may_borrow[job],
                )
                entry = (-jobs.priority[job], jobs.submitted_s[job], works[job].id, job)
                insort(self._queues.setdefault(like, []), entry)

    def shown(self, state: State) -> list[int]:
        """The pending jobs to decide on."""
        out: list[int] = []
        status = state.status
        for queue in self._queues.values():
            head = [entry[3] for entry in queue[: self._depth]]
            if any(status[job] is not JobStatus.PENDING for job in head):
                self._known -= {e[3] for e in queue if status[e[3]] is not JobStatus.PENDING}
                queue[:] = [e for e in queue if status[e[3]] is JobStatus.PENDING]
                head = [entry[3] for entry in queue[: self._depth]]
            out += head
        return out
