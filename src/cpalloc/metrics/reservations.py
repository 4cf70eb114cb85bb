"""Blocked gangs and what can be promised to them (policy section 6).

A gang that is entitled and does not fit now must not starve behind small protected jobs. For the best-ranked blocked
jobs a domain and the earliest instant are found at which the domain can hold the gang, given every release that is
known: protections that end, timeouts. Borrowed work never stands in the way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cpalloc.problem.grants import granted
from cpalloc.problem.problem import Action, Decision, Hold, JobState, Mode, NodeState, Problem, Replica
from cpalloc.problem.releases import NEVER, start_release_us, timeout_us


@dataclass(frozen=True, slots=True)
class Stay:
    """One allocated job's stay on one node: what it holds there and when it leaves at the latest."""

    job: int
    gpus: int
    devices: int
    resources: tuple[int, ...]


def blocked(problem: Problem, decision: Decision) -> tuple[int, ...]:
    """Blocked jobs, best rank first: of every leaf below its claim the first waiting job that its caps would admit."""
    jobs, budgets = problem.jobs, problem.budgets
    have = granted(problem, decision)
    below = have < budgets.claim
    first: dict[int, int] = {}
    for j in np.flatnonzero((decision.action == Action.WAIT) & (jobs.state == JobState.PENDING)).tolist():
        leaf = int(jobs.leaf[j])
        if below[leaf] and jobs.may_allocate[j] and _within_caps(problem, have, j):
            best = first.get(leaf)
            if best is None or jobs.order[j] < jobs.order[best]:
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
    problem: Problem, decision: Decision, *, kept: Sequence[Hold] = (), jobs: Sequence[int] | None = None
) -> tuple[tuple[Hold, ...], tuple[int, ...]]:
    """Promises of a decision, and the jobs they are for.

    Parameters
    ----------
    kept
        Reservations that stand (their job still waiting): renewed first, with their nodes.
    jobs
        Whom to promise something, best first; by default the best-ranked blocked jobs, ``policy.reservations`` a pool.

    Returns
    -------
    holds, blocked
        Promises that share no GPU, and all jobs considered, promised or not, both by rank. A job that could start at
        once by preemptions the round decided against is not blocked and gets none.
    """
    ledger = _Ledger(problem, decision)
    rank = problem.jobs.rank
    holds: list[Hold] = []
    considered: list[int] = []
    taken: dict[int, int] = defaultdict(int)
    for hold in kept:
        if decision.action[hold.job] == Action.WAIT and (fresh := ledger.renew(hold)) is not None:
            holds.append(fresh)
            considered.append(hold.job)
            taken[int(problem.nodes.pool[hold.nodes[0]])] += 1
    for job in blocked(problem, decision) if jobs is None else jobs:
        if job in considered or decision.action[job] != Action.WAIT:
            continue
        pools = sorted(set(problem.nodes.pool[problem.eligibility[problem.jobs.eligibility[job]]].tolist()))
        open_pools = [p for p in pools if taken[p] < problem.policy.reservations or jobs is not None]
        if not open_pools:
            continue
        at_once, promise = ledger.promise(job, open_pools)
        if at_once:
            continue
        considered.append(job)
        if promise is not None:
            holds.append(promise)
        taken[int(problem.nodes.pool[promise.nodes[0]]) if promise else open_pools[0]] += 1
    return (
        tuple(sorted(holds, key=lambda h: int(rank[h.job]))),
        tuple(sorted(considered, key=lambda j: int(rank[j]))),
    )


class _Ledger:
    """Who holds what until when, and what is already promised."""

    def __init__(self, problem: Problem, decision: Decision) -> None:
        self.problem, self.decision = problem, decision
        self.on: dict[int, list[Stay]] = defaultdict(list)
        self.promised: dict[int, int] = defaultdict(int)
        self.surplus = granted(problem, decision) - problem.budgets.claim
        jobs = problem.jobs
        for j in np.flatnonzero(decision.mode == Mode.ALLOCATED).tolist():
            starts = decision.action[j] == Action.START
            per_node: dict[int, list[Replica]] = defaultdict(list)
            for rep in decision.placement[j] if starts else jobs.placement[j]:
                if rep.node >= 0 and problem.nodes.state[rep.node] == NodeState.READY:
                    per_node[rep.node].append(rep)
            for node, reps in per_node.items():
                gpus = sum(r.gpus for r in reps)
                devices = -1 if any(r.devices < 0 for r in reps) else 0
                if devices == 0:
                    for r in reps:
                        devices |= r.devices & problem.nodes.healthy_devices[node]
                    gpus = devices.bit_count()
                if jobs.exclusive[j]:
                    gpus, devices = int(problem.nodes.healthy[node]), problem.nodes.healthy_devices[node]
                resources = tuple(int(x) * len(reps) for x in jobs.resources[j])
                self.on[node].append(Stay(j, gpus, devices, resources))

    def releases(self, nodes: list[int]) -> dict[int, int]:
        """Instant by which each allocated job on some nodes has left; NEVER where nothing says so.

        Jobs of a budget over its share leave when their protection ends, earliest first, as long as the budget keeps
        its claim without all of them; the others at their timeout.
        """
        problem, jobs = self.problem, self.problem.jobs
        here = sorted({s.job for n in nodes for s in self.on[n]})
        out, ends = {}, []
        for j in here:
            if self.decision.action[j] == Action.START or self.decision.promoted[j]:
                out[j] = start_release_us(problem, j)
            else:
                out[j] = max(problem.now_us, timeout_us(problem, j))
                if problem.budgets.over_share(int(jobs.leaf[j])):
                    ends.append((max(problem.now_us, int(jobs.protected_until_us[j])), j))
        spare = {leaf: int(self.surplus[leaf]) for leaf in {int(jobs.leaf[j]) for j in here}}
        for end, j in sorted(ends):
            leaf, size = int(jobs.leaf[j]), int(jobs.size[j])
            if size <= spare[leaf]:
                spare[leaf] -= size
                out[j] = min(out[j], end)
        return out

    def slots(self, job: int, node: int, at_us: int, releases: dict[int, int]) -> int:
        """Replicas of a job that a node can hold at an instant, beside what is promised to others there."""
        problem, jobs = self.problem, self.problem.jobs
        stays = [s for s in self.on[node] if releases[s.job] > at_us]
        if jobs.exclusive[job] and (stays or self.promised[node]):
            return 0
        g = int(jobs.gpus_per_replica[job])
        count = (int(problem.nodes.healthy[node]) - sum(s.gpus for s in stays) - self.promised[node]) // g
        if jobs.same_gpu_group[job] and len(problem.nodes.groups[node]) > 1:
            if problem.nodes.unknown_devices[node] or any(s.devices < 0 for s in stays):
                return 0
            free = problem.nodes.healthy_devices[node]
            for s in stays:
                free &= ~s.devices
            count = min(count, sum((free & m).bit_count() // g for m in problem.nodes.groups[node]))
        for r, need in enumerate(jobs.resources[job].tolist()):
            if need:
                left = int(problem.nodes.resources[node, r]) - sum(s.resources[r] for s in stays)
                count = min(count, left // need)
        if jobs.max_per_node[job]:
            count = min(count, int(jobs.max_per_node[job]))
        return max(0, count)

    def earliest(self, job: int, nodes: list[int]) -> tuple[int, list[int]] | None:
        """Earliest instant at which some nodes of one domain hold the whole gang, and the slots a node then has."""
        releases = self.releases(nodes)
        need = int(self.problem.jobs.replicas[job])
        instants = sorted({self.problem.now_us} | {t for t in releases.values() if t < NEVER})

        def slots_at(t: int) -> list[int]:
            return [self.slots(job, n, t, releases) for n in nodes]

        low, high = 0, len(instants) - 1
        if sum(slots_at(instants[high])) < need:
            return None
        while low < high:
            mid = (low + high) // 2
            if sum(slots_at(instants[mid])) >= need:
                high = mid
            else:
                low = mid + 1
        return instants[low], slots_at(instants[low])

    def promise(self, job: int, pools: list[int]) -> tuple[bool, Hold | None]:
        """Whether the job could start at once, else the best promise: earliest instant, then the domain's name.

        The GPUs of a promise are marked as promised.
        """
        problem, jobs = self.problem, self.problem.jobs
        level = int(jobs.required_level[job])
        ready = problem.eligibility[jobs.eligibility[job]]
        domains: dict[tuple[int, int], list[int]] = defaultdict(list)
        for n in np.flatnonzero(ready).tolist():
            if int(problem.nodes.pool[n]) in pools:
                domains[int(problem.topology.domain_of[level, n]), int(problem.nodes.pool[n])].append(n)
        best: tuple[int, int, list[int], list[int]] | None = None
        for (domain, _), nodes in sorted(domains.items()):
            found = self.earliest(job, nodes)
            if found is not None and (best is None or found[0] < best[0]):
                best = (found[0], domain, nodes, found[1])
        if best is None:
            return False, None
        if best[0] <= problem.now_us:
            return True, None
        at_us, domain, nodes, slots = best
        # Hold the nodes that are ready last, then those least free now: what is ready sooner is left to others.
        free = problem.nodes.free_gpus
        releases = self.releases(nodes)
        ready_us = [self._ready_us(job, n, count, at_us, releases) for n, count in zip(nodes, slots, strict=True)]
        chosen, left = [], int(jobs.replicas[job])
        for i in sorted(range(len(nodes)), key=lambda i: (-ready_us[i], int(free[nodes[i]]), nodes[i])):
            count = min(slots[i], left)
            if count:
                chosen.append((nodes[i], count * int(jobs.gpus_per_replica[job])))
                left -= count
        chosen.sort()
        hold = Hold(job, level, domain, tuple(n for n, _ in chosen), tuple(g for _, g in chosen), at_us)
        return False, self._book(hold)

    def _ready_us(self, job: int, node: int, count: int, at_us: int, releases: dict[int, int]) -> int:
        """Earliest instant, at most ``at_us``, at which a node holds ``count`` replicas of a job."""
        instants = sorted({t for s in self.on[node] if (t := releases[s.job]) <= at_us} | {self.problem.now_us})
        return next((t for t in instants if self.slots(job, node, t, releases) >= count), at_us)

    def renew(self, hold: Hold) -> Hold | None:
        """A kept reservation with its instant brought forward where releases allow; None if it cannot be kept."""
        found = self.earliest(hold.job, list(hold.nodes))
        if found is None or found[0] > max(hold.starts_us, self.problem.now_us):
            return None
        at_us = min(hold.starts_us, found[0]) if found[0] > self.problem.now_us else hold.starts_us
        return self._book(Hold(hold.job, hold.level, hold.domain, hold.nodes, hold.gpus, at_us))

    def _book(self, hold: Hold) -> Hold:
        for node, gpus in zip(hold.nodes, hold.gpus, strict=True):
            self.promised[node] += gpus
        return hold
