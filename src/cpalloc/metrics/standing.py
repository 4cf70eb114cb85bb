"""Kept promises at the beginning of a round: which still stand, and where they are kept now.

What was promised is an instant. On which nodes it is kept may change as long as nobody gets it later: a gang that was
promised its nodes when the cluster looked worse would wait on them for days while others come free.
"""

from __future__ import annotations

from collections.abc import Sequence

from cpalloc.metrics.outlook import Outlook
from cpalloc.metrics.reservations import book, by_instant, place, pools_of, renew, soonest
from cpalloc.problem.problem import Decision, Hold, Problem

MOST_TRIED = 100
"""Promises tried while looking for a better order."""


def stand(problem: Problem, decision: Decision, promised: Sequence[Hold]) -> tuple[Hold, ...]:
    """Promises that a decision can keep, none later than it was, with as little delay in all as is found.

    What its own nodes cannot keep is kept elsewhere if it can be. Then all together are given anew, in the order that
    delays least, and one after the other moves to where it is earlier, until neither gains anything.

    Parameters
    ----------
    promised
        Reservations of jobs that wait, best rank first.

    Returns
    -------
    holds
        By rank, sharing no GPU.
    """
    outlook = Outlook(problem, decision)
    holds = {hold.job: fresh for hold in by_instant(promised) if (fresh := renew(outlook, hold)) is not None}
    for hold in by_instant(promised):
        if hold.job not in holds and (moved := _give(outlook, hold.job, hold.starts_us)) is not None:
            holds[hold.job] = moved
    moving = True
    while moving:
        moving = _give_anew(outlook, holds) or _move_one(outlook, holds)
    return tuple(sorted(holds.values(), key=lambda h: int(problem.jobs.rank[h.job])))


def _give(outlook: Outlook, job: int, latest_us: int) -> Hold | None:
    """Book the best promise that is not later than an instant; None where there is none, or the job could start now."""
    best = soonest(outlook, job, pools_of(outlook.problem, job))
    return place(outlook, best) if best is not None and outlook.problem.now_us < best.at_us <= latest_us else None


def _move_one(outlook: Outlook, holds: dict[int, Hold]) -> bool:
    """Move every promise that is earlier elsewhere, beside the others; whether any was."""
    moved = False
    for job, hold in list(holds.items()):
        outlook.unbook(hold)
        earlier = _give(outlook, job, hold.starts_us - 1)
        holds[job] = book(outlook, hold) if earlier is None else earlier
        moved |= earlier is not None
    return moved


def _give_anew(outlook: Outlook, holds: dict[int, Hold]) -> bool:
    """Give all promises anew in the order that delays least, if that is less than now; whether it was.

    Depth first over the orders; a branch ends where somebody would get it later than before, or where even with the
    promises that the others would get alone nothing is gained.
    """
    size, before = outlook.problem.jobs.size, dict(holds)
    for hold in before.values():
        outlook.unbook(hold)
    alone: dict[int, int] = {}
    for job in before:
        best_alone = soonest(outlook, job, pools_of(outlook.problem, job))
        alone[job] = outlook.problem.now_us if best_alone is None else best_alone.at_us

    def cost(job: int, at_us: int) -> int:
        return int(size[job]) * (at_us - outlook.problem.now_us)

    best = sum(cost(j, h.starts_us) for j, h in before.items())
    plan: list[Hold] = []
    tried = 0

    def extend(given: list[Hold], spent: int, rest: list[int]) -> None:
        nonlocal best, plan, tried
        if not rest:
            if spent < best:
                best, plan = spent, list(given)
            return
        for job in rest:
            others = [j for j in rest if j != job]
            if tried >= MOST_TRIED or spent + sum(cost(j, alone[j]) for j in rest) >= best:
                return
            tried += 1
            found = _give(outlook, job, before[job].starts_us)
            if found is not None:
                extend([*given, found], spent + cost(job, found.starts_us), others)
                outlook.unbook(found)

    extend([], 0, list(before))
    holds.update({hold.job: hold for hold in plan})
    for hold in holds.values():
        book(outlook, hold)
    return bool(plan)
