"""The round as one writes it down first: an integer per pending job, mode and node, and every rule node by node.

A baseline to measure beside cpalloc's counting model. It reads the compiled :class:`Problem` and nothing else of the
package's models: all hard rules, and the tiers of :data:`TIERS`, minimised in the order of the request. ``inversion``
and the tiers after ``preemption`` are left out, and of preemption only the cost is minimised.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
from ortools.sat.python import cp_model
from ortools.sat.python.cp_model import IntVar

from cpalloc.problem.problem import BoolArray, Hold, JobState, Mode, Problem, status_quo
from cpalloc.problem.releases import release_us, start_release_us

Linear = cp_model.LinearExprT
Start = tuple[int, Mode]
Terms = list[tuple[int, IntVar]]


class NaiveModel:
    """Variables and hard rules.

    Attributes
    ----------
    start
        Whether a pending job starts in a mode.
    replicas
        Replicas of a start on each node that it may use.
    parts
        Replicas of a start on a node in each of its GPU groups, by mask, where they must lie in one.
    preempt, promote
        Running jobs that may be preempted, and those that may become allocated in place.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem, self.model = problem, cp_model.CpModel()
        self.start: dict[Start, IntVar] = {}
        self.replicas: dict[Start, dict[int, IntVar]] = {}
        self.parts: dict[tuple[Start, int], dict[int, IntVar]] = {}
        self.on_node: dict[int, list[tuple[Start, IntVar]]] = defaultdict(list)
        state = problem.jobs.state
        self.runs: BoolArray = (state == JobState.FIXED) | (state == JobState.EVICTABLE)
        self.preempt = {j: self._bool(f"preempt {j}") for j in np.flatnonzero(state == JobState.EVICTABLE).tolist()}
        self.promote = {j: self._bool(f"promote {j}") for j in np.flatnonzero(problem.jobs.may_promote).tolist()}
        self._place_gangs()
        self._capacity()
        self._gpu_groups()
        self._exclusive_nodes()
        self._preemption()
        self._limits()
        self._funding()
        for hold in problem.holds:
            self._keep(hold)

    # -- gangs: all or nothing, in one pool and one domain of the required level, on eligible nodes --------------------

    def _place_gangs(self) -> None:
        jobs = self.problem.jobs
        for j in np.flatnonzero(jobs.state == JobState.PENDING).tolist():
            for mode, may in ((Mode.ALLOCATED, jobs.may_allocate[j]), (Mode.BORROWED, jobs.may_borrow[j])):
                if may:
                    self._place(j, mode)
            self.model.add_at_most_one(self.starts_of(j))

    def _place(self, j: int, mode: Mode) -> None:
        problem, jobs, nodes = self.problem, self.problem.jobs, self.problem.nodes
        start = self.start[j, mode] = self._bool(f"start {j} {mode.name}")
        here = self.replicas[j, mode] = {}
        domains: dict[tuple[int, int], list[IntVar]] = defaultdict(list)
        for n in np.flatnonzero(problem.eligibility[jobs.eligibility[j]]).tolist():
            most = min(int(jobs.replicas[j]), int(nodes.healthy[n]) // int(jobs.gpus_per_replica[j]))
            if jobs.max_per_node[j]:
                most = min(most, int(jobs.max_per_node[j]))
            if jobs.same_gpu_group[j] and nodes.unknown_devices[n]:
                most = 0
            if most:
                here[n] = self.model.new_int_var(0, most, f"replicas {j} {mode.name} {n}")
                self.on_node[n].append(((j, mode), here[n]))
                domain = int(problem.topology.domain_of[jobs.required_level[j], n])
                domains[domain, int(nodes.pool[n])].append(here[n])
        inside = {key: self._bool(f"inside {j} {mode.name} {key}") for key in domains}
        self.model.add(sum(inside.values()) == start)
        for key, members in domains.items():
            self.model.add(sum(members) == int(jobs.replicas[j]) * inside[key])

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def _capacity(self) -> None:
        """GPUs and resources of every node: what is free, and what the jobs preempted there give back."""
        problem, jobs = self.problem, self.problem.jobs
        for n, here in self.on_node.items():
            rows = np.flatnonzero(problem.held.node == n).tolist()
            freed = [(int(problem.held.gpus[row]), self.preempt[int(problem.held.job[row])]) for row in rows]
            used = [(int(jobs.gpus_per_replica[j]), x) for (j, _), x in here]
            self.model.add(_sum(used) <= int(problem.nodes.free_gpus[n]) + _sum(freed))
            for r in range(len(problem.resource_names)):
                need = [(int(jobs.resources[j, r]), x) for (j, _), x in here if jobs.resources[j, r]]
                back = [(int(problem.held.resources[row, r]), self.preempt[int(problem.held.job[row])]) for row in rows]
                free = int(problem.nodes.free_resources[n, r])
                if need and free >= 0:
                    self.model.add(_sum(need) <= free + _sum(back))
                elif need:
                    self._at_most(need, free + _sum(back))

    def _at_most(self, taken: Terms, room: Linear, excused: Sequence[IntVar] = ()) -> None:
        """Σ taken ≤ max(0, room), unless one of some literals holds."""
        model, nothing_left = self.model, self._bool("nothing left")
        otherwise = [literal.negated() for literal in excused]
        model.add(_sum(taken) <= room).only_enforce_if(nothing_left.negated(), *otherwise)
        model.add(_sum(taken) <= 0).only_enforce_if(nothing_left, *otherwise)
        model.add(room <= 0).only_enforce_if(nothing_left)

    def _gpu_groups(self) -> None:
        """Replicas that must lie in one GPU group take GPUs of single groups; the others take what is left of any."""
        problem, jobs = self.problem, self.problem.jobs
        for n, here in self.on_node.items():
            bound = [(start, x) for start, x in here if jobs.same_gpu_group[start[0]]]
            rows = np.flatnonzero(problem.held.node == n).tolist()
            for mask in problem.nodes.groups[n] if bound else ():
                inside: Terms = []
                for start, x in bound:
                    part = self.model.new_int_var(0, _upper(x), f"part {start} {n} {mask}")
                    self.parts.setdefault((start, n), {})[mask] = part
                    inside.append((int(jobs.gpus_per_replica[start[0]]), part))
                devices = problem.held.devices
                back = [((devices[r] & mask).bit_count(), self.preempt[int(problem.held.job[r])]) for r in rows]
                free = (problem.nodes.free_devices[n] & mask).bit_count()
                self.model.add(_sum(inside) <= free + _sum(back))
            for start, x in bound:
                self.model.add(sum(self.parts[start, n].values()) == x)

    def _exclusive_nodes(self) -> None:
        """A job that wants its nodes to itself shares them with nobody, running, stopping or starting."""
        jobs, there = self.problem.jobs, self._running_on()
        for n, here in self.on_node.items():
            for j in there[n]:
                for start, x in here:
                    if jobs.exclusive[j] or jobs.exclusive[start[0]]:
                        self.model.add(x <= (_upper(x) * self.preempt[j] if j in self.preempt else 0))
            for start, x in here:
                others = [y for other, y in here if other[0] != start[0]]
                if jobs.exclusive[start[0]] and others:
                    alone = self._bool(f"alone {start} {n}")
                    self.model.add(x <= _upper(x) * alone)
                    self.model.add(sum(others) == 0).only_enforce_if(alone)

    def _running_on(self) -> dict[int, list[int]]:
        """Jobs beside which a start on a node would run, unless they are preempted."""
        jobs, out = self.problem.jobs, defaultdict(list)
        for j in np.flatnonzero(self.runs | (jobs.state == JobState.STOPPING)).tolist():
            for n in {replica.node for replica in jobs.placement[j]}:
                out[n].append(j)
        return out

    # -- preemption and budgets ----------------------------------------------------------------------------------------

    def _preemption(self) -> None:
        """A victim makes room for an allocated start of another budget on one of its nodes; what a round may preempt;
        and a budget that loses allocated work keeps its claim."""
        problem, jobs, model = self.problem, self.problem.jobs, self.model
        for v, gone in self.preempt.items():
            nodes = {replica.node for replica in jobs.placement[v]}
            served = [
                x
                for n in sorted(nodes)
                for (j, mode), x in self.on_node.get(n, ())
                if mode is Mode.ALLOCATED and jobs.leaf[j] != jobs.leaf[v]
            ]
            model.add(gone <= sum(served))
            if jobs.mode[v] == Mode.ALLOCATED:
                leaf = int(jobs.leaf[v])
                model.add(self.granted([leaf]) >= int(problem.budgets.claim[leaf])).only_enforce_if(gone)
            if v in self.promote:
                model.add_at_most_one(gone, self.promote[v])
        if problem.policy.max_preempted_gpus >= 0:
            model.add(_sum(self._sizes(self.preempt)) <= problem.policy.max_preempted_gpus)

    def _limits(self) -> None:
        """Whatever starts or is promoted below a capped budget leaves it within its cap."""
        budgets, leaf = self.problem.budgets, self.problem.jobs.leaf
        for mode, caps, total in (
            (Mode.ALLOCATED, budgets.max_gpus, self.granted),
            (Mode.BORROWED, budgets.max_borrowed, self.borrowed),
        ):
            for vertex in np.flatnonzero(caps >= 0).tolist():
                below = budgets.leaves_below[vertex]
                new = [var for (j, m), var in self.start.items() if m is mode and leaf[j] in below]
                if mode is Mode.ALLOCATED:
                    new += [var for j, var in self.promote.items() if leaf[j] in below]
                for var in new:
                    self.model.add(total(below) <= int(caps[vertex])).only_enforce_if(var)

    def _funding(self) -> None:
        """Nothing is newly allocated by a budget that is owed nothing, nor, where it could borrow, beyond the claim."""
        jobs, budgets = self.problem.jobs, self.problem.budgets
        fresh = [(j, var) for (j, mode), var in self.start.items() if mode is Mode.ALLOCATED]
        for j, var in [*fresh, *self.promote.items()]:
            leaf = int(jobs.leaf[j])
            if budgets.owed[leaf] == 0:
                self.model.add(var == 0)
            elif jobs.may_borrow[j]:
                without = self.granted([leaf]) - int(jobs.size[j])
                self.model.add(without <= int(budgets.claim[leaf]) - 1).only_enforce_if(var)

    def _keep(self, hold: Hold) -> None:
        """Work ranked below a promised gang takes nothing of what is kept for it, unless it leaves in time."""
        problem, jobs = self.problem, self.problem.jobs
        quo = status_quo(problem)
        allocated = np.flatnonzero(self.runs & (jobs.mode == Mode.ALLOCATED)).tolist()
        stays = [j for j in allocated if release_us(problem, quo, j) > hold.starts_us]
        raised = [j for j in self.promote if start_release_us(problem, j) > hold.starts_us]
        for n, kept in zip(hold.nodes, hold.gpus, strict=True):
            taken = [(self._gpus_on(j, n), self.promote[j]) for j in raised]
            for (j, mode), x in self.on_node.get(n, ()):
                bound = mode is Mode.ALLOCATED and jobs.rank[j] > jobs.rank[hold.job]
                if bound and start_release_us(problem, j) > hold.starts_us:
                    taken.append((int(jobs.gpus_per_replica[j]), x))
            gone = [(self._gpus_on(j, n), self.preempt[j]) for j in stays if j in self.preempt]
            room = int(problem.nodes.healthy[n]) - kept - sum(self._gpus_on(j, n) for j in stays)
            if any(gpus for gpus, _ in taken):
                self._at_most(taken, room + _sum(gone), self.starts_of(hold.job))

    def _gpus_on(self, j: int, n: int) -> int:
        return sum(replica.gpus for replica in self.problem.jobs.placement[j] if replica.node == n)

    # -- sums ----------------------------------------------------------------------------------------------------------

    def starts_of(self, j: int) -> list[IntVar]:
        """Start variables of a job."""
        return [self.start[j, mode] for mode in (Mode.ALLOCATED, Mode.BORROWED) if (j, mode) in self.start]

    def granted(self, leaves: Sequence[int]) -> Linear:
        """Allocated GPUs of some leaves after the round."""
        return self._held(leaves, Mode.ALLOCATED, 1)

    def borrowed(self, leaves: Sequence[int]) -> Linear:
        """Borrowed GPUs of some leaves after the round."""
        return self._held(leaves, Mode.BORROWED, -1)

    def _held(self, leaves: Sequence[int], mode: Mode, promoted: int) -> Linear:
        jobs = self.problem.jobs
        below = set(leaves)
        now = int(jobs.size[self.runs & (jobs.mode == mode) & np.isin(jobs.leaf, leaves)].sum())
        terms = [(int(jobs.size[j]), var) for (j, m), var in self.start.items() if m is mode and jobs.leaf[j] in below]
        terms += [(promoted * size, var) for size, var in self._sizes(self.promote, below)]
        terms += [(-size, var) for size, var in self._sizes(self.preempt, below, mode)]
        return now + _sum(terms)

    def _sizes(self, among: dict[int, IntVar], leaves: set[int] | None = None, mode: Mode | None = None) -> Terms:
        jobs = self.problem.jobs
        return [
            (int(jobs.size[j]), var)
            for j, var in among.items()
            if (leaves is None or int(jobs.leaf[j]) in leaves) and (mode is None or jobs.mode[j] == mode)
        ]

    def _bool(self, name: str) -> IntVar:
        return self.model.new_bool_var(name)

    # -- tiers ---------------------------------------------------------------------------------------------------------

    def starvation(self) -> Linear:
        """Quarter GPUs missing beyond the first, second and third quarter of an entitlement, at 1, 1 + 1 and 2 + 2."""
        entitled, terms = self.problem.budgets.entitled.tolist(), []
        for leaf, most in enumerate(entitled):
            for quarters, factor in ((1, 1), (2, 1), (3, 2)):
                beyond = self.model.new_int_var(0, (4 - quarters) * most, f"beyond {leaf} {quarters}")
                self.model.add(beyond >= 4 * (most - self.granted([leaf])) - quarters * most)
                terms.append((factor, beyond))
        return _sum(terms)

    def shortfall(self) -> Linear:
        """Entitled GPUs that are not granted."""
        terms = []
        for leaf, most in enumerate(self.problem.budgets.entitled.tolist()):
            short = self.model.new_int_var(0, most, f"short {leaf}")
            self.model.add(short >= most - self.granted([leaf]))
            terms.append((1, short))
        return _sum(terms)

    def preemption(self) -> Linear:
        """GPU-seconds lost with the victims."""
        return _sum([(int(self.problem.jobs.preempt_cost[j]), var) for j, var in self.preempt.items()])


TIERS = {
    "starvation": NaiveModel.starvation,
    "shortfall": NaiveModel.shortfall,
    "preemption": NaiveModel.preemption,
}
"""The tiers that the model states."""


def _sum(terms: Iterable[tuple[int, IntVar]]) -> Linear:
    pairs = list(terms)
    return cp_model.LinearExpr.weighted_sum([var for _, var in pairs], [factor for factor, _ in pairs])


def _upper(var: IntVar) -> int:
    bounds: list[int] = list(var.proto.domain)
    return max(bounds)
