"""What can happen in a round at all: the starts, promotions and preemptions that some decision may have.

A cluster that is full of protected work leaves little to decide: most of those who wait cannot start whatever is
preempted, and most of those who may be preempted would make room for nobody. Both follow from counting, one
at a time, and each of them that is ruled out rules out others, until nothing changes any more:

- A start needs room for its whole gang in one domain with everything gone that may go, beside the promises that bind
  it; caps that admit it; and, if it takes either mode, a budget whose claim it can reach.
- Where ``inversion`` is limited, a start also needs room, caps and a claim for all those whom it may not pass over
  (:mod:`cpalloc.models.turns`), and that each of them can start.
- A promotion needs caps that admit it, a budget whose claim it can reach, and no promise in its way.
- A preemption needs an allocated start of another budget on one of its nodes, and leaves its own budget what that can
  claim, with all its starts.

What is left is more than any decision has, and what is not is in none: models leave it out, and lose nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from cpalloc.models.constraints.holds import lasting_promotions, staying
from cpalloc.models.partition import Possible
from cpalloc.models.turns import Turns
from cpalloc.problem.grants import borrowed, granted
from cpalloc.problem.problem import BoolArray, IntArray, JobState, Mode, Problem, status_quo
from cpalloc.problem.releases import bound_by
from cpalloc.problem.usage import Usage, place_kinds


def possible(problem: Problem, may_go: Collection[int] | None = None, inversion: int | None = None) -> Possible:
    """What can happen where nobody is preempted but some evictable jobs (None: any of them), and ``inversion`` is at
    most so much (None: not limited)."""
    if may_go is None and inversion is None:
        return problem.once("possible", lambda: _Ruling(problem, None, None).possible())
    return _Ruling(problem, may_go, inversion).possible()


class _Ruling:
    """Rules out starts, promotions and preemptions until nothing changes.

    Starts are rows of equal length: ``job``, ``allocated`` (or borrowed), ``kind`` (:func:`place_kinds`; ``like`` has a
    job of each), and whether each is ``alive``, or ``fits`` as far as room and caps go.
    """

    def __init__(self, problem: Problem, may_go: Collection[int] | None, inversion: int | None) -> None:
        self.problem, jobs = problem, problem.jobs
        evictable = jobs.state == JobState.EVICTABLE
        self.goes: BoolArray = evictable.copy()
        if may_go is not None:
            self.goes[:] = False
            self.goes[list(may_go)] = True
            self.goes &= evictable
        pending = jobs.state == JobState.PENDING
        rows = [np.flatnonzero(pending & may) for may in (jobs.may_allocate, jobs.may_borrow)]
        self.job: IntArray = np.concatenate(rows)
        self.allocated: BoolArray = np.arange(len(self.job)) < len(rows[0])
        self.alive: BoolArray = np.ones(len(self.job), dtype=np.bool_)
        self.fits: BoolArray = np.ones(len(self.job), dtype=np.bool_)
        self.leaf: IntArray = jobs.leaf[self.job]
        self.kind = np.array(place_kinds(problem), dtype=np.int64)[self.job]
        self.like = dict(zip(self.kind.tolist(), self.job.tolist(), strict=True))
        self._usage = Usage.status_quo(problem)
        for j in np.flatnonzero(self.goes).tolist():
            self._usage.evict(j)
        quo = status_quo(problem)
        self._now = {Mode.ALLOCATED: granted(problem, quo), Mode.BORROWED: borrowed(problem, quo)}
        self.promotes: BoolArray = jobs.may_promote.copy()
        self._staying = [staying(problem, hold) for hold in problem.holds]
        self._lasting = [lasting_promotions(problem, hold) for hold in problem.holds]
        self._binds = self._bound()
        self._served: list[tuple[int, BoolArray]] = []
        """Leaves, and the nodes that one of their allocated starts may take."""
        self._turns = None if inversion is None else Turns(problem, self.job, self.allocated, inversion)
        bound = problem.policy.max_preempted_gpus
        if bound >= 0:
            self._spare(self.goes & (jobs.size > bound))

    def possible(self) -> Possible:
        """The fixed point."""
        while True:
            before = self._left()
            self._rule_out_promotions()
            self._rule_out_starts()
            if self._turns is not None:
                self._rule_out_of_turn(self._turns)
            self._rule_out_preemptions()
            if self._left() == before:
                break
        modes = (Mode.BORROWED, Mode.ALLOCATED)
        starts = frozenset(
            (j, modes[allocated])
            for j, allocated in zip(self.job[self.alive].tolist(), self.allocated[self.alive].tolist(), strict=True)
        )
        return Possible(
            starts=starts,
            promotes=frozenset(np.flatnonzero(self.promotes).tolist()),
            goes=frozenset(np.flatnonzero(self.goes).tolist()),
            passed=frozenset(self.job[self.fits].tolist()) - {j for j, _ in starts},
            most_granted=tuple(self._most_granted().tolist()),
            needed=starts if self._turns is None else starts - self._unneeded(self._turns),
        )

    def _left(self) -> tuple[int, int, int]:
        return int(self.alive.sum()), int(self.promotes.sum()), int(self.goes.sum())

    # -- starts -------------------------------------------------------------------------------------------------------

    def _bound(self) -> list[int]:
        """A bit for every kept promise that binds a start."""
        started = zip(self.job.tolist(), self.allocated.tolist(), strict=True)
        return [sum(1 << h for h in bound_by(self.problem, j)) if allocated else 0 for j, allocated in started]

    def _rule_out_starts(self) -> None:
        self._rule_out(~self._admitted(), fits=self._within_caps())
        in_force = sum(1 << h for h in self._in_force())
        rooms: dict[int, BoolArray | None] = {}
        beside: dict[tuple[int, int], BoolArray | None] = {}
        self._served.clear()
        for at in np.flatnonzero(self.alive | self.fits).tolist():
            kind = int(self.kind[at])
            if kind not in rooms:
                rooms[kind] = self._room(self.like[kind], self._usage.slots_all(self.like[kind]))
            if rooms[kind] is None:
                self.alive[at] = self.fits[at] = False
                continue
            if not self.alive[at]:
                continue
            bits = self._binds[at] & in_force
            if (kind, bits) not in beside:
                beside[kind, bits] = self._room_beside(self.like[kind], bits) if bits else rooms[kind]
            room = beside[kind, bits]
            self.alive[at] = room is not None
            if room is not None and self.allocated[at]:
                self._served.append((int(self.leaf[at]), room))

    def _rule_out(self, ruled_out: BoolArray, *, fits: BoolArray) -> None:
        self.alive &= ~ruled_out & fits
        self.fits &= fits

    def _admitted(self) -> BoolArray:
        """Whether a budget's claim can reach each start, if that takes either mode."""
        problem = self.problem
        either = self.allocated & problem.jobs.may_borrow[self.job]
        return ~either | self._within_claim()[self.leaf]

    def _within_claim(self) -> BoolArray:
        """Whether a leaf may have less than it can claim, shape (L,)."""
        least = self._now[Mode.ALLOCATED] - self._gone(Mode.ALLOCATED)
        return least < self.problem.budgets.claim

    def _within_caps(self) -> BoolArray:
        """Whether the caps above each start admit it with everything gone that may go."""
        size, lent = self.problem.jobs.size[self.job], self._admits(Mode.BORROWED)[self.leaf]
        admitted = np.where(self.allocated, self._admits(Mode.ALLOCATED)[self.leaf], lent)
        return size <= admitted

    def _admits(self, mode: Mode) -> IntArray:
        """GPUs that the caps above each leaf admit with everything gone that may go, shape (L,)."""
        budgets = self.problem.budgets
        caps = budgets.max_gpus if mode is Mode.ALLOCATED else budgets.max_borrowed
        least = self._now[mode] - self._gone(mode)
        out: IntArray = np.full(len(least), np.iinfo(np.int64).max, dtype=np.int64)
        for vertex in np.flatnonzero(caps >= 0).tolist():
            below = list(budgets.leaves_below[vertex])
            out[below] = np.minimum(out[below], int(caps[vertex]) - int(least[below].sum()))
        return out

    def _in_force(self) -> list[int]:
        """Kept promises whose job cannot start: the others need not bind anybody."""
        starting = set(self.job[self.alive].tolist())
        return [h for h, hold in enumerate(self.problem.holds) if hold.job not in starting]

    def _room(self, job: int, slots: IntArray) -> BoolArray | None:
        """Nodes with room for replicas of a job, of domains with room for all of them, shape (N,); None: nowhere."""
        problem = self.problem
        width = len(problem.pool_names) or 1
        domain = problem.topology.domain_of[int(problem.jobs.required_level[job])] * width + problem.nodes.pool
        enough = np.bincount(domain, weights=slots) >= int(problem.jobs.replicas[job])
        nodes: BoolArray = (slots > 0) & enough[domain]
        return nodes if nodes.any() else None

    def _room_beside(self, job: int, bits: int) -> BoolArray | None:
        """The same beside some kept promises."""
        problem, each = self.problem, int(self.problem.jobs.gpus_per_replica[job])
        slots = self._usage.slots_all(job)
        for h in range(len(problem.holds)):
            if bits >> h & 1:
                for node, gpus in self._left_beside(h):
                    slots[node] = min(int(slots[node]), gpus // each)
        return self._room(job, slots)

    def _left_beside(self, h: int) -> Iterator[tuple[int, int]]:
        """Nodes of a kept promise, and the GPUs that it leaves there to those it binds."""
        hold, healthy = self.problem.holds[h], self.problem.nodes.healthy
        for node, gpus in zip(hold.nodes, hold.gpus, strict=True):
            stays = sum(g for j, g in self._staying[h][node] if not self.goes[j])
            yield node, max(0, int(healthy[node]) - stays - gpus)

    def _rule_out_of_turn(self, turns: Turns) -> None:
        """Starts that would bring with them more than there is room for."""
        jobs, budgets, alive = self.problem.jobs, self.problem.budgets, self.alive
        starts: BoolArray = np.zeros(len(jobs), dtype=np.bool_)
        starts[self.job[alive]] = True
        alive &= turns.ahead((~starts[self.job]).astype(np.int64)) == 0
        size, each = jobs.size[self.job], jobs.gpus_per_replica[self.job]
        alive &= turns.ahead(size) + size <= int(self._usage.free_gpus.sum())
        for least in np.unique(each[alive]).tolist():
            large = np.where(each >= least, jobs.replicas[self.job], 0)
            alive &= turns.ahead_in_pools(large) + large <= turns.there(self._usage.free_gpus // least)
        ahead = turns.ahead(np.where(self._in_one_mode(), size, 0))
        admits = np.where(
            self.allocated, self._admits(Mode.ALLOCATED)[self.leaf], self._admits(Mode.BORROWED)[self.leaf]
        )
        alive &= ahead + size <= admits
        least = self._now[Mode.ALLOCATED] - self._gone(Mode.ALLOCATED)
        either = self.allocated & jobs.may_borrow[self.job]
        alive &= ~either | (least[self.leaf] + ahead < budgets.claim[self.leaf])

    def _in_one_mode(self) -> BoolArray:
        """Possible starts of those who may start in no other mode: if they start, it is in that one."""
        modes = np.bincount(self.job[self.alive], minlength=len(self.problem.jobs))[self.job]
        one: BoolArray = self.alive & (modes == 1)
        return one

    def _unneeded(self, turns: Turns) -> frozenset[tuple[int, Mode]]:
        """Allocated starts without which, and with all those before them, their budget has enough.

        Of a decision that has one of them the worst-ranked allocated start of the budget can be taken away, and again,
        until it has none: nothing is granted that counts, nobody starts in a better one's place who did not, and what
        was preempted still is. It must not be promised anything, as its promise would bind others again.
        """
        jobs, budgets, loses = (
            self.problem.jobs,
            self.problem.budgets,
            self.goes & (self.problem.jobs.mode == Mode.ALLOCATED),
        )
        enough = np.maximum(budgets.entitled, np.where(self._sum(np.flatnonzero(loses)) > 0, budgets.claim, 0))
        least = self._now[Mode.ALLOCATED] - self._gone(Mode.ALLOCATED)
        ahead = turns.ahead(np.where(self._in_one_mode(), jobs.size[self.job], 0))
        promised: IntArray = np.full(len(least), -1, dtype=np.int64)
        starting = set(self.job[self.alive].tolist())
        for j in (hold.job for hold in self.problem.holds if hold.job in starting):
            promised[jobs.leaf[j]] = max(int(promised[jobs.leaf[j]]), int(jobs.order[j]))
        spare = self.alive & self.allocated & (least[self.leaf] + ahead >= enough[self.leaf])
        spare &= jobs.order[self.job] > promised[self.leaf]
        return frozenset((j, Mode.ALLOCATED) for j in self.job[spare].tolist())

    # -- promotions ---------------------------------------------------------------------------------------------------

    def _rule_out_promotions(self) -> None:
        if not self.promotes.any():
            return
        jobs = self.problem.jobs
        self.promotes &= self._within_claim()[jobs.leaf] & (jobs.size <= self._admits(Mode.ALLOCATED)[jobs.leaf])
        for h in self._in_force():
            room = dict(self._left_beside(h))
            for node, lasting in self._lasting[h].items():
                for j, gpus in lasting:
                    self.promotes[j] &= gpus <= room[node]

    # -- preemptions --------------------------------------------------------------------------------------------------

    def _rule_out_preemptions(self) -> None:
        problem, jobs, held = self.problem, self.problem.jobs, self.problem.held
        nobody, several = -1, -2
        serves: IntArray = np.full(len(problem.nodes.names), nobody, dtype=np.int64)
        for leaf, room in self._distinct():
            serves[room & (serves != nobody) & (serves != leaf)] = several
            serves[room & (serves == nobody)] = leaf
        whose = serves[held.node]
        of_others: BoolArray = np.zeros(len(jobs), dtype=np.bool_)
        of_others[held.job[(whose != nobody) & (whose != jobs.leaf[held.job])]] = True
        spared = self.goes & ~of_others
        left = self._most_granted()
        losers = np.flatnonzero(self.goes & (jobs.mode == Mode.ALLOCATED))
        poor = left[jobs.leaf[losers]] - jobs.size[losers] < problem.budgets.claim[jobs.leaf[losers]]
        spared[losers[poor]] = True
        self._spare(spared)

    def _distinct(self) -> Iterator[tuple[int, BoolArray]]:
        """Leaves and the nodes that their allocated starts may take, each once."""
        seen: set[tuple[int, int]] = set()
        for leaf, room in self._served:
            if (leaf, id(room)) not in seen:
                seen.add((leaf, id(room)))
                yield leaf, room

    def _spare(self, spared: BoolArray) -> None:
        for j in np.flatnonzero(spared).tolist():
            self._usage.restore(j)
        self.goes &= ~spared

    # -- budgets ------------------------------------------------------------------------------------------------------

    def _most_granted(self) -> IntArray:
        starts = self._sum(self.job[self.alive & self.allocated])
        return self._now[Mode.ALLOCATED] + self._sum(np.flatnonzero(self.promotes)) + starts

    def _gone(self, mode: Mode) -> IntArray:
        """GPUs of a mode that leaves lose if everything goes that may; promotions take from what is borrowed."""
        jobs = self.problem.jobs
        gone = self._sum(np.flatnonzero(self.goes & (jobs.mode == mode)))
        if mode is Mode.BORROWED:
            gone = gone + self._sum(np.flatnonzero(~self.goes & self.promotes))
        return gone

    def _sum(self, jobs: IntArray) -> IntArray:
        """GPUs of some jobs by leaf."""
        out: IntArray = np.zeros(len(self.problem.budgets.claim), dtype=np.int64)
        leaf = self.problem.jobs.leaf[jobs]
        np.add.at(out, leaf[leaf >= 0], self.problem.jobs.size[jobs][leaf >= 0])
        return out
