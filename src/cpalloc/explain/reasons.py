"""Why every waiting job waits: a code, a sentence with numbers a user can act on, who is in the way.

The questions are asked in the order in which they settle the matter: may the job run at all, does a cap stop it, is
something promised to it, would it fit now, would it fit without its own budget's better jobs, without other budgets'
starts, without protection; the first that answers gives the reason.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice

import numpy as np

from cpalloc.problem.grants import borrowed, granted
from cpalloc.problem.problem import Action, Decision, Hold, IntArray, JobState, Mode, NodeState, Problem
from cpalloc.problem.releases import start_release_us
from cpalloc.problem.usage import Usage

MAX_BLOCKERS = 5
"""Jobs named as being in the way, the largest first."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a job waits; ``missing_gpus`` in the domain that comes closest to holding it (None: nothing is missing)."""

    code: str
    message: str
    blockers: tuple[str, ...] = ()
    missing_gpus: int | None = None


@dataclass(frozen=True, slots=True)
class Room:
    """The domain that comes closest to holding a gang, and the replicas it takes."""

    fits: bool
    level: int
    domain: int
    pool: int
    slots: int


class Explainer:
    """Answers for one decision; like jobs share their look-ups."""

    def __init__(self, problem: Problem, decision: Decision, *, proved: bool) -> None:
        self.problem, self.decision, self.proved = problem, decision, proved
        self.promises: Mapping[int, Hold] = {h.job: h for h in decision.reservations}
        self.granted, self.borrowed = granted(problem, decision), borrowed(problem, decision)
        self.now = Usage.of(problem, decision)
        self.without_starts = Usage.of(problem, decision, without=set(decision.placement))
        self._by_size: list[int] | None = None
        self._own: dict[tuple[int, int], Usage] = {}
        self._rooms: dict[object, Room] = {}
        self._open = self._without_protection()

    def reasons(self) -> dict[int, Reason]:
        """The reason of every waiting job."""
        waiting = np.flatnonzero(self.decision.action == Action.WAIT).tolist()
        return {j: self.reason(j) for j in waiting}

    def reason(self, job: int) -> Reason:
        """The reason of one waiting job."""
        problem = self.problem
        if job in problem.refusals:
            refusal = problem.refusals[job]
            return Reason(refusal.code, refusal.message)
        capped = self._cap(job)
        if capped is not None:
            return capped
        room = self.room(job, self.now, "now")
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
        budgets, jobs = problem.budgets, problem.jobs
        size, found = int(jobs.size[job]), None
        for mode, may, have in (
            (Mode.ALLOCATED, jobs.may_allocate[job], self.granted),
            (Mode.BORROWED, jobs.may_borrow[job], self.borrowed),
        ):
            if not may:
                continue
            stopped = None
            for vertex, cap in budgets.caps_above(int(jobs.leaf[job]), mode):
                used = int(have[list(budgets.leaves_below[vertex])].sum())
                if used + size > cap:
                    kind = "allocated" if mode is Mode.ALLOCATED else "borrowed"
                    stopped = Reason(
                        "budget_limit",
                        f"budget {budgets.names[vertex]} may hold {cap} {kind} GPUs and holds {used}; "
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
        reserved = self._reserved(job, self.now)
        if reserved is not None:
            return reserved
        leaf = int(self.problem.jobs.leaf[job])
        if self.problem.jobs.may_allocate[job] and self.granted[leaf] >= self.problem.budgets.claim[leaf]:
            return Reason("claim", f"would fit in {where}, but its budget's claim is used up ({self._claim(leaf)})")
        if not self.proved:
            return Reason("not_proved", f"may fit in {where}; time ran out before it was placed or ruled out")
        return Reason("claim", f"would fit in {where} now, but better claims are served first ({self._claim(leaf)})")

    def _reserved(self, job: int, usage: Usage) -> Reason | None:
        """In a state of the cluster it would fit, but only on GPUs held for a blocked gang that it may outstay."""
        jobs = self.problem.jobs
        if not jobs.may_allocate[job] or jobs.may_borrow[job]:
            return None
        release = start_release_us(self.problem, job)
        holds = [h for h in self.decision.reservations if h.job != job and release > h.starts_us]
        slots = usage.slots_all(job)
        if not holds or self._best(job, slots) < jobs.replicas[job]:
            return None
        for hold in holds:
            slots[list(hold.nodes)] = 0
        if self._best(job, slots) >= jobs.replicas[job]:
            return None
        hold = min(holds, key=lambda h: int(jobs.rank[h.job]))
        name, until = jobs.ids[hold.job], self._clock(hold.starts_us)
        return Reason(
            "reserved",
            f"{self._need(job)}; the GPUs it would fit on are held for {name} until {until}, and it may stay beyond "
            "that; a timeout that ends before would let it start",
            (name,),
        )

    def _best(self, job: int, slots: IntArray) -> int:
        """Most replicas in one domain and pool."""
        level, width = int(self.problem.jobs.required_level[job]), max(1, len(self.problem.pool_names))
        where = self.problem.topology.domain_of[level] * width + self.problem.nodes.pool
        return int(np.bincount(where, weights=slots).max(initial=0)) if len(slots) else 0

    def _does_not_fit(self, job: int, room: Room, missing: int) -> Reason:
        jobs, need = self.problem.jobs, self._need(job)
        where = self._where(room.level, room.domain)
        free = int(self.now.free_gpus[self.problem.eligibility[jobs.eligibility[job]]].sum())
        if free >= jobs.size[job]:
            scope = "one GPU type" if room.level == 0 else f"one {self.problem.topology.levels[room.level]}"
            return Reason(
                "topology",
                f"{need}; {free} suitable GPUs are free, but they do not hold the gang in {scope}: "
                f"the best, {where}, has room for {room.slots}",
                (),
                missing,
            )
        reserved = self._reserved(job, self.without_starts)
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
        if self.room(job, self._open, "open").fits:
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
        jobs, placement = self.problem.jobs, self.decision.placement
        if not placement or not self.room(job, self.without_starts, "without").fits:
            return None
        leaf, order = int(jobs.leaf[job]), int(jobs.order[job])
        own = [j for j in placement if jobs.leaf[j] == leaf and jobs.order[j] < order]
        if own:
            key = (leaf, max(int(jobs.order[j]) for j in own))
            if key not in self._own:
                self._own[key] = Usage.of(self.problem, self.decision, without=set(own))
            if self.room(job, self._own[key], key).fits:
                best = sorted(own, key=lambda j: (-int(jobs.size[j]), j))[:MAX_BLOCKERS]
                verb = "go" if len(own) > 1 else "goes"
                return "order", tuple(jobs.ids[j] for j in best), f"{self._names(best)} of the same budget {verb} first"
        if self._by_size is None:
            self._by_size = sorted(placement, key=lambda j: (-int(jobs.size[j]), j))
        best = list(islice((j for j in self._by_size if jobs.leaf[j] != leaf), MAX_BLOCKERS))
        names = tuple(jobs.ids[j] for j in best)
        return "claim", names, f"better claims took the GPUs ({self._names(best)}; {self._claim(leaf)})"

    # -- look-ups -------------------------------------------------------------------------------------------------

    def room(self, job: int, usage: Usage, tag: object) -> Room:
        """The domain that takes most replicas of a job in a state of the cluster."""
        jobs = self.problem.jobs
        key = (
            tag,
            int(jobs.eligibility[job]),
            int(jobs.gpus_per_replica[job]),
            int(jobs.replicas[job]),
            int(jobs.required_level[job]),
            int(jobs.max_per_node[job]),
            bool(jobs.exclusive[job]),
            bool(jobs.same_gpu_group[job]),
            jobs.resources[job].tobytes(),
        )
        if key not in self._rooms:
            level = int(jobs.required_level[job])
            width = max(1, len(self.problem.pool_names))
            slots = usage.slots_all(job)
            where = self.problem.topology.domain_of[level] * width + self.problem.nodes.pool
            total = np.bincount(where, weights=slots).astype(np.int64) if len(slots) else np.zeros(1, dtype=np.int64)
            best = int(total.argmax())
            self._rooms[key] = Room(
                bool(total[best] >= jobs.replicas[job]), level, best // width, best % width, int(total[best])
            )
        return self._rooms[key]

    def _without_protection(self) -> Usage:
        """The cluster with nothing protected: every job on ready nodes gone."""
        usage = Usage(self.problem)
        nodes = self.problem.nodes
        ready = nodes.state == NodeState.READY
        usage.free_gpus = np.where(ready, nodes.healthy, 0)
        usage.free_devices = [m if r else 0 for m, r in zip(nodes.healthy_devices, ready.tolist(), strict=True)]
        usage.free_resources = np.where(ready[:, None], nodes.resources, 0)
        usage.clear_company()
        return usage

    def _blockers(self, level: int, domain: int, until_us: int | None = None) -> list[int]:
        """Protected jobs in a domain, largest first; those whose protection ends by ``until_us`` if given."""
        jobs = self.problem.jobs
        held: dict[int, int] = defaultdict(int)
        for j in np.flatnonzero((self.decision.action == Action.KEEP) & (jobs.state == JobState.FIXED)).tolist():
            if until_us is not None and not self.problem.now_us < jobs.protected_until_us[j] <= until_us:
                continue
            for rep in jobs.placement[j]:
                if rep.node >= 0 and self.problem.topology.domain_of[level, rep.node] == domain:
                    held[j] += rep.gpus
        return sorted(held, key=lambda j: (-held[j], j))[:MAX_BLOCKERS]

    def _room_in(self, job: int, promise: Hold) -> int:
        slots = self.now.slots_all(job)
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
            f"budget {budgets.leaf_names[leaf]}, {ratio}, has {int(self.granted[leaf])} of the "
            f"{int(budgets.claim[leaf])} GPUs it can claim"
        )

    def _clock(self, at_us: int) -> str:
        now = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=self.problem.now_us)
        at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at_us)
        return at.strftime("%H:%M:%S" if at.date() == now.date() else "%Y-%m-%d %H:%M:%S") + " UTC"
