"""Making room for a gang: the cheapest work that may be taken back, pruned to what is needed."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction

import numpy as np

from cpalloc.problem.problem import Action, IntArray, JobState, Mode
from cpalloc.solver.placing import GreedyState, domain_and_pool, slots_now, slots_on


def _victims(state: GreedyState, job: int) -> list[int]:
    """Work that allocated demand of the job's budget may take back now (rules 2, 3, 4 and 9)."""
    problem = state.problem
    jobs, budgets = problem.jobs, problem.budgets
    may = (jobs.state == JobState.EVICTABLE) & (jobs.leaf != jobs.leaf[job])
    may &= (state.decision.action == Action.KEEP) & ~state.decision.promoted
    bound = problem.policy.max_preempted_gpus
    if bound >= 0:
        may &= jobs.size <= bound - state.preempted_gpus
    spare = np.array(state.granted, dtype=np.int64) - budgets.claim
    may &= (jobs.mode == Mode.BORROWED) | (jobs.size <= spare[jobs.leaf])
    return [int(v) for v in np.flatnonzero(may)]


def _may_lose(state: GreedyState, victims: list[int]) -> bool:
    """Rule 4 for a set of victims, and the bound on preempted GPUs."""
    jobs, budgets = state.problem.jobs, state.problem.budgets
    loss: dict[int, int] = defaultdict(int)
    total = state.preempted_gpus
    for v in victims:
        total += int(jobs.size[v])
        if jobs.mode[v] == Mode.ALLOCATED:
            loss[int(jobs.leaf[v])] += int(jobs.size[v])
    bound = state.problem.policy.max_preempted_gpus
    if bound >= 0 and total > bound:
        return False
    return all(state.granted[leaf] - lost >= int(budgets.claim[leaf]) for leaf, lost in loss.items())


def make_room(state: GreedyState, job: int) -> tuple[list[tuple[int, int]], list[int]] | None:
    """The cheapest way to make room for a gang: per domain, bundles of victims by cost per replica gained."""
    problem, usage = state.problem, state.usage
    jobs = problem.jobs
    eligible = problem.eligibility[jobs.eligibility[job]]
    victims = set(_victims(state, job))
    if not victims:
        return None
    on_node: dict[int, list[int]] = defaultdict(list)
    nodes_of: dict[int, list[int]] = defaultdict(list)
    for v, n in zip(problem.held.job.tolist(), problem.held.node.tolist(), strict=True):
        if v in victims and eligible[n]:
            on_node[n].append(v)
            nodes_of[v].append(n)
    need = int(jobs.replicas[job])
    best: tuple[int, int, list[int], dict[int, int]] | None = None
    base = slots_now(state, job, Mode.ALLOCATED)
    domain = domain_and_pool(problem, job)
    for nodes in _by_domain(domain, np.flatnonzero(eligible)):
        inside = set(nodes)
        bundles = {(v,) for n in nodes for v in on_node[n]} | {tuple(sorted(on_node[n])) for n in nodes if on_node[n]}
        if not bundles:
            continue
        chosen: list[int] = []
        have = {n: int(base[n]) for n in nodes}
        total = sum(have.values())
        scored = []
        for bundle in bundles:
            gain = _gain(state, job, list(bundle), nodes_of, inside, have)
            if gain > 0:
                cost = sum(int(jobs.preempt_cost[v]) for v in bundle)
                scored.append((Fraction(cost, min(gain, need)), -gain, bundle))
        scored.sort()
        for _, _, bundle in scored:
            if total >= need:
                break
            fresh = [v for v in bundle if v not in chosen]
            if not fresh or not _may_lose(state, chosen + fresh):
                continue
            for v in fresh:
                usage.evict(v)
            chosen += fresh
            for n in {n for v in fresh for n in nodes_of[v] if n in inside}:
                total -= have[n]
                have[n] = slots_on(state, job, n)
                total += have[n]
        if total >= need:
            for v in sorted(chosen, key=lambda v: (-int(jobs.preempt_cost[v]), -int(jobs.size[v]), v)):
                usage.restore(v)
                touched = [n for n in nodes_of[v] if n in inside]
                now = {n: slots_on(state, job, n) for n in touched}
                lost = sum(have[n] - now[n] for n in touched)
                if total - lost >= need:
                    total -= lost
                    have.update(now)
                    chosen.remove(v)
                else:
                    usage.evict(v)
            cost = sum(int(jobs.preempt_cost[v]) for v in chosen)
            if best is None or (cost, len(chosen)) < best[:2]:
                best = (cost, len(chosen), list(chosen), dict(have))
        for v in chosen:
            usage.restore(v)
    if best is None:
        return None
    _, _, chosen, have = best
    for v in chosen:
        usage.evict(v)
    # Prefer the nodes that were made free: every victim needs a beneficiary on its nodes.
    vacated = {n for v in chosen for n in nodes_of[v]}
    order = sorted((n for n in have if have[n]), key=lambda n: (n not in vacated, n))
    left, filled = need, []
    for n in order:
        take = min(left, have[n])
        if take:
            filled.append((n, take))
            left -= take
    for v in chosen:
        usage.restore(v)
    return filled, chosen


def _by_domain(domain: IntArray, nodes: IntArray) -> list[list[int]]:
    """Nodes by domain, both in order of the first node."""
    out: dict[int, list[int]] = defaultdict(list)
    for d, n in zip(domain[nodes].tolist(), nodes.tolist(), strict=True):
        out[d].append(n)
    return list(out.values())


def _gain(
    state: GreedyState,
    job: int,
    bundle: list[int],
    nodes_of: dict[int, list[int]],
    inside: set[int],
    have: dict[int, int],
) -> int:
    """Replicas gained inside a domain if a bundle of victims left."""
    usage = state.usage
    for v in bundle:
        usage.evict(v)
    gain = sum(slots_on(state, job, n) - have[n] for n in {n for v in bundle for n in nodes_of[v] if n in inside})
    for v in bundle:
        usage.restore(v)
    return gain
