"""How finely a model tells apart, and what of the round it has at all.

Coarser partitions give a relaxation (a valid bound), and the solver refines where a realised answer shows that a
difference matters.
"""

from __future__ import annotations

from dataclasses import dataclass

from cpalloc.problem.problem import Hold, Mode, Replica


@dataclass(frozen=True, slots=True)
class Region:
    """A part of the cluster in which a decision may change, everything else being as decided.

    ``nodes``: those that may change. ``starts``: (job, mode, placement) of the decision's starts that stay. ``absent``:
    pending jobs that are not considered. ``promoted``: jobs that are promoted.
    """

    nodes: frozenset[int]
    starts: tuple[tuple[int, Mode, tuple[Replica, ...]], ...]
    absent: frozenset[int]
    promoted: frozenset[int]


@dataclass(frozen=True, slots=True)
class Possible:
    """What some decision of a round may have; the rest is in none (:func:`cpalloc.models.possible.possible`).

    Attributes
    ----------
    starts
        Starts: jobs and modes.
    promotes, goes
        Borrowed jobs that may be promoted, and evictable jobs that may be preempted.
    passed
        Waiting jobs that start in no decision and yet may find room: they may be passed over.
    most_granted
        Allocated GPUs that each leaf has at most after the round.
    needed
        Starts without those that change nothing of ``starvation``, ``shortfall``, ``inversion`` and ``preemption``: the
        starts they bring with them give their budget all it is entitled to.
    """

    starts: frozenset[tuple[int, Mode]]
    promotes: frozenset[int]
    goes: frozenset[int]
    passed: frozenset[int]
    most_granted: tuple[int, ...]
    needed: frozenset[tuple[int, Mode]]


@dataclass(frozen=True, slots=True)
class Partition:
    """How finely starts are told apart, and what is settled.

    Attributes
    ----------
    leaves
        Leaves whose allocated starts are told from those of others (rule 6 needs a *foreign* beneficiary).
    watched, apart, exact
        Jobs of which it is counted whether they would fit without worse-ranked starts; with those told apart; and node
        by node.
    firm
        Jobs that no worse-ranked start of their budget may pass over, whether they would fit or not: no relaxation,
        for those who look for a decision.
    single
        Jobs whose replicas are a kind of their own (locality, gangs that pass others over).
    holds, hard
        Reservations that bind new allocated work, ``hard`` of them kept from the last answer.
    served, ready
        Blocked jobs that the round starts instead of promising them something: they start. Those that it leaves room
        for at once: they start, or could.
    instants, by_release
        Allocated starts that are in the way beyond different ones of these (sorted, microseconds) are told apart, by
        the instant they leave or by the end of their protection.
    blocked, timed, fine
        Jobs whose delay, and shapes of the mix whose time to place is stated; at many instants.
    split
        No cell of several nodes.
    stays, gone
        Evictable jobs the model takes for fixed, and for preempted.
    free
        GPUs that may be left free at most (−1: not settled).
    lend
        With jobs that can only borrow; without them it is a relaxation for all that comes before ``idle``, as borrowed
        work stands in nobody's way.
    possible
        What some decision may have; the model has nothing else. None: anything.
    needed
        With needed starts only where that is a relaxation (:meth:`only_needed`): for tiers before ``delay``, without
        what only borrows.
    region
        No relaxation either, for those who look for a decision: the model has nothing outside.
    """

    leaves: frozenset[int] = frozenset()
    watched: frozenset[int] = frozenset()
    apart: frozenset[int] = frozenset()
    exact: frozenset[int] = frozenset()
    single: frozenset[int] = frozenset()
    holds: tuple[Hold, ...] = ()
    hard: int = 0
    served: frozenset[int] = frozenset()
    ready: frozenset[int] = frozenset()
    instants: tuple[int, ...] = ()
    by_release: bool = False
    blocked: tuple[tuple[int, int], ...] = ()
    timed: tuple[tuple[int, int], ...] = ()
    fine: bool = False
    split: bool = False
    stays: frozenset[int] = frozenset()
    gone: frozenset[int] = frozenset()
    firm: frozenset[int] = frozenset()
    free: int = -1
    lend: bool = True
    possible: Possible | None = None
    needed: bool = False
    region: Region | None = None

    def only_needed(self) -> bool:
        """Whether the model has needed starts only, and does not ask for whom somebody is preempted.

        Starts that nobody needs may be whom somebody makes room for, and what they take may be why somebody else does
        not fit: where either is looked at, all starts are in the model.
        """
        return self.needed and not (self.leaves or self.watched or self.apart or self.exact)

    def starts(self) -> frozenset[tuple[int, Mode]] | None:
        """The starts that the model has; None: any."""
        if self.possible is None:
            return None
        return self.possible.needed if self.only_needed() else self.possible.starts
