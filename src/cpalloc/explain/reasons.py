"""Why every waiting job waits: a code, a sentence with numbers a user can act on, who is in the way.

The questions are asked in the order in which they settle the matter: may the job run at all, does a cap stop it, is
something promised to it, would it fit now, would it fit without its own budget's better jobs, without other budgets'
starts, without protection; the first that answers gives the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property

import numpy as np

from cpalloc.explain.starts import MAX_BLOCKERS, Starts
from cpalloc.explain.states import Room, State, States
from cpalloc.problem.grants import borrowed, granted
from cpalloc.problem.problem import Action, Decision, Hold, IntArray, JobState, Mode, Problem
from cpalloc.problem.releases import start_release_us


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a job waits; ``missing_gpus`` in the domain that comes closest to holding it (None: nothing is missing)."""

    code: str
    message: str
    blockers: tuple[str, ...] = ()
    missing_gpus: int | None = None


class Explainer:
    """Answers for one decision; like jobs share their look-ups."""

    def __init__(self, problem: Problem, decision: Decision, *, proved: bool) -> None:
        self.problem, self.decision, self.proved = problem, decision, proved
        self.promises: Mapping[int, Hold] = {h.job: h for h in decision.reservations}
        self.granted, self.borrowed = granted(problem, decision), borrowed(problem, decision)
        self.states = States(problem, decision)
        self.starts = Starts(problem, decision)
        self._caps: dict[tuple[int, Mode], list[tuple[int, int, int]]] = {}
        self._suitable: dict[int, int] = {}
        self._nearby: dict[tuple[int, int, int | None], list[int]] = {}

    def reasons(self) -> dict[int, Reason]:
        """The reason of every waiting job."""
        waiting = np.flatnonzero(self.decision.action == Action.WAIT)
        jobs = self.problem.jobs
        # Budget by budget in its order: the state without a job's betters follows from that of the job before.
        found = {j: self.reason(j) for j in waiting[np.lexsort((jobs.order[waiting], jobs.leaf[waiting]))].tolist()}
        return {j: found[j] for j in waiting.tolist()}

    def reason(self, job: int) -> Reason:
        """The reason of one waiting job."""
        problem = self.problem
        if job in problem.refusals:
            refusal = problem.refusals[job]
            return Reason(refusal.code, refusal.message)
        capped = self._cap(job)
        if capped is not None:
            return capped
        room = self.states.now.room(job)
        need = int(problem.jobs.replicas[job])
        missing = max(0, need - room.slots) * int(problem.jobs.gpus_per_replica[job])
        promise = self.promises.get(job)
        if promise is not None:
            return self._promised(job, promise, room, missing)
        if room.fits:
            return self._fits(job, room)
        return self._does_not_fit(job, room, missing)

    # -- the questions --------------------------------------------------------------------------------------------

    def _cap(self, job: int) -> Reason | None:
        """The job's caps stop it in every mode it may have."""
        problem = self.problem
        jobs = problem.jobs
        leaf, size, found = int(jobs.leaf[job]), int(jobs.size[job]), None
        for mode, may in ((Mode.ALLOCATED, jobs.may_allocate[job]), (Mode.BORROWED, jobs.may_borrow[job])):
            if not may:
                continue
            stopped = None
            for vertex, cap, used in self._caps_of(leaf, mode):
                if used + size > cap:
                    kind = "allocated" if mode is Mode.ALLOCATED else "borrowed"
                    stopped = Reason(
                        "budget_limit",
                        f"budget {problem.budgets.names[vertex]} may hold {cap} {kind} GPUs and holds {used}; "
                        f"this job needs {size} more",
                        missing_gpus=used + size - cap,
                    )
            if stopped is None:
                return None
            found = stopped
        return found

    def _promised(self, job: int, promise: Hold, room: Room, missing: int) -> Reason:
        blockers = self._blockers(promise.level, promise.domain, until_us=promise.starts_us)
        names = self._names(blockers)
        where = self._where(promise.level, promise.domain)
        because = f" when {names} leave{'s' if len(blockers) == 1 else ''}" if blockers else ""
        return Reason(
            "protected",
            f"{self._need(job)}; {where} has room for {self._room_in(job, promise)} now and for all at "
            f"{self._clock(promise.starts_us)}{because}; held for it until then",
            tuple(self.problem.jobs.ids[b] for b in blockers),
            missing or None,
        )

    def _fits(self, job: int, room: Room) -> Reason:
        """It would fit, and yet waits: kept free for others, or nobody knows."""
        where = self._where(room.level, room.domain)
        reserved = self._reserved(job, self.states.now)
        if reserved is not None:
            return reserved
        leaf = int(self.problem.jobs.leaf[job])
        if self.problem.jobs.may_allocate[job] and self.granted[leaf] >= self.problem.budgets.claim[leaf]:
            return Reason("claim", f"would fit in {where}, but its budget's claim is used up ({self._claim(leaf)})")
        if not self.proved:
            return Reason("not_proved", f"may fit in {where}; time ran out before it was placed or ruled out")
        return Reason("claim", f"would fit in {where} now, but better claims are served first ({self._claim(leaf)})")

    def _reserved(self, job: int, state: State) -> Reason | None:
        """In a state of the cluster it would fit, but only on GPUs held for a blocked gang that it may outstay."""
        jobs, reservations = self.problem.jobs, self.decision.reservations
        if not reservations or not jobs.may_allocate[job] or jobs.may_borrow[job]:
            return None
        release = start_release_us(self.problem, job)
        holds = tuple(h for h in reservations if h.job != job and release > h.starts_us)
        if not holds or not state.room(job).fits or state.room(job, beside=holds).fits:
            return None
        hold = min(holds, key=lambda h: int(jobs.rank[h.job]))
        name, until = jobs.ids[hold.job], self._clock(hold.starts_us)
        return Reason(
            "reserved",
            f"{self._need(job)}; the GPUs it would fit on are held for {name} until {until}, and it may stay beyond "
            "that; a timeout that ends before would let it start",
            (name,),
        )

    def _does_not_fit(self, job: int, room: Room, missing: int) -> Reason:
        jobs, need = self.problem.jobs, self._need(job)
        where = self._where(room.level, room.domain)
        free = self._free_suitable(int(jobs.eligibility[job]))
        if free >= jobs.size[job]:
            scope = "one GPU type" if room.level == 0 else f"one {self.problem.topology.levels[room.level]}"
            return Reason(
                "topology",
                f"{need}; {free} suitable GPUs are free, but they do not hold the gang in {scope}: "
                f"the best, {where}, has room for {room.slots}",
                (),
                missing,
            )
        reserved = self._reserved(job, self.states.without_starts)
        if reserved is not None:
            return reserved
        took = self._takers(job)
        if took is not None:
            code, names, who = took
            return Reason(
                code,
                f"{need}; {where} has room for {room.slots} now: {who}",
                names,
                missing,
            )
        if self.states.open.room(job).fits:
            blockers = self._blockers(room.level, room.domain)
            return Reason(
                "protected",
                f"{need}; {where} has room for {room.slots} now; the rest is protected or shielded work"
                + (f" ({self._names(blockers)})" if blockers else "")
                + ", of which nobody knows yet when it leaves",
                tuple(jobs.ids[b] for b in blockers),
                missing,
            )
        return Reason("capacity", f"{need}; {where} comes closest and has room for {room.slots}", (), missing)

    def _takers(self, job: int) -> tuple[str, tuple[str, ...], str] | None:
        """Starts of this round without which the job would fit: its own budget's better ones, or other budgets'."""
        jobs, ids = self.problem.jobs, self.problem.jobs.ids
        if not self.decision.placement or not self.states.without_starts.room(job).fits:
            return None
        leaf = int(jobs.leaf[job])
        better = self.starts.better(leaf, int(jobs.order[job]))
        if better and self.states.without_best(leaf, self.starts.of_leaf(leaf)[:better]).room(job).fits:
            best = self.starts.largest_of(leaf, better)
            verb = "go" if better > 1 else "goes"
            return "order", tuple(ids[j] for j in best), f"{self._names(best)} of the same budget {verb} first"
        best = self.starts.largest_beside(leaf)
        who = f"better claims took the GPUs ({self._names(best)}; {self._claim(leaf)})"
        return "claim", tuple(ids[j] for j in best), who

    # -- look-ups -------------------------------------------------------------------------------------------------

    def _caps_of(self, leaf: int, mode: Mode) -> list[tuple[int, int, int]]:
        """(vertex, cap, GPUs held below it) of every cap on a mode above a leaf."""
        if (leaf, mode) not in self._caps:
            budgets, have = self.problem.budgets, self.granted if mode is Mode.ALLOCATED else self.borrowed
            self._caps[leaf, mode] = [
                (vertex, cap, int(have[list(budgets.leaves_below[vertex])].sum()))
                for vertex, cap in budgets.caps_above(leaf, mode)
            ]
        return self._caps[leaf, mode]

    def _free_suitable(self, eligibility: int) -> int:
        """Free GPUs on the nodes of an eligibility class."""
        if eligibility not in self._suitable:
            free = self.states.now.usage.free_gpus
            self._suitable[eligibility] = int(free[self.problem.eligibility[eligibility]].sum())
        return self._suitable[eligibility]

    @cached_property
    def _protected(self) -> tuple[IntArray, IntArray, IntArray]:
        """Job, node and GPUs of every replica of a kept job that may not be preempted."""
        jobs = self.problem.jobs
        kept = np.flatnonzero((self.decision.action == Action.KEEP) & (jobs.state == JobState.FIXED)).tolist()
        rows = [(j, rep.node, rep.gpus) for j in kept for rep in jobs.placement[j] if rep.node >= 0]
        table = np.array(rows, dtype=np.int64).reshape(len(rows), 3)
        return table[:, 0], table[:, 1], table[:, 2]

    def _blockers(self, level: int, domain: int, until_us: int | None = None) -> list[int]:
        """Protected jobs in a domain, largest first; those whose protection ends by ``until_us`` if given."""
        if (level, domain, until_us) not in self._nearby:
            job, node, gpus = self._protected
            inside = self.problem.topology.domain_of[level, node] == domain
            if until_us is not None:
                end_us = self.problem.jobs.protected_until_us[job]
                inside &= (self.problem.now_us < end_us) & (end_us <= until_us)
            found, of = np.unique(job[inside], return_inverse=True)
            held = np.zeros(len(found), dtype=np.int64)
            np.add.at(held, of, gpus[inside])
            self._nearby[level, domain, until_us] = found[np.lexsort((found, -held))][:MAX_BLOCKERS].tolist()
        return self._nearby[level, domain, until_us]

    def _room_in(self, job: int, promise: Hold) -> int:
        slots = self.states.now.usage.slots_all(job)
        inside = self.problem.topology.domain_of[promise.level] == promise.domain
        return int(slots[inside & (self.problem.nodes.pool == self.problem.nodes.pool[promise.nodes[0]])].sum())

    def _names(self, jobs: list[int]) -> str:
        names = [self.problem.jobs.ids[j] for j in jobs]
        return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")

    def _where(self, level: int, domain: int) -> str:
        topology = self.problem.topology
        return "the cluster" if level == 0 else f"{topology.levels[level]} {topology.names[level][domain]}"

    def _need(self, job: int) -> str:
        jobs, topology = self.problem.jobs, self.problem.topology
        replicas, g, level = int(jobs.replicas[job]), int(jobs.gpus_per_replica[job]), int(jobs.required_level[job])
        gpus = f"{g} GPU{'s' if g > 1 else ''}"
        what = gpus if replicas == 1 else f"{replicas} replicas of {gpus}"
        return f"needs {what}" + (f" in one {topology.levels[level]}" if level and replicas > 1 else "")

    def _claim(self, leaf: int) -> str:
        budgets = self.problem.budgets
        owed, charged = int(budgets.owed[leaf]), int(budgets.charged[leaf])
        ratio = f"ratio {charged / owed:.3f}" if owed else "owed nothing"
        return (
            f"budget {budgets.names[budgets.leaf_vertex[leaf]]}, {ratio}, has {int(self.granted[leaf])} of the "
            f"{int(budgets.claim[leaf])} GPUs it can claim"
        )

    def _clock(self, at_us: int) -> str:
        now = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=self.problem.now_us)
        at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at_us)
        return at.strftime("%H:%M:%S" if at.date() == now.date() else "%Y-%m-%d %H:%M:%S") + " UTC"
