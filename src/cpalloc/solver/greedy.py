"""The same policy, solved greedily with the same actions as the model.

Budgets are served in ratio order: the budget whose projected ratio is lowest starts (or promotes) its next job, in the
best-fitting domain, taking back the cheapest work that makes room, pruned to what is needed; a job that cannot start
is passed over (backfill). Then what is left goes to allocated work beyond entitlements, then it is lent. It is the
first incumbent, the fallback, and the baseline that benchmarks and simulations compare with.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np

from cpalloc.problem.grants import borrowed, granted
from cpalloc.problem.problem import Action, Decision, JobState, Mode, Problem, Replica, status_quo
from cpalloc.problem.releases import release_us, start_release_us
from cpalloc.problem.usage import Usage
from cpalloc.solver.prune import prune


@dataclass(slots=True)
class GreedyState:
    """What has been decided so far, and what is left of the cluster and the budgets."""

    problem: Problem
    usage: Usage
    decision: Decision
    granted: list[int]
    borrowed: list[int]
    placement: dict[int, tuple[Replica, ...]] = field(default_factory=dict)
    preempted_gpus: int = 0
    on_node: dict[int, list[tuple[int, int, int]]] = field(default_factory=dict)

    @classmethod
    def after(cls, problem: Problem, decision: Decision, without: Collection[int] = ()) -> GreedyState:
        """The state after a decision, with the starts in ``without`` taken away."""
        action, mode = decision.action.copy(), decision.mode.copy()
        for j in without:
            action[j], mode[j] = Action.WAIT, Mode.NONE
        places = {j: p for j, p in decision.placement.items() if j not in without}
        own = replace(decision, action=action, mode=mode, promoted=decision.promoted.copy(), placement=places)
        victims = (action == Action.PREEMPT) & (problem.jobs.state == JobState.EVICTABLE)
        return cls(
            problem,
            Usage.of(problem, own),
            own,
            granted(problem, own).tolist(),
            borrowed(problem, own).tolist(),
            places,
            int(problem.jobs.size[victims].sum()),
        )

    def restart(self, job: int, mode: Mode, placement: tuple[Replica, ...]) -> bool:
        """Start a job where it was, if that is still free and allowed."""
        if not _within_caps(self, job, mode):
            return False
        for node in {r.node for r in placement}:
            here = [r for r in placement if r.node == node]
            free = self.usage.free_devices[node]
            if _capped(self, job, node, mode) < len(here) or any(free >= 0 and r.devices & ~free for r in here):
                return False
        self.accept(job, mode, placement)
        return True

    def accept(self, job: int, mode: Mode, placement: tuple[Replica, ...]) -> None:
        """Carry out a start."""
        self.usage.place(job, placement)
        self.placement[job] = placement
        self.decision.action[job], self.decision.mode[job] = Action.START, mode
        have = self.granted if mode is Mode.ALLOCATED else self.borrowed
        have[int(self.problem.jobs.leaf[job])] += int(self.problem.jobs.size[job])

    def result(self) -> Decision:
        """The decision reached."""
        return replace(self.decision, placement=dict(sorted(self.placement.items())))


def greedy(problem: Problem) -> Decision:
    """Decide a round greedily; every rule holds, nothing is proved."""
    state = GreedyState.after(problem, status_quo(problem))
    _serve_entitlements(state)
    _serve_beyond(state)
    _lend(state)
    return prune(problem, state.result())


def _queues(problem: Problem, mode: Mode) -> dict[int, list[int]]:
    """Per leaf the jobs that could run in a mode, in the budget's order; promotable ones stand in the queue as well."""
    jobs = problem.jobs
    may = jobs.may_allocate if mode is Mode.ALLOCATED else jobs.may_borrow
    wanted = (jobs.state == JobState.PENDING) & may
    if mode is Mode.ALLOCATED:
        wanted |= jobs.may_promote
    queues: dict[int, list[int]] = defaultdict(list)
    for j in np.flatnonzero(wanted).tolist():
        queues[int(jobs.leaf[j])].append(j)
    for queue in queues.values():
        queue.sort(key=lambda j: int(jobs.order[j]))
    return queues


def _serve_entitlements(state: GreedyState) -> None:
    """Lowest projected ratio first, until every budget has its entitlement or nothing it wants can start."""
    problem = state.problem
    budgets, h = problem.budgets, problem.policy.charge_horizon_s
    queues = _queues(problem, Mode.ALLOCATED)
    heap: list[tuple[int, Fraction, int, int]] = []

    def push(leaf: int, position: int) -> None:
        if position < len(queues[leaf]) and state.granted[leaf] < budgets.entitled[leaf] and budgets.owed[leaf] > 0:
            projected = Fraction(int(budgets.charged[leaf]) + state.granted[leaf] * h, int(budgets.owed[leaf]))
            # Starvation weighs quarters of an entitlement, the emptiest most.
            quarter = min(3, 4 * state.granted[leaf] // int(budgets.entitled[leaf]))
            heapq.heappush(heap, (quarter, projected, leaf, position))

    for leaf in sorted(queues):
        push(leaf, 0)
    while heap:
        _, _, leaf, position = heapq.heappop(heap)
        job = queues[leaf][position]
        if problem.jobs.state[job] == JobState.PENDING:
            start(state, job, Mode.ALLOCATED, may_preempt=True)
        else:
            _promote(state, job)
        push(leaf, position + 1)


def _serve_beyond(state: GreedyState) -> None:
    """Allocated work beyond the entitlements, best rank first, on what is free."""
    jobs = state.problem.jobs
    waiting = [j for q in _queues(state.problem, Mode.ALLOCATED).values() for j in q if jobs.rank[j] >= 0]
    for job in sorted(waiting, key=lambda j: int(jobs.rank[j])):
        if state.decision.action[job] == Action.WAIT:
            start(state, job, Mode.ALLOCATED, may_preempt=False)


def _lend(state: GreedyState) -> None:
    """Lend what is left: the budget that borrows least for its share goes first."""
    share = state.problem.budgets.share
    queues = _queues(state.problem, Mode.BORROWED)
    heap: list[tuple[Fraction, int, int]] = []

    def push(leaf: int, position: int) -> None:
        if position < len(queues[leaf]):
            weight = share[leaf] or Fraction(1, 10**9)
            heapq.heappush(heap, (Fraction(state.borrowed[leaf]) / weight, leaf, position))

    for leaf in sorted(queues):
        push(leaf, 0)
    while heap:
        _, leaf, position = heapq.heappop(heap)
        job = queues[leaf][position]
        if state.decision.action[job] == Action.WAIT:
            start(state, job, Mode.BORROWED, may_preempt=False)
        push(leaf, position + 1)


def _within_caps(state: GreedyState, job: int, mode: Mode) -> bool:
    """Whether the caps of the job's budgets admit it, and for `any` jobs whether its budget's claim reaches."""
    problem = state.problem
    budgets, jobs = problem.budgets, problem.jobs
    leaf, size = int(jobs.leaf[job]), int(jobs.size[job])
    caps, have = (budgets.max_gpus, state.granted) if mode is Mode.ALLOCATED else (budgets.max_borrowed, state.borrowed)
    vertex = int(budgets.leaf_vertex[leaf])
    while vertex >= 0:
        cap = int(caps[vertex])
        if cap >= 0 and sum(have[x] for x in budgets.leaves_below[vertex]) + size > cap:
            return False
        vertex = int(budgets.parent[vertex])
    if mode is Mode.ALLOCATED and jobs.may_borrow[job]:
        return state.granted[leaf] < int(budgets.claim[leaf])
    return True


def _promote(state: GreedyState, job: int) -> None:
    jobs = state.problem.jobs
    leaf, size = int(jobs.leaf[job]), int(jobs.size[job])
    if state.decision.action[job] != Action.KEEP or not _within_caps(state, job, Mode.ALLOCATED):
        return
    state.decision.promoted[job] = True
    state.decision.mode[job] = Mode.ALLOCATED
    state.granted[leaf] += size
    state.borrowed[leaf] -= size


def start(state: GreedyState, job: int, mode: Mode, *, may_preempt: bool) -> bool:
    """Start a job in the best domain, making room if allowed; False when nothing can be done."""
    if not _within_caps(state, job, mode):
        return False
    problem, usage = state.problem, state.usage
    found = _best_free(state, job, mode)
    victims: list[int] = []
    if found is None and may_preempt:
        made = _make_room(state, job)
        if made is None:
            return False
        nodes, victims = made
    elif found is None:
        return False
    else:
        nodes = found
    for v in victims:
        usage.evict(v)
    placement = _place(state, job, mode, nodes)
    if placement is None:
        for v in victims:
            usage.restore(v)
        return False
    touched = {r.node for r in placement}
    idle = [v for v in victims if not touched & {r.node for r in problem.jobs.placement[v]}]
    state.accept(job, mode, placement)
    for v in victims:
        if v in idle and usage.can_restore(v):
            usage.restore(v)
            continue
        _record_preemption(state, v)
    return True


def _record_preemption(state: GreedyState, victim: int) -> None:
    jobs = state.problem.jobs
    leaf, size = int(jobs.leaf[victim]), int(jobs.size[victim])
    state.decision.action[victim], state.decision.mode[victim] = Action.PREEMPT, Mode.NONE
    if jobs.mode[victim] == Mode.ALLOCATED:
        state.granted[leaf] -= size
    else:
        state.borrowed[leaf] -= size
    state.preempted_gpus += size


def _domains(problem: Problem, job: int, nodes: list[int]) -> dict[tuple[int, int], list[int]]:
    """Nodes by (domain of the required level, pool)."""
    level = int(problem.jobs.required_level[job])
    out: dict[tuple[int, int], list[int]] = defaultdict(list)
    for n in nodes:
        out[int(problem.topology.domain_of[level, n]), int(problem.nodes.pool[n])].append(n)
    return out


def _slots(state: GreedyState, job: int, mode: Mode) -> np.ndarray:
    """Replicas every node takes now, beside what kept reservations bind this start to leave alone; shape (N,)."""
    slots = state.usage.slots_all(job)
    for node, most in _reserved(state, job, mode).items():
        slots[node] = min(int(slots[node]), most // int(state.problem.jobs.gpus_per_replica[job]))
    return slots


def _reserved(state: GreedyState, job: int, mode: Mode) -> dict[int, int]:
    """GPUs this start may take at most on nodes that a kept reservation holds."""
    problem = state.problem
    if mode is not Mode.ALLOCATED:
        return {}
    jobs = problem.jobs
    out: dict[int, int] = {}
    release = start_release_us(problem, job)
    for hold in problem.holds:
        if hold.job == job or jobs.rank[job] < jobs.rank[hold.job] or release <= hold.starts_us:
            continue
        for node, gpus in zip(hold.nodes, hold.gpus, strict=True):
            busy = sum(g for _, g, until in _allocated_on(state, node) if until > hold.starts_us)
            room = max(0, int(problem.nodes.healthy[node]) - gpus - busy)
            out[node] = min(out.get(node, room), room)
    return out


def _allocated_on(state: GreedyState, node: int) -> list[tuple[int, int, int]]:
    """(job, GPUs, release) of allocated work that stays or starts on a node."""
    problem = state.problem
    if node not in state.on_node:
        rows = []
        for j in np.flatnonzero(state.decision.mode == Mode.ALLOCATED).tolist():
            if state.decision.action[j] != Action.KEEP:
                continue
            gpus = sum(r.gpus for r in problem.jobs.placement[j] if r.node == node)
            if gpus:
                rows.append((j, gpus, release_us(problem, state.decision, j)))
        state.on_node[node] = rows
    started = []
    for j, placement in state.placement.items():
        gpus = sum(r.gpus for r in placement if r.node == node)
        if gpus and state.decision.mode[j] == Mode.ALLOCATED:
            started.append((j, gpus, start_release_us(problem, j)))
    return state.on_node[node] + started


def _best_free(state: GreedyState, job: int, mode: Mode) -> list[tuple[int, int]] | None:
    """(node, replicas) in the domain that the gang leaves with least room to spare; None when none has room."""
    slots = _slots(state, job, mode)
    need = int(state.problem.jobs.replicas[job])
    if int(slots.sum()) < need:
        return None
    best: tuple[int, int, int, list[int]] | None = None
    for (domain, pool), nodes in _domains(state.problem, job, np.flatnonzero(slots).tolist()).items():
        room = int(slots[nodes].sum())
        if room >= need and (best is None or (room, domain, pool) < best[:3]):
            best = (room, domain, pool, nodes)
    return None if best is None else _fill(state, job, best[3], {n: int(slots[n]) for n in best[3]})


def _fill(state: GreedyState, job: int, nodes: list[int], slots: dict[int, int]) -> list[tuple[int, int]]:
    """Choose nodes inside a domain: few subdomains of the preferred (or finest) level, each node packed full."""
    problem = state.problem
    need = int(problem.jobs.replicas[job])
    preferred = int(problem.jobs.preferred_level[job])
    level = preferred if preferred >= 0 else len(problem.topology.levels) - 2
    g = int(problem.jobs.gpus_per_replica[job])
    groups: dict[int, list[int]] = defaultdict(list)
    for n in nodes:
        if slots[n]:
            groups[int(problem.topology.domain_of[level, n])].append(n)
    room = {d: sum(slots[n] for n in ns) for d, ns in groups.items()}
    out: list[tuple[int, int]] = []
    while need and room:
        whole = [d for d in room if room[d] >= need]
        best = min(whole, key=lambda d: (room[d], d)) if whole else min(room, key=lambda d: (-room[d], d))
        # Nodes that the replicas fill exactly first, then the least free ones.
        free = state.usage.free_gpus
        for n in sorted(groups[best], key=lambda n: (int(free[n]) - min(slots[n], need) * g, int(free[n]), n)):
            take = min(need, slots[n])
            if take:
                out.append((n, take))
                need -= take
        del room[best]
    return out


def _place(state: GreedyState, job: int, mode: Mode, nodes: list[tuple[int, int]]) -> tuple[Replica, ...] | None:
    """Devices for the replicas on the chosen nodes."""
    out: list[Replica] = []
    for node, count in nodes:
        if state.usage.slots(job, node) < count:
            return None
        out.extend(state.usage.choose_devices(job, node, count))
    if len(out) != int(state.problem.jobs.replicas[job]):
        return None
    return tuple(sorted(out, key=lambda r: (r.node, r.devices)))


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


def _make_room(state: GreedyState, job: int) -> tuple[list[tuple[int, int]], list[int]] | None:
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
    base = _slots(state, job, Mode.ALLOCATED)
    domains = _domains(problem, job, np.flatnonzero(eligible).tolist())
    for nodes in domains.values():
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
                have[n] = _capped(state, job, n)
                total += have[n]
        if total >= need:
            for v in sorted(chosen, key=lambda v: (-int(jobs.preempt_cost[v]), -int(jobs.size[v]), v)):
                usage.restore(v)
                touched = [n for n in nodes_of[v] if n in inside]
                now = {n: _capped(state, job, n) for n in touched}
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


def _capped(state: GreedyState, job: int, node: int, mode: Mode = Mode.ALLOCATED) -> int:
    """Replicas a node takes, beside kept reservations."""
    most = _reserved(state, job, mode).get(node) if state.problem.holds else None
    slots = int(state.usage.slots(job, node))
    return slots if most is None else min(slots, most // int(state.problem.jobs.gpus_per_replica[job]))


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
    gain = sum(_capped(state, job, n) - have[n] for n in {n for v in bundle for n in nodes_of[v] if n in inside})
    for v in bundle:
        usage.restore(v)
    return gain
