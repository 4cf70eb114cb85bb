"""Blocked gangs and what can be promised to them (policy section 6).

A gang that is entitled and does not fit now must not starve behind small protected jobs. For the best-ranked blocked
jobs a domain and the earliest instant are found at which the domain can hold the gang, given every release that is
known: protections that end, timeouts. Borrowed work never stands in the way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cpalloc.metrics.outlook import Nearby, Outlook
from cpalloc.problem.grants import granted
from cpalloc.problem.problem import Action, Decision, Hold, IntArray, JobState, Mode, Problem


def blocked(problem: Problem, decision: Decision) -> tuple[int, ...]:
    """Blocked jobs, best rank first: of every leaf below its claim the first waiting job that its caps would admit."""
    jobs = problem.jobs
    have = granted(problem, decision)
    waits = (decision.action == Action.WAIT) & (jobs.state == JobState.PENDING) & jobs.may_allocate
    waiting = np.flatnonzero(waits & (have < problem.budgets.claim)[jobs.leaf])
    first: dict[int, int] = {}
    for j in waiting[np.argsort(jobs.order[waiting])].tolist():
        leaf = int(jobs.leaf[j])
        if leaf not in first and _within_caps(problem, have, j):
            first[leaf] = j
    return tuple(sorted(first.values(), key=lambda j: int(jobs.rank[j])))


def _within_caps(problem: Problem, have: np.ndarray, job: int) -> bool:
    """Whether the caps on allocated GPUs above a job admit it beside what every leaf has."""
    budgets, size = problem.budgets, int(problem.jobs.size[job])
    return all(
        int(have[list(budgets.leaves_below[vertex])].sum()) + size <= cap
        for vertex, cap in budgets.caps_above(int(problem.jobs.leaf[job]), Mode.ALLOCATED)
    )


def reserve(
    problem: Problem,
    decision: Decision,
    *,
    kept: Sequence[Hold] = (),
    proposed: Sequence[Hold] = (),
    jobs: Sequence[int] | None = None,
) -> tuple[tuple[Hold, ...], tuple[int, ...]]:
    """Promises of a decision, and the jobs they are for.

    Parameters
    ----------
    kept
        Reservations that stand (their job still waiting): renewed first, with their nodes.
    proposed
        Promises to be given like that, after those kept.
    jobs
        Whom to promise something, best first; by default the best-ranked blocked jobs, ``policy.reservations`` a pool.

    Returns
    -------
    holds, blocked
        Promises that share no GPU, and all jobs considered, promised or not, both by rank. A job that could start at
        once, beside all promises, by preemptions the round decided against is not blocked and gets none.
    """
    outlook = Outlook(problem, decision)
    rank = problem.jobs.rank
    holds: list[Hold] = []
    considered: list[int] = []
    able: list[tuple[int, list[int]]] = []
    taken: dict[int, int] = defaultdict(int)
    for hold in (*by_instant(kept), *by_instant(proposed)):
        if decision.action[hold.job] == Action.WAIT and (fresh := renew(outlook, hold)) is not None:
            holds.append(fresh)
            considered.append(hold.job)
            taken[int(problem.nodes.pool[hold.nodes[0]])] += 1
    for job in blocked(problem, decision) if jobs is None else jobs:
        if job in considered or decision.action[job] != Action.WAIT:
            continue
        open_pools = [p for p in pools_of(problem, job) if taken[p] < problem.policy.reservations or jobs is not None]
        if not open_pools:
            continue
        at_once, found = promise(outlook, job, open_pools)
        if at_once:
            able.append((job, open_pools))
            continue
        considered.append(job)
        if found is not None:
            holds.append(found)
        taken[int(problem.nodes.pool[found.nodes[0]]) if found else open_pools[0]] += 1
    late, found_late = _late(outlook, able)
    holds, considered = holds + found_late, considered + late
    return (
        tuple(sorted(holds, key=lambda h: int(rank[h.job]))),
        tuple(sorted(considered, key=lambda j: int(rank[j]))),
    )


def _late(outlook: Outlook, able: Sequence[tuple[int, list[int]]]) -> tuple[list[int], list[Hold]]:
    """Who could start at once beside the promises before it, but not beside all of them; and what is promised to it."""
    late: list[int] = []
    holds: list[Hold] = []
    again = bool(outlook.promised.any())
    while again:
        again = False
        for job, pools in able:
            if job not in late:
                at_once, found = promise(outlook, job, pools)
                if not at_once:
                    late.append(job)
                    holds += [found] if found else []
                    again |= found is not None
    return late, holds


def pools_of(problem: Problem, job: int) -> list[int]:
    """Pools of the nodes a job may use."""
    rule = int(problem.jobs.eligibility[job])
    return problem.once(("pools", rule), lambda: np.unique(problem.nodes.pool[problem.eligibility[rule]]).tolist())


def promise(outlook: Outlook, job: int, pools: list[int]) -> tuple[bool, Hold | None]:
    """Whether the job could start at once, else the best promise: earliest instant, then the domain's name.

    The GPUs of a promise are marked as promised.
    """
    best = soonest(outlook, job, pools)
    if best is None:
        return False, None
    if best.at_us <= outlook.problem.now_us:
        return True, None
    return False, place(outlook, best)


@dataclass(frozen=True, slots=True)
class Soonest:
    """The earliest instant at which a domain surely holds a job, whom budgets spare for it, and its nodes."""

    job: int
    level: int
    domain: int
    at_us: int
    spared: frozenset[int]
    nearby: Nearby

    def hold(self) -> Hold:
        """A promise of that, without nodes yet."""
        return Hold(self.job, self.level, self.domain, (), (), self.at_us)


def soonest(outlook: Outlook, job: int, pools: Sequence[int]) -> Soonest | None:
    """When and where a domain of some pools holds a job first, the first by name; None if none ever surely does."""
    problem, jobs = outlook.problem, outlook.problem.jobs
    level, rule = int(jobs.required_level[job]), int(jobs.eligibility[job])
    domains = problem.once(("domains", rule, level, *pools), lambda: list(_domains(problem, rule, level, pools)))
    best: Soonest | None = None
    for domain, nodes in domains:
        nearby = outlook.over(nodes)
        fit = nearby.earliest(job, None if best is None else best.at_us)
        if fit is not None:
            best = Soonest(job, level, domain, fit.at_us, fit.spared, nearby)
    return best


def place(outlook: Outlook, best: Soonest) -> Hold:
    """A promise on nodes of its domain; its GPUs are marked as promised."""
    return book(outlook, _on_nodes(outlook, best.hold(), outlook.over(best.nearby.nodes, best.spared), best.spared))


def _on_nodes(outlook: Outlook, hold: Hold, nearby: Nearby, spared: frozenset[int]) -> Hold:
    """Choose nodes, and GPUs on them, among those that hold the gang together by the promised instant.

    First those that will never have much more room than that, then those that are ready last, then those least free
    now: what holds more later, or is ready sooner, is left to others. ``nearby``: as budgets have spared the jobs in
    ``spared``, of whom the promise relies on no more than it needs.
    """
    problem, jobs, job = outlook.problem, outlook.problem.jobs, hold.job
    slots = nearby.slots(job, hold.starts_us)
    ready_us = nearby.ready_us(job, slots, hold.starts_us)
    some_day, free_now = nearby.room(int(nearby.instants[-1]), hopefully=True), problem.nodes.free_gpus[nearby.nodes]
    counts, chosen, left = np.zeros_like(slots), [], int(jobs.replicas[job])
    for i in np.lexsort((nearby.nodes, free_now, -ready_us, some_day)).tolist():
        count = min(int(slots[i]), left)
        if count:
            chosen.append((int(nearby.nodes[i]), gpus_kept(problem, job, int(nearby.nodes[i]), count)))
            counts[i], left = count, left - count
    chosen.sort()
    relies_on = nearby.needed(job, counts, hold.starts_us, spared)
    return replace(hold, nodes=tuple(n for n, _ in chosen), gpus=tuple(g for _, g in chosen), relies_on=relies_on)


def gpus_kept(problem: Problem, job: int, node: int, replicas: int) -> int:
    """GPUs that a promise keeps on a node for some replicas: all of them where the job wants the node to itself."""
    if replicas and problem.jobs.exclusive[job]:
        return int(problem.nodes.healthy[node])
    return replicas * int(problem.jobs.gpus_per_replica[job])


def by_instant(holds: Iterable[Hold]) -> list[Hold]:
    """Promises in the order in which they begin.

    Whoever is looked at is looked at beside all GPUs of those before, whenever these begin; so in this order all find
    what they were promised.
    """
    return sorted(holds, key=lambda hold: hold.starts_us)


def _domains(problem: Problem, rule: int, level: int, pools: Sequence[int]) -> Iterator[tuple[int, IntArray]]:
    """Domains of a level and the nodes of one of some pools there that a rule of eligibility allows, in order."""
    width = len(problem.pool_names)
    group = problem.topology.domain_of[level] * width + problem.nodes.pool
    nodes = np.flatnonzero(problem.eligibility[rule] & np.isin(problem.nodes.pool, pools))
    ordered = nodes[np.argsort(group[nodes], kind="stable")]
    numbers, first = np.unique(group[ordered], return_index=True)
    for number, there in zip(numbers.tolist(), np.split(ordered, first[1:]), strict=False):
        yield number // width, there


def renew(outlook: Outlook, hold: Hold) -> Hold | None:
    """A kept reservation on its own nodes, its instant brought forward where releases allow; None if it cannot be kept.

    The GPUs of each node stay the same, unless only others of them are there in time.
    """
    problem, job, now_us = outlook.problem, hold.job, outlook.problem.now_us
    latest_us = max(hold.starts_us, now_us)
    nearby = outlook.over(np.array(hold.nodes, dtype=np.int64))
    by_us = int(nearby.instants[np.searchsorted(nearby.instants, latest_us, side="right") - 1])
    if not problem.jobs.exclusive[job]:
        count = np.array(hold.gpus, dtype=np.int64) // int(problem.jobs.gpus_per_replica[job])
        if (fit := nearby.earliest(job, latest_us + 1, count)) is not None:
            starts_us = fit.at_us if fit.at_us > now_us else hold.starts_us
            relies_on = outlook.over(nearby.nodes, fit.spared).needed(job, count, starts_us, fit.spared)
            return book(outlook, replace(hold, starts_us=starts_us, relies_on=relies_on))
    if (fit := nearby.earliest(job, latest_us + 1)) is None:
        return None
    elsewhere = replace(hold, starts_us=fit.at_us if fit.at_us > now_us else by_us)
    return book(outlook, _on_nodes(outlook, elsewhere, outlook.over(nearby.nodes, fit.spared), fit.spared))


def book(outlook: Outlook, hold: Hold) -> Hold:
    """Mark what a promise takes as taken (:meth:`Outlook.book`)."""
    outlook.book(hold)
    return hold
