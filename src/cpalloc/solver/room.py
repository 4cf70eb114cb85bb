"""Making room for a gang: the cheapest work that may be taken back, pruned to what is needed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from cpalloc.problem.problem import Action, BoolArray, IntArray, JobState, Mode
from cpalloc.solver.placing import GreedyState, domain_and_pool, slots_now, slots_on

MOST_DOMAINS = 3
"""Domains in which making room is tried out: those where it looks cheapest."""


def _victims(state: GreedyState, job: int) -> BoolArray:
    """Work that allocated demand of the job's budget may take back now (rules 2, 3, 4 and 9); shape (J,)."""
    problem = state.problem
    jobs, budgets = problem.jobs, problem.budgets
    may: BoolArray = (jobs.state == JobState.EVICTABLE) & (jobs.leaf != jobs.leaf[job])
    may &= (state.decision.action == Action.KEEP) & ~state.decision.promoted
    bound = problem.policy.max_preempted_gpus
    if bound >= 0:
        may &= jobs.size <= bound - state.preempted_gpus
    spare = np.array(state.granted, dtype=np.int64) - budgets.claim
    may &= (jobs.mode == Mode.BORROWED) | (jobs.size <= spare[jobs.leaf])
    return may


class _Losses:
    """What budgets lose by the victims chosen so far: rule 4, and the bound on preempted GPUs."""

    def __init__(self, state: GreedyState) -> None:
        self._state = state
        self._lost: dict[int, int] = defaultdict(int)
        self._total = state.preempted_gpus

    def admit(self, victims: Sequence[int]) -> bool:
        """Count further victims, if they may go as well."""
        jobs, budgets = self._state.problem.jobs, self._state.problem.budgets
        lost, total = dict(self._lost), self._total
        for v in victims:
            total += int(jobs.size[v])
            if jobs.mode[v] == Mode.ALLOCATED:
                lost[int(jobs.leaf[v])] = lost.get(int(jobs.leaf[v]), 0) + int(jobs.size[v])
        bound = self._state.problem.policy.max_preempted_gpus
        if bound >= 0 and total > bound:
            return False
        if any(self._state.granted[leaf] - gpus < int(budgets.claim[leaf]) for leaf, gpus in lost.items()):
            return False
        self._lost, self._total = defaultdict(int, lost), total
        return True


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of ``Problem.held`` that may be vacated for a job, and what each alone would gain; all of shape (r,).

    ``domain``: number of the (domain, pool) of the node; ``gain``: replicas the node takes more.
    """

    node: IntArray
    job: IntArray
    gpus: IntArray
    domain: IntArray
    gain: IntArray


def make_room(state: GreedyState, job: int) -> tuple[list[tuple[int, int]], list[int]] | None:
    """The cheapest way to make room for a gang: per domain, bundles of victims by cost per replica gained.

    Returns
    -------
    nodes, victims
        (node, replicas) …, and the work to preempt; None where no room can be made.
    """
    problem, jobs = state.problem, state.problem.jobs
    may = _victims(state, job)
    here = may[problem.held.job] & problem.eligibility[jobs.eligibility[job], problem.held.node]
    if not here.any():
        return None
    need, base = int(jobs.replicas[job]), slots_now(state, job, Mode.ALLOCATED)
    domain = domain_and_pool(problem, job)
    rows = _rows(state, job, np.flatnonzero(here), base, domain)
    best: tuple[int, int, list[int], dict[int, int]] | None = None
    for d, bundles in _bundles(state, job, rows, base, domain, need):
        have = {n: int(base[n]) for n in np.flatnonzero((domain == d) & (base > 0)).tolist()}
        found = _try(state, job, bundles, partial(_inside, state, here, domain == d), have, need)
        if found is not None and (best is None or found[:2] < best[:2]):
            best = found
    if best is None:
        return None
    _, _, chosen, have = best
    # Prefer the nodes that were made free: every victim needs a beneficiary on its nodes.
    gone = np.isin(rows.job, chosen)
    vacated = set(rows.node[gone].tolist())
    left, filled = need, []
    for n in sorted((n for n in have if have[n]), key=lambda n: (n not in vacated, n)):
        take = min(left, have[n])
        if take:
            filled.append((n, take))
            left -= take
    return filled, chosen


def _rows(state: GreedyState, job: int, held_rows: IntArray, base: IntArray, domain: IntArray) -> _Rows:
    """Rows with their gain by GPUs, or, where more than GPUs decides, by trying it out."""
    held, jobs, usage = state.problem.held, state.problem.jobs, state.usage
    node, gpus, g = held.node[held_rows], held.gpus[held_rows], int(jobs.gpus_per_replica[job])
    plain = not (jobs.resources[job].any() or jobs.exclusive[job] or jobs.same_gpu_group[job] or jobs.max_per_node[job])
    if plain:
        gain = (usage.free_gpus[node] + gpus) // g - base[node]
    else:
        gain = np.zeros(len(held_rows), dtype=np.int64)
        for r, (v, n) in enumerate(zip(held.job[held_rows].tolist(), node.tolist(), strict=True)):
            usage.evict(v)
            gain[r] = slots_on(state, job, n) - base[n]
            usage.restore(v)
    return _Rows(node, held.job[held_rows], gpus, domain[node], np.maximum(gain, 0))


def _bundles(
    state: GreedyState, job: int, rows: _Rows, base: IntArray, domain: IntArray, need: int
) -> Iterator[tuple[int, Iterator[tuple[int, ...]]]]:
    """Domains where room may be made, those that look cheapest first, with bundles of victims by cost per replica.

    A bundle is one victim, or all that hold a node together.
    """
    jobs, free = state.problem.jobs, state.usage.free_gpus
    g, width = int(jobs.gpus_per_replica[job]), len(jobs)
    # One victim: what it gains on all its nodes of a domain.
    key, row_of = np.unique(rows.domain * width + rows.job, return_inverse=True)
    alone = np.bincount(row_of, weights=rows.gain).astype(np.int64)
    # All of a node: what they gain there together, and elsewhere one by one.
    nodes, at = np.unique(rows.node, return_inverse=True)
    together = (free[nodes] + np.bincount(at, weights=rows.gpus).astype(np.int64)) // g - base[nodes]
    elsewhere = np.bincount(at, weights=alone[row_of] - rows.gain).astype(np.int64)
    several = np.bincount(at) > 1
    cost = jobs.preempt_cost
    node_cost = np.bincount(at, weights=cost[rows.job]).astype(np.int64)
    gain = np.concatenate([alone, np.maximum(together + elsewhere, _largest(at, rows.gain))[several]])
    price = np.concatenate([cost[key % width], node_cost[several]])
    where = np.concatenate([key // width, domain[nodes[several]]])
    what = np.concatenate([key % width, -1 - np.flatnonzero(several)])
    useful = gain > 0
    if not useful.any():
        return
    gain, price, where, what = gain[useful], price[useful], where[useful], what[useful]
    score = price / np.minimum(gain, need)
    order = np.lexsort((what, -gain, score, where))
    gain, price, where, what = gain[order], price[order], where[order], what[order]
    have = np.bincount(domain, weights=base * state.problem.eligibility[jobs.eligibility[job]], minlength=1)
    numbers, first = np.unique(where, return_index=True)
    looks = []
    for d, begin, end in zip(numbers.tolist(), first.tolist(), [*first[1:].tolist(), len(where)], strict=True):
        lack = need - int(have[d])
        enough = int(np.searchsorted(np.cumsum(gain[begin:end]), lack))
        if enough < end - begin:
            looks.append((int(price[begin : begin + enough + 1].sum()), d, begin, end))
    for _, d, begin, end in sorted(looks)[:MOST_DOMAINS]:
        yield d, ((w,) if w >= 0 else tuple(sorted(rows.job[at == -1 - w].tolist())) for w in what[begin:end].tolist())


def _largest(at: IntArray, gain: IntArray) -> IntArray:
    """Largest gain of a single row per group."""
    out = np.zeros(int(at.max()) + 1, dtype=np.int64)
    np.maximum.at(out, at, gain)
    return out


def _inside(state: GreedyState, here: BoolArray, inside: BoolArray, job: int) -> list[int]:
    """Nodes of a domain that a victim would vacate for the gang."""
    return [n for row, n in state.usage.rows_of(job) if here[row] and inside[n]]


def _try(
    state: GreedyState,
    job: int,
    bundles: Iterator[tuple[int, ...]],
    nodes_of: Callable[[int], list[int]],
    have: dict[int, int],
    need: int,
) -> tuple[int, int, list[int], dict[int, int]] | None:
    """Make room in one domain: (cost, victims, who they are, replicas per node); None where it is not enough."""
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
