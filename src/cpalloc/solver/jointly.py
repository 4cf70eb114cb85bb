"""Promises given all together rather than one after the other: whoever comes first may cost the others hours.

Blocked gangs choose an instant and nodes, or to be able to start at once. With b_{jt} for gang j held at t, and x_{jtn}
of its R_j replicas of g_j GPUs on node n then,

    min Σ size_j (t − now) b_{jt}   where   Σ_n x_{jtn} = R_j b_{jt},
    Σ_j Σ_{s ≤ t} g_j x_{jsn} ≤ GPUs of n that nobody holds beyond t,

and each gang that could start at once, but not all of them together, has its GPUs beside all of that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from ortools.sat.python import cp_model

from cpalloc.metrics.outlook import Nearby, Outlook
from cpalloc.metrics.reservations import by_instant, gpus_kept, renew, reserve
from cpalloc.models.objectives.delay import delay_of, places
from cpalloc.models.variables import dot
from cpalloc.problem.problem import US, Action, Decision, Hold, IntArray, Problem
from cpalloc.solver.cp_sat import parameters

MOST_COUNTS = 8_000
"""Most variables; larger models are not stated, and promises stay as they were given one after the other."""

EFFORT = 1.0
"""Deterministic time that a model may take: about so many seconds."""


def promised_jointly(problem: Problem, decision: Decision, kept: Sequence[Hold], jobs: Sequence[int]) -> Decision:
    """A decision with promises that delay no longer, mostly less, than those it has.

    Parameters
    ----------
    decision
        With its promises to ``jobs``, given one after the other.
    kept
        Promises that stand, and are renewed before any other.
    jobs
        The blocked jobs, best rank first.
    """
    before, stands = _delay(problem, decision), {hold.job for hold in kept}
    waiting = [job for job in jobs if job not in stands and decision.action[job] == Action.WAIT]
    if not before or len(waiting) < 2:
        return decision
    proposed = _proposed(problem, decision, kept, waiting)
    if not proposed:
        return decision
    # What is proposed counts only as far as it is renewed like any other promise, on what those kept leave.
    holds, blocked = reserve(problem, decision, kept=kept, proposed=proposed, jobs=jobs)
    jointly = replace(decision, reservations=holds, blocked=blocked)
    return jointly if _delay(problem, jointly) < before else decision


def _proposed(problem: Problem, decision: Decision, kept: Sequence[Hold], jobs: Sequence[int]) -> list[Hold]:
    """Promises to jobs beside those kept that delay least in all; none where there is nothing to gain."""
    outlook, delays = Outlook(problem, decision), dict.fromkeys(jobs, 0)
    for hold in by_instant(kept):
        if decision.action[hold.job] == Action.WAIT:
            renew(outlook, hold)
    delays |= {job: delay_of(problem, decision, job) for job in jobs if job in decision.blocked}
    total, alone, model = sum(delays.values()), 0, _Model(problem, outlook)
    for job in jobs:
        least = model.add(job, total, jobs)
        if least is None:
            return []
        alone += least
    if total <= alone:
        return []  # everybody is promised what it would be promised alone
    model.share()
    return model.solve()


def _delay(problem: Problem, decision: Decision) -> int:
    return sum(delay_of(problem, decision, job) for job in decision.blocked)


@dataclass(frozen=True, slots=True)
class _Option:
    """Where and when a gang could be held: so many of its replicas on each node."""

    at_us: int
    chosen: cp_model.IntVar
    counts: tuple[tuple[int, cp_model.IntVar], ...]


class _Model:
    """Options of all gangs over what the outlook leaves."""

    def __init__(self, problem: Problem, outlook: Outlook) -> None:
        self.problem, self.outlook = problem, outlook
        self.model, self.size = cp_model.CpModel(), 0
        self.options: dict[int, list[_Option]] = {}
        self._costs: list[tuple[int, cp_model.IntVar]] = []
        self._stays: dict[int, cp_model.IntVar] = {}

    def add(self, job: int, most: int, gangs: Sequence[int]) -> int | None:
        """State the options of one of the gangs that cost at most so much.

        No more than the cheapest with room on nodes that none of the others is on, wherever they are: that one would
        be taken instead, as GPUs that nobody holds beyond an instant are there at all later ones.

        Returns what it would cost alone; None where the options are too many.
        """
        problem = self.problem
        size, need = int(problem.jobs.size[job]), int(problem.jobs.replicas[job])
        rooms = [room for nodes in places(problem, job) for room in self._rooms(job, nodes)]
        others = sum(int(problem.jobs.replicas[k]) for k in gangs if k != job)
        plenty = (at_us for at_us, _, _, sure in rooms if int(sure.sum()) >= need + others * int(sure.max()))
        most = min([most, *(self._cost(job, at_us) for at_us in plenty)])
        options, alone = self.options.setdefault(job, []), size * problem.policy.window_s
        for at_us, nodes, slots, _ in rooms:
            cost = self._cost(job, at_us)
            if cost > most or int(slots.sum()) < need:
                continue
            there = np.flatnonzero(slots).tolist()
            self.size += len(there)
            if self.size > MOST_COUNTS:
                return None
            chosen = self.model.new_bool_var("")
            counts = [(int(nodes[i]), self.model.new_int_var(0, int(slots[i]), "")) for i in there]
            self.model.add(cp_model.LinearExpr.sum([x for _, x in counts]) == need * chosen)
            options.append(_Option(max(at_us, problem.now_us), chosen, tuple(counts)))
            self._costs.append((cost, chosen))
            alone = min(alone, cost)
        last = self.model.new_bool_var("")
        self.model.add_exactly_one([*(o.chosen for o in options), last])
        self._costs.append((size * problem.policy.window_s, last))
        return alone

    def _rooms(self, job: int, nodes: IntArray) -> Iterator[tuple[int, IntArray, IntArray, IntArray]]:
        """Instants at which slots for a gang are added on some nodes, the nodes, and all slots on them by then.

        As many as there are if budgets spare all whom they may, and surely.
        """
        nearby, before = self.outlook.over(nodes), None
        for at_us in nearby.instants.tolist():
            slots = np.stack((nearby.slots(job, at_us, hopefully=True), nearby.slots(job, at_us)))
            if before is None or not np.array_equal(slots, before):
                yield at_us, nodes, slots[0], slots[1]
            before = slots

    def _cost(self, job: int, at_us: int) -> int:
        """GPU-seconds that a gang held at an instant waits, rounded as :func:`delay_of` does."""
        return int(self.problem.jobs.size[job]) * max(0, at_us - self.problem.now_us) // US

    def share(self) -> None:
        """No two gangs are held on the same GPUs, and each that could start at once could beside all of them."""
        jobs, now_us = self.problem.jobs, self.problem.now_us
        later: dict[int, list[tuple[int, int, cp_model.IntVar]]] = defaultdict(list)
        at_once: dict[int, list[tuple[int, cp_model.IntVar]]] = defaultdict(list)
        for job, options in self.options.items():
            g = int(jobs.gpus_per_replica[job])
            for option in options:
                for n, count in option.counts:
                    if option.at_us > now_us:
                        later[n].append((option.at_us, g, count))
                    else:
                        at_once[n].append((g, count))
        nodes = np.array(sorted(later), dtype=np.int64)
        nearby = self.outlook.over(nodes)
        instants = sorted({at_us for rows in later.values() for at_us, _, _ in rows})
        rooms = {at_us: nearby.room(at_us, hopefully=True) for at_us in [now_us, *instants]}
        stay = {at_us: self._stay(nearby, at_us) for at_us in instants}
        self._spare_within()
        for i, n in enumerate(nodes.tolist()):
            # More is held by every later instant: while the room is the same the last row says what all of them do.
            last: dict[object, int] = {}
            for at_us in sorted({at_us for at_us, _, _ in later[n]}):
                last[int(rooms[at_us][i]), tuple(var.index for _, var in stay[at_us][n])] = at_us
            for at_us in last.values():
                held = [(g, count) for by_us, g, count in later[n] if by_us <= at_us]
                self._leave(held, stay[at_us][n], int(rooms[at_us][i]))
            promised, room = dot([(g, count) for _, g, count in later[n]]), int(rooms[now_us][i])
            crowd = sum(g * _most(count) for _, g, count in later[n])
            for g, count in at_once[n]:
                here = self.model.new_bool_var("")
                self.model.add(count <= _most(count) * here)
                self.model.add(g * count + promised <= room + max(0, crowd - room) * (1 - here))

    def _stay(self, nearby: Nearby, at_us: int) -> dict[int, list[tuple[int, cp_model.IntVar]]]:
        """Per node, (GPUs, literal: it stays) of the work that is there at an instant, unless its budget spares it."""
        out: dict[int, list[tuple[int, cp_model.IntVar]]] = defaultdict(list)
        for job, n, gpus in nearby.in_doubt(at_us):
            if job not in self._stays:
                self._stays[job] = self.model.new_bool_var("")
            out[n].append((gpus, self._stays[job]))
        return out

    def _spare_within(self) -> None:
        """Budgets spare no more than they can, in all: Σ size · (1 − stays) ≤ spare."""
        jobs, spare = self.problem.jobs, self.outlook.work.spare(self.outlook.relied)
        terms: dict[int, list[tuple[int, cp_model.IntVar]]] = defaultdict(list)
        for job, stays in self._stays.items():
            terms[int(jobs.leaf[job])].append((int(jobs.size[job]), stays))
        for leaf, row in terms.items():
            self.model.add(dot(row) >= sum(size for size, _ in row) - int(spare[leaf]))

    def _leave(
        self, held: Sequence[tuple[int, cp_model.IntVar]], stay: Sequence[tuple[int, cp_model.IntVar]], room: int
    ) -> None:
        """What gangs hold of a node leaves what stays there its GPUs, of ``room`` if nothing does.

        Where promises that stand take more than is there while it stays, only if gangs hold anything.
        """
        beyond = sum(gpus for gpus, _ in stay) - room
        if beyond <= 0:
            self.model.add(dot([*held, *stay]) <= room)
            return
        here = self.model.new_bool_var("")
        self.model.add(dot(held) <= room * here)
        self.model.add(dot([*held, *stay]) <= room + beyond * (1 - here))

    def solve(self) -> list[Hold]:
        """The promises that delay least in all; none where nothing was found."""
        self.model.minimize(dot(self._costs))
        solver = cp_model.CpSolver()
        deterministic = replace(self.problem.options, deterministic=True)
        parameters(solver, deterministic, EFFORT, presolve=True, upwards=False)
        if solver.solve(self.model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return []
        holds = []
        for job, options in self.options.items():
            for option in options:
                if option.at_us > self.problem.now_us and solver.value(option.chosen):
                    on = sorted((n, solver.value(count)) for n, count in option.counts if solver.value(count))
                    holds.append(self._hold(job, option.at_us, on))
        return holds

    def _hold(self, job: int, at_us: int, on: Sequence[tuple[int, int]]) -> Hold:
        level = int(self.problem.jobs.required_level[job])
        domain = int(self.problem.topology.domain_of[level, on[0][0]])
        gpus = tuple(gpus_kept(self.problem, job, n, count) for n, count in on)
        return Hold(job, level, domain, tuple(n for n, _ in on), gpus, at_us)


def _most(var: cp_model.IntVar) -> int:
    return int(list(var.proto.domain)[-1])
