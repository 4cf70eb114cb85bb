"""A relaxation without nodes: what the GPUs of every pool, in slots of every size, allow at most.

For every pool p and size g, with S_pg = Σ_{n ∈ p} ⌊(free GPUs of n + those preemption would free) / g⌋:

    Σ_c R_c ⌊g_c / g⌋ y_cp + Σ_j s_jpg k_j ≤ S_pg,

where y_cp starts of class c (R_c replicas of g_c GPUs each) go to pool p, and k_j says that a job that could be
preempted stays, whose h_jn GPUs on node n make s_jpg = Σ_n ⌊h_jn / g⌋ slots there. What lies on one node adds up to no
more slots than it has, so every decision satisfies this. Where jobs share a node, one that stays may cost it more slots
than it has itself; with T_n the GPUs of node n if all leave, x_ng slots of it are then lost instead,

    g x_ng ≥ g ⌊T_n / g⌋ − T_n + Σ_j h_jn k_j,    x_ng ≥ (⌊T_n / g⌋ − ⌊(T_n − h_jn) / g⌋) k_j for each j.

Nor does a budget lose allocated work and keep less than its claim: with n_ℓ the allocated jobs of leaf ℓ that may be
preempted,

    Σ_{j ∈ ℓ} k_j < n_ℓ  ⇒  granted_ℓ ≥ claim_ℓ.

Domains, caps and resources are left out: it has as many variables as there are kinds of jobs, whatever the number of
nodes, and its optimum bounds the first tiers from below, mostly closely.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from ortools.sat.python import cp_model

from cpalloc.models.partition import Possible
from cpalloc.models.possible import possible
from cpalloc.models.variables import Linear, dot
from cpalloc.problem.grants import granted
from cpalloc.problem.problem import IntArray, Mode, NodeState, Problem, status_quo

TIERS = ("starvation", "shortfall", "preemption")
"""Tiers that it bounds (their first part)."""

Terms = list[tuple[int, cp_model.IntVar]]


class Pooled:
    """A model whose optimum is no more than a tier's first part in any decision within limits on other tiers'.

    It has only what is possible at all (:func:`possible`), whatever was settled since.

    Attributes
    ----------
    model, objective
        The model, and what is to be minimised: GPUs, weighted quarters of GPUs, or GPU-seconds, as the tier has it.
    waiting
        Jobs that may start allocated and are alike, in the order of their budget, and how many go to each pool.
    begins
        Whether each of them starts, where they are told apart.
    can
        What is possible.
    """

    def __init__(self, problem: Problem, tier: str, limits: Mapping[str, int], can: Possible | None = None) -> None:
        self.problem, self.model = problem, cp_model.CpModel()
        nodes, self._ready = problem.nodes, problem.nodes.state == NodeState.READY
        self._granted: dict[int, Terms] = defaultdict(list)
        self._slots: dict[tuple[int, int], Terms] = defaultdict(list)
        self._kept: dict[tuple[int, int], list[tuple[int, int, cp_model.IntVar]]] = defaultdict(list)
        self._cost: Terms = []
        self._running: list[tuple[list[int], cp_model.IntVar]] = []
        self._paid = 0
        self._losers: list[tuple[int, int, cp_model.IntVar]] = []
        self._short: dict[int, cp_model.IntVar] = {}
        self.waiting: list[tuple[list[int], dict[int, cp_model.IntVar]]] = []
        self.begins: dict[int, cp_model.IntVar] = {}
        held = problem.held
        self.can = possible(problem) if can is None else can
        starts = [job for job, mode in self.can.starts if mode is Mode.ALLOCATED]
        self._sizes = sorted(set(problem.jobs.gpus_per_replica[starts].tolist()) - {0})
        self._goes = np.zeros(len(problem.jobs), dtype=np.bool_)
        self._goes[list(self.can.goes)] = True
        self._there = there = np.where(self._ready, nodes.free_gpus, 0)
        rows = self._ready[held.node] & self._goes[held.job]
        np.add.at(there, held.node[rows], held.gpus[rows])
        self._base = granted(problem, status_quo(problem))
        self._keep(by_cost="preemption" in {tier, *limits})
        self._start()
        loses = {at: self.model.new_bool_var("") for at, _, _ in self._losers}
        for at, count, stays in self._losers:
            self.model.add(stays + count * loses[at] >= count)
        for at, var in loses.items():
            self.model.add(dot(self._granted[at]) + int(self._base[at]) >= int(problem.budgets.claim[at]) * var)
        self.limit_slots()
        for name, most in limits.items():
            if name in TIERS:
                self.model.add(self._value(name) <= most)
        self.objective = self._value(tier)
        self.model.minimize(self.objective)

    def limit_slots(self) -> None:
        """State what slots there are; again once more is taken."""
        for (pool, g), terms in self._slots.items():
            self.model.add(dot(terms) <= int((self._there[self.problem.nodes.pool == pool] // g).sum()))

    def take(self, pool: int, gpus: int, replicas: int, starts: cp_model.IntVar) -> None:
        """Count the slots that replicas of so many GPUs each take in a pool."""
        for slot in self._sizes:
            if gpus >= slot:
                self._slots[pool, slot].append((replicas * (gpus // slot), starts))

    def stays(self, values: Sequence[float]) -> frozenset[int]:
        """Jobs that stay in a solution, as many of those alike as it says; of little use unless preemption counts."""
        out: set[int] = set()
        for members, var in self._running:
            out.update(members[: round(values[var.index])])
        return frozenset(out)

    def starts(self, values: Sequence[float]) -> dict[int, int]:
        """Waiting jobs that start in a solution, of those alike the first of their budget, and the pool of each."""
        out: dict[int, int] = {}
        for members, starts in self.waiting:
            pools = (pool for pool, var in starts.items() for _ in range(round(values[var.index])))
            begin = [j for j in members if j not in self.begins or round(values[self.begins[j].index])]
            out.update(zip(begin, pools, strict=False))
        return out

    def apart(self, leaves: Collection[int]) -> None:
        """Let starts of some budgets use nothing of what their own running work frees, as if it had room for nothing
        but what others start (rule 6); no bound any more."""
        problem, held = self.problem, self.problem.held
        for leaf in sorted(leaves):
            own = self._ready[held.node] & self._goes[held.job] & (problem.jobs.leaf[held.job] == leaf)
            foreign = self._there.copy()
            np.subtract.at(foreign, held.node[own], held.gpus[own])
            for pool, g in self._slots:
                takes = [
                    (int(problem.jobs.replicas[who[0]]) * slots, starts[pool])
                    for who, starts in self.waiting
                    if problem.jobs.leaf[who[0]] == leaf and pool in starts
                    if (slots := int(problem.jobs.gpus_per_replica[who[0]]) // g)
                ]
                kept = [(number, stays) for at, number, stays in self._kept[pool, g] if at != leaf]
                self.model.add(dot(takes + kept) <= int((foreign[problem.nodes.pool == pool] // g).sum()))

    def without(self, jobs: Collection[int], values: Sequence[float]) -> None:
        """Let so many fewer of those alike start than in a solution; no bound for a tier any more."""
        for members, starts in self.waiting:
            count = round(sum(values[var.index] for var in starts.values()))
            if fewer := sum(job in jobs for job in members[:count]):
                self.model.add(dot([(1, var) for var in starts.values()]) <= count - fewer)

    def _value(self, tier: str) -> Linear:
        """A tier's first part, or less."""
        if tier == "preemption":
            return self._paid - dot(self._cost)
        entitled = self.problem.budgets.entitled
        leaves = np.flatnonzero(entitled).tolist()
        if tier == "shortfall":
            return dot([(1, self._shortfall(leaf)) for leaf in leaves])
        terms: Terms = []
        for leaf in leaves:
            e = int(entitled[leaf])
            quarters = [self.model.new_int_var(0, e, "") for _ in range(4)]
            self.model.add(dot([(1, q) for q in quarters]) >= 4 * self._shortfall(leaf))
            terms += [(2 ** (k - 1), quarters[k]) for k in (1, 2, 3)]
        return dot(terms)

    def _shortfall(self, leaf: int) -> cp_model.IntVar:
        if leaf not in self._short:
            entitled = int(self.problem.budgets.entitled[leaf])
            var = self._short[leaf] = self.model.new_int_var(0, entitled, "")
            self.model.add(var + dot(self._granted[leaf]) >= entitled - int(self._base[leaf]))
        return self._short[leaf]

    def _keep(self, *, by_cost: bool) -> None:
        """Jobs that run: those alike that may be preempted stay so many, and those that may be promoted are."""
        jobs, promotes = self.problem.jobs, np.zeros(len(self.problem.jobs), dtype=np.bool_)
        promotes[list(self.can.promotes)] = True
        allocated = (jobs.mode == Mode.ALLOCATED) & self._goes & (jobs.leaf >= 0)
        np.subtract.at(self._base, jobs.leaf[allocated], jobs.size[allocated])
        grants = np.where(allocated | (promotes & self._goes & (jobs.leaf >= 0)), jobs.size, 0)
        price = np.where(self._goes, jobs.preempt_cost, 0) if by_cost else np.zeros(len(jobs), dtype=np.int64)
        counts = np.flatnonzero((grants > 0) | (price > 0))  # nothing is lost without the others
        shared = self._shared(counts)
        single = np.full(len(jobs), -1, dtype=np.int64)
        for rows in shared.values():
            single[self.problem.held.job[rows]] = self.problem.held.job[rows]
        slots = self._slots_held(shared)
        columns = (jobs.leaf, allocated, grants, price, jobs.size, single, *slots.values())
        alike: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for job, row in zip(counts.tolist(), zip(*(c[counts].tolist() for c in columns), strict=True), strict=True):
            alike[row].append(job)
        alone: dict[int, cp_model.IntVar] = {}
        for (at, loses, gpus, cost, _, by_itself, *slots_of), members in alike.items():
            count = len(members)
            stays = self.model.new_int_var(0, count, "")
            self._running.append((members, stays))
            if loses:
                self._losers.append((at, count, stays))
            self._paid += cost * count
            self._cost.append((cost, stays))
            if gpus:
                self._granted[at].append((gpus, stays))
            if by_itself >= 0:
                alone[by_itself] = stays
            for key, number in zip(slots, slots_of, strict=True):
                if number:
                    self._slots[key].append((number, stays))
                    self._kept[key].append((at, number, stays))
        self._share(shared, alone)
        fixed = ~self._goes & promotes & (jobs.leaf >= 0)
        np.add.at(self._base, jobs.leaf[fixed], jobs.size[fixed])

    def _shared(self, jobs: IntArray) -> dict[tuple[int, int], IntArray]:
        """Nodes and sizes for which jobs that stay may cost more slots than they have; and what of ``jobs`` is there,
        as rows of ``Problem.held``."""
        held, out = self.problem.held, dict[tuple[int, int], IntArray]()
        counted = np.zeros(len(self.problem.jobs), dtype=np.bool_)
        counted[jobs] = True
        rows = np.flatnonzero(self._ready[held.node] & counted[held.job])
        rows = rows[np.argsort(held.node[rows], kind="stable")]
        nodes, first = np.unique(held.node[rows], return_index=True)
        if not len(rows):
            return {}
        on, there, gpus = np.split(rows, first[1:]), self._there[nodes], held.gpus[rows]
        left = there - np.add.reduceat(gpus, first)
        for g in self._sizes:
            costs_more = there // g - left // g > np.add.reduceat(gpus // g, first)
            out.update({(int(nodes[i]), g): on[i] for i in np.flatnonzero(costs_more)})
        return out

    def _share(self, shared: Mapping[tuple[int, int], IntArray], stays: Mapping[int, cp_model.IntVar]) -> None:
        """Slots that shared nodes lose."""
        held, pool = self.problem.held, self.problem.nodes.pool
        for (node, g), rows in shared.items():
            there, terms = int(self._there[node]), []
            lost = self.model.new_int_var(0, there // g, "")
            for job, gpus in zip(held.job[rows].tolist(), held.gpus[rows].tolist(), strict=True):
                terms.append((gpus, stays[job]))
                if slots := there // g - (there - gpus) // g:
                    self.model.add(lost >= slots * stays[job])
            self.model.add(g * lost >= g * (there // g) - there + dot(terms))
            self._slots[int(pool[node]), g].append((1, lost))

    def _slots_held(self, shared: Collection[tuple[int, int]]) -> dict[tuple[int, int], IntArray]:
        """Slots that jobs make of the GPUs they hold on ready nodes that they do not share, by pool and size; shape
        (J,) each."""
        held, nodes, out = self.problem.held, self.problem.nodes, {}
        for g in self._sizes:
            apart = np.ones(len(nodes.names), dtype=np.bool_)
            apart[[n for n, size in shared if size == g]] = False
            for pool in range(len(self.problem.pool_names)):
                at = self._ready & apart & (nodes.pool == pool)
                rows = np.flatnonzero(at[held.node])
                count = np.zeros(len(self.problem.jobs), dtype=np.int64)
                np.add.at(count, held.job[rows], held.gpus[rows] // g)
                out[pool, g] = count
        return out

    def _start(self) -> None:
        """Allocated starts of all waiting jobs that are alike, by the pool they go to."""
        jobs = self.problem.jobs
        waiting = np.array(sorted(j for j, mode in self.can.starts if mode is Mode.ALLOCATED), dtype=np.int64)
        waiting = waiting[np.argsort(jobs.order[waiting], kind="stable")]
        columns = (jobs.leaf, jobs.gpus_per_replica, jobs.replicas, jobs.size, jobs.eligibility)
        alike: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for job, row in zip(waiting.tolist(), zip(*(c[waiting].tolist() for c in columns), strict=True), strict=True):
            alike[row].append(job)
        pools: dict[int, Sequence[int]] = {}
        for (leaf, g, replicas, size, rule), members in alike.items():
            if rule not in pools:
                eligible = self.problem.eligibility[rule] & self._ready
                pools[rule] = np.unique(self.problem.nodes.pool[eligible]).tolist()
            starts = {pool: self.model.new_int_var(0, len(members), "") for pool in pools[rule]}
            if len(starts) > 1:
                self.model.add(dot([(1, y) for y in starts.values()]) <= len(members))
            self.waiting.append((members, starts))
            for pool, y in starts.items():
                self._granted[leaf].append((size, y))
                self.take(pool, g, replicas, y)
