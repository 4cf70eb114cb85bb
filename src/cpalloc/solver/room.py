"""Making room for a gang: the cheapest work that may be taken back, pruned to what is needed."""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from cpalloc.problem.problem import Action, BoolArray, IntArray, Jobs, JobState, Mode, Problem
from cpalloc.solver.placing import GreedyState, domain_and_pool, slots_now, slots_on, sum_by

FloatArray = npt.NDArray[np.float64]

_Room = tuple[int, int, list[int], dict[int, int]]
"""Cost, number of victims, who they are, and the replicas that nodes take without them."""

MOST_DOMAINS = 3
"""Domains in which making room is tried out: those where it looks cheapest."""


def _vacated(state: GreedyState, job: int) -> BoolArray:
    """Rows of ``Problem.held`` of work that allocated demand of the job's budget may take back now (rules 2, 3, 4 and
    9), on nodes it may use; shape (rows,)."""
    problem = state.problem
    among, leaf, size, lent, of_row = problem.once("evictable", lambda: _evictable(problem))
    may: BoolArray = (leaf != problem.jobs.leaf[job]) & (state.decision.action[among] == int(Action.KEEP))
    may &= ~state.decision.promoted[among]
    bound = problem.policy.max_preempted_gpus
    if bound >= 0:
        may &= size <= bound - state.preempted_gpus
    spare = np.array(state.granted, dtype=np.int64) + state.coming - problem.budgets.claim
    may &= lent | (size <= spare[leaf])
    out: BoolArray = np.append(may, False)[of_row]
    rule = int(problem.jobs.eligibility[job])
    out &= problem.once(("eligible where held", rule), lambda: problem.eligibility[rule, problem.held.node])
    return out


def _evictable(problem: Problem) -> tuple[IntArray, IntArray, IntArray, BoolArray, IntArray]:
    """Jobs that may be preempted, their leaves, sizes, which of them borrow, and which of them each held row is of
    (−1: of a job that may not)."""
    jobs = problem.jobs
    among = np.flatnonzero(jobs.state == JobState.EVICTABLE)
    position: IntArray = np.full(len(jobs), -1, dtype=np.int64)
    position[among] = np.arange(len(among))
    return among, jobs.leaf[among], jobs.size[among], jobs.mode[among] == Mode.BORROWED, position[problem.held.job]


class _Losses:
    """What budgets lose by the victims chosen so far: rule 4, and the bound on preempted GPUs."""

    def __init__(self, state: GreedyState) -> None:
        self._state = state
        self._lost: dict[int, int] = defaultdict(int)
        self._total = state.preempted_gpus

    def admit(self, victims: Sequence[int]) -> bool:
        """Count further victims, if they may go as well."""
        jobs, budgets, state = self._state.problem.jobs, self._state.problem.budgets, self._state
        lost, total = dict(self._lost), self._total
        for v in victims:
            total += int(jobs.size[v])
            if int(jobs.mode[v]) == Mode.ALLOCATED:
                lost[int(jobs.leaf[v])] = lost.get(int(jobs.leaf[v]), 0) + int(jobs.size[v])
        bound = self._state.problem.policy.max_preempted_gpus
        if bound >= 0 and total > bound:
            return False
        have = {leaf: state.granted[leaf] + state.coming[leaf] for leaf in lost}
        if any(have[leaf] - gpus < int(budgets.claim[leaf]) for leaf, gpus in lost.items()):
            return False
        self._lost, self._total = defaultdict(int, lost), total
        return True


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of ``Problem.held`` that may be vacated for a job, and what each alone would gain; all of shape (r,).

    ``key``: number of its job and of the (domain, pool) of its node; ``gain``: replicas the node takes more.
    """

    node: IntArray
    job: IntArray
    gpus: IntArray
    key: IntArray
    gain: IntArray


@dataclass(frozen=True, slots=True)
class _Keys:
    """Jobs that hold something in a (domain, pool) of a level: a number for each such pair, by row of ``Problem.held``;
    and what they are, by number."""

    of_row: IntArray
    job: IntArray
    domain: IntArray

    @classmethod
    def of(cls, problem: Problem, level: int) -> _Keys:
        """Those of a level."""

        def numbered() -> _Keys:
            held, width = problem.held, len(problem.jobs)
            keys, of_row = np.unique(domain_and_pool(problem, level)[held.node] * width + held.job, return_inverse=True)
            return cls(of_row.ravel(), keys % width, keys // width)

        return problem.once(("who holds what", level), numbered)


def make_room(state: GreedyState, job: int) -> tuple[list[tuple[int, int]], list[int]] | None:
    """The cheapest way to make room for a gang: per domain, bundles of victims by cost per replica gained.

    Returns
    -------
    nodes, victims
        (node, replicas) …, and the work to preempt; None where no room can be made.
    """
    jobs, here = state.problem.jobs, _vacated(state, job)
    if not here.any():
        return None
    need, best = int(jobs.replicas[job]), None
    if need == 1 and _is_plain(jobs, job):
        best = _for_one(state, job, here)
    if best is None:
        best = _for_gang(state, job, here)
    if best is None:
        return None
    _, _, chosen, have = best
    # Prefer the nodes that were made free: every victim needs a beneficiary on its nodes.
    vacated = {n for v in chosen for n in _leaves(state, here, v)}
    left, filled = need, []
    for n in sorted((n for n in have if have[n]), key=lambda n: (n not in vacated, n)):
        take = min(left, have[n])
        if take:
            filled.append((n, take))
            left -= take
    return filled, chosen


def _is_plain(jobs: Jobs, job: int) -> bool:
    """Whether free GPUs alone decide how many replicas a node takes."""
    return not (jobs.resources[job].any() or jobs.exclusive[job] or jobs.same_gpu_group[job] or jobs.max_per_node[job])


def _for_one(state: GreedyState, job: int, here: BoolArray) -> _Room | None:
    """Room for one replica that asks for GPUs alone, and has none yet: one node, where one victim or all of them make
    enough; the cheapest of either. None where those do not do, for what only :func:`_for_gang` sees.

    Most jobs are of this kind, and all that a gang is looked at for (domains, replicas gained) says nothing here.
    """
    problem, free, g = state.problem, state.usage.free_gpus, int(state.problem.jobs.gpus_per_replica[job])
    rows = np.flatnonzero(here)
    node, gpus = problem.held.node[rows], problem.held.gpus[rows]
    cost = problem.jobs.preempt_cost[problem.held.job[rows]]
    options: list[tuple[int, list[int]]] = []
    alone = np.flatnonzero(free[node] + gpus >= g)
    if len(alone):
        at = alone[cost[alone].argmin()]
        options.append((int(cost[at]), [int(problem.held.job[rows[at]])]))
    leaving = sum_by(node, gpus, len(free))
    together = np.flatnonzero((leaving > 0) & (free + leaving >= g))  # what is free for others is of no use
    if len(together):
        price = sum_by(node, cost, len(free))[together]
        at = price.argmin()
        options.append((int(price[at]), problem.held.job[rows[node == together[at]]].tolist()))
    for least, victims in sorted(options):
        if len(victims) == 1 and not problem.holds and state.usage.all_open:
            # That it is enough is known: no need to try.
            if _Losses(state).admit(victims):
                left = {n: int(free[n] + own) // g for row, n, own in state.usage.held_by(victims[0]) if here[row]}
                return least, 1, victims, left
            continue
        found = _try(state, job, iter([tuple(victims)]), partial(_leaves, state, here), {}, 1)
        if found is not None:
            return found
    return None


def _for_gang(state: GreedyState, job: int, here: BoolArray) -> _Room | None:
    """Room for a gang, in the domain where it is cheapest."""
    problem, jobs = state.problem, state.problem.jobs
    need, base = int(jobs.replicas[job]), slots_now(state, job, Mode.ALLOCATED)
    domain = domain_and_pool(problem, int(jobs.required_level[job]))
    rows = _rows(state, job, np.flatnonzero(here), base)
    room = np.flatnonzero(base)
    best: _Room | None = None
    for d, bundles in _bundles(state, job, rows, base, domain, need):
        inside = room[domain[room] == d]
        have = dict(zip(inside.tolist(), base[inside].tolist(), strict=True))
        found = _try(state, job, bundles, partial(_inside, state, here, domain, d), have, need)
        if found is not None and (best is None or found[:2] < best[:2]):
            best = found
    return best


def _rows(state: GreedyState, job: int, held_rows: IntArray, base: IntArray) -> _Rows:
    """Rows with their gain by GPUs, or, where more than GPUs decides, by trying it out."""
    held, jobs, usage = state.problem.held, state.problem.jobs, state.usage
    node, gpus, g = held.node[held_rows], held.gpus[held_rows], int(jobs.gpus_per_replica[job])
    if _is_plain(jobs, job):
        gain = (usage.free_gpus[node] + gpus) // g - base[node]
    else:
        gain = np.zeros(len(held_rows), dtype=np.int64)
        for r, (v, n) in enumerate(zip(held.job[held_rows].tolist(), node.tolist(), strict=True)):
            usage.evict(v)
            gain[r] = slots_on(state, job, n) - base[n]
            usage.restore(v)
    keys = _Keys.of(state.problem, int(jobs.required_level[job]))
    return _Rows(node, held.job[held_rows], gpus, keys.of_row[held_rows], np.maximum(gain, 0))


def _bundles(
    state: GreedyState, job: int, rows: _Rows, base: IntArray, domain: IntArray, need: int
) -> Iterator[tuple[int, Iterator[tuple[int, ...]]]]:
    """Domains where room may be made, those that look cheapest first, with bundles of victims by cost per replica."""
    gain, price, where, what = _offers(state, job, rows, base, domain)
    score = price / np.maximum(1, np.minimum(gain, need))
    have = sum_by(domain[there := np.flatnonzero(base)], base[there], int(domain.max()) + 1)
    lacks = need - have
    among = np.flatnonzero((gain > 0) & (sum_by(where, gain, len(have)) >= lacks)[where])
    looks: list[tuple[int, int, IntArray, IntArray]] = []
    for d, inside, least in _by_domain(where, among, score, lacks):
        if len(looks) == MOST_DOMAINS and least > looks[-1][0]:
            break
        lack = int(lacks[d])
        # Each gains one at least, so that the cheapest ``lack`` of them tell what it may cost.
        cheapest, others = _cheapest(inside, score, lack)
        order = cheapest[np.lexsort((what[cheapest], -gain[cheapest], score[cheapest]))]
        enough = int(np.searchsorted(np.cumsum(gain[order]), lack))
        insort(looks, (int(price[order[: enough + 1]].sum()), d, order, others), key=lambda look: look[:2])
        del looks[MOST_DOMAINS:]
    for _, d, order, others in looks:
        parts = _lazily(order, others, (what, -gain, score))
        yield d, (_victims_of(rows, w) for part in parts for w in what[part].tolist())


def _offers(
    state: GreedyState, job: int, rows: _Rows, base: IntArray, domain: IntArray
) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Bundles of victims: the replicas each gains, its cost, its domain, and what it is (:func:`_victims_of`).

    A bundle is one victim, or all that hold a node together.
    """
    jobs, free = state.problem.jobs, state.usage.free_gpus
    g, cost = int(jobs.gpus_per_replica[job]), jobs.preempt_cost
    keys = _Keys.of(state.problem, int(jobs.required_level[job]))
    # One victim: what it gains on all its nodes of a domain.
    alone = sum_by(rows.key, rows.gain, len(keys.job))
    one = np.flatnonzero(alone)
    # All of a node: what they gain there together, and elsewhere one by one.
    with_others = np.bincount(rows.node, minlength=len(base)) > 1
    shared, several = np.flatnonzero(with_others[rows.node]), np.flatnonzero(with_others)
    at = np.searchsorted(several, rows.node[shared])
    together = (free[several] + sum_by(at, rows.gpus[shared], len(several))) // g - base[several]
    elsewhere = sum_by(at, (alone[rows.key] - rows.gain)[shared], len(several))
    largest: IntArray = np.zeros(len(several), dtype=np.int64)
    np.maximum.at(largest, at, rows.gain[shared])
    return (
        np.concatenate([alone[one], np.maximum(together + elsewhere, largest)]),
        np.concatenate([cost[keys.job[one]], sum_by(at, cost[rows.job[shared]], len(several))]),
        np.concatenate([keys.domain[one], domain[several]]),
        np.concatenate([keys.job[one], -1 - several]),
    )


def _victims_of(rows: _Rows, what: int) -> tuple[int, ...]:
    """The job of that number, or, below 0, those on node −1 − ``what``."""
    return (what,) if what >= 0 else tuple(sorted(rows.job[rows.node == -1 - what].tolist()))


def _by_domain(
    where: IntArray, among: IntArray, score: FloatArray, lacks: IntArray
) -> Iterator[tuple[int, IntArray, float]]:
    """Domains of some bundles, the bundles of each, and what the replicas it lacks cost at least: so many times the
    lowest cost per replica. The lowest first."""
    if not len(among):
        return
    among = among[np.argsort(where[among], kind="stable")]
    in_order = where[among]
    first = np.append(0, 1 + np.flatnonzero(in_order[1:] != in_order[:-1]))
    beyond = [*first[1:].tolist(), len(among)]
    domains = where[among[first]]
    least = np.minimum.reduceat(score[among], first) * lacks[domains] * (1 - 1e-9)  # safe from rounding
    for at in np.argsort(least, kind="stable").tolist():
        yield int(domains[at]), among[first[at] : beyond[at]], float(least[at])


def _cheapest(among: IntArray, score: FloatArray, number: int) -> tuple[IntArray, IntArray]:
    """So many of some bundles that score lowest, or more where several score the same; and the others."""
    if not 0 < number < len(among) // 2:
        return among, among[:0]
    scores = score[among]
    low = scores <= np.partition(scores, number - 1)[number - 1]
    return among[low], among[~low]


def _lazily(order: IntArray, others: IntArray, keys: tuple[IntArray, IntArray, FloatArray]) -> Iterator[IntArray]:
    """Those in order, and the others put in order once they are asked for."""
    yield order
    yield others[np.lexsort(tuple(key[others] for key in keys))]


def _leaves(state: GreedyState, here: BoolArray, job: int) -> list[int]:
    """Nodes that a victim would vacate for the gang."""
    return [n for row, n, _ in state.usage.held_by(job) if here[row]]


def _inside(state: GreedyState, here: BoolArray, domain_of: IntArray, domain: int, job: int) -> list[int]:
    """Those of a domain."""
    return [n for n in _leaves(state, here, job) if domain_of[n] == domain]


def _try(
    state: GreedyState,
    job: int,
    bundles: Iterator[tuple[int, ...]],
    nodes_of: Callable[[int], list[int]],
    have: dict[int, int],
    need: int,
) -> _Room | None:
    """Make room in one domain; None where it is not enough."""
    usage, jobs = state.usage, state.problem.jobs
    total, losses = sum(have.values()), _Losses(state)
    chosen: list[int] = []
    for bundle in bundles:
        if total >= need:
            break
        fresh = [v for v in bundle if v not in chosen]
        if not fresh or not losses.admit(fresh):
            continue
        for v in fresh:
            usage.evict(v)
        chosen += fresh
        for n in {n for v in fresh for n in nodes_of(v)}:
            total -= have.get(n, 0)
            have[n] = slots_on(state, job, n)
            total += have[n]
    found = total >= need
    if found:
        for v in sorted(chosen, key=lambda v: (-int(jobs.preempt_cost[v]), -int(jobs.size[v]), v)):
            usage.restore(v)
            now = {n: slots_on(state, job, n) for n in nodes_of(v)}
            lost = sum(have[n] - now[n] for n in now)
            if total - lost >= need:
                total -= lost
                have.update(now)
                chosen.remove(v)
            else:
                usage.evict(v)
    for v in chosen:
        usage.restore(v)
    return (int(jobs.preempt_cost[chosen].sum()), len(chosen), list(chosen), have) if found else None
