"""Tiny rounds in which much is ruled out, and what the search over all decisions says of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import numpy as np

from cpalloc.models.objectives.inversion import inverted
from cpalloc.models.partition import Possible
from cpalloc.models.possible import possible
from cpalloc.problem.compile import compile_round
from cpalloc.problem.problem import US, Hold, IntArray, JobState, Mode, NodeState, Problem
from cpalloc.schema import parse_round
from reference.brute_force import Full, Outline, Search
from reference.tiny_rounds import HOUR, tiny_doc

Doc = dict[str, Any]

MODES = (Mode.NONE, Mode.ALLOCATED, Mode.BORROWED)
MOST_PLACES = 40
"""Placements of an outline in which it is asked who is passed over."""


# -- rounds -----------------------------------------------------------------------------------------------------------


def drawn(seed: int) -> Problem:
    """A tiny round; of two in three the tree and the domains go deeper, and numbers are what no compiler makes them."""
    rng, doc = Random(f"possible {seed}"), tiny_doc(seed)
    if rng.random() < 0.5:
        _deepen(doc, rng)
    if rng.random() < 0.3:
        doc["policy"]["preempt_under_share"] = True
    for job in doc["jobs"]:
        if "running" in job and rng.random() < 0.15:
            _protect(job)
    p = compile_round(parse_round(doc)).problem
    return strained(p, rng) if rng.random() < 0.8 else p


def _deepen(doc: Doc, rng: Random) -> None:
    """A root above all budgets, and racks of one or two nodes inside what were racks."""
    doc["budgets"].append({"name": "all", "weight": 1})
    for budget in doc["budgets"][:-1]:
        budget.setdefault("parent", "all")
    if not doc["cluster"]["levels"]:
        return
    doc["cluster"]["levels"] = ["block", "rack"]
    for i, node in enumerate(doc["cluster"]["nodes"]):
        block = node["domains"]["rack"]
        node["domains"] = {"block": block, "rack": f"{block}{'ab'[i % 2]}"}
    for job in doc["jobs"]:
        job["topology"] = {key: rng.choice(["block", "block", "rack"]) for key in job.get("topology", ())} or None
        if job["topology"] is None:
            del job["topology"]


def _protect(job: Doc) -> None:
    if job["running"]["mode"] == "allocated":
        job["min_runtime"] = 8 * HOUR
        job["running"].pop("checkpointed_at", None)


def strained(p: Problem, rng: Random) -> Problem:
    """The round with claims, caps, funding, promises and a bound on preemptions near where they begin to bind."""
    jobs, budgets, policy = p.jobs, p.budgets, p.policy
    pending = jobs.state == JobState.PENDING
    either = pending & np.array([rng.random() < 0.25 for _ in range(len(jobs))], dtype=np.bool_)
    brief = pending & np.array([rng.random() < 0.25 for _ in range(len(jobs))], dtype=np.bool_)
    jobs = replace(
        jobs,
        may_borrow=jobs.may_borrow | (either & jobs.may_allocate),
        timeout_s=np.where(brief, rng.choice([300, HOUR]), jobs.timeout_s),
    )
    claim = budgets.claim.copy()
    have = _now(p, Mode.ALLOCATED)
    for leaf in range(len(claim)):
        if rng.random() < 0.5:
            claim[leaf] = max(0, int(have[leaf]) + rng.choice([-4, -3, -2, -1, 0, 0, 1, 2, 3]))
    budgets = replace(
        budgets,
        claim=claim,
        max_gpus=_capped(p, budgets.max_gpus, have, rng),
        max_borrowed=_capped(p, budgets.max_borrowed, _now(p, Mode.BORROWED), rng),
    )
    if rng.random() < 0.25:
        policy = replace(policy, max_preempted_gpus=rng.choice([0, 1, 2, 3, 4, 5]))
    p = replace(p, jobs=jobs, budgets=budgets, policy=policy)
    if rng.random() < 0.5:
        return p
    p = replace(p, holds=p.holds + tuple(_holds(p, rng)))
    return _in_force(p, rng) if rng.random() < 0.4 else p


def _in_force(p: Problem, rng: Random) -> Problem:
    """Promised jobs are too large to start, and nobody knows when others leave."""
    jobs, promised = p.jobs, np.zeros(len(p.jobs), dtype=np.bool_)
    promised[[hold.job for hold in p.holds]] = True
    each = np.where(promised, 100, jobs.gpus_per_replica)
    lasting = np.array([rng.random() < 0.7 for _ in range(len(jobs))], dtype=np.bool_)
    timeout_s = np.where(lasting & (jobs.state != JobState.PENDING), -1, jobs.timeout_s)
    return replace(p, jobs=replace(jobs, gpus_per_replica=each, size=each * jobs.replicas, timeout_s=timeout_s))


def _now(p: Problem, mode: Mode) -> IntArray:
    """GPUs of a mode that leaves have as long as nothing is decided."""
    jobs = p.jobs
    runs = (jobs.mode == mode) & ((jobs.state == JobState.FIXED) | (jobs.state == JobState.EVICTABLE))
    return np.bincount(jobs.leaf[runs], weights=jobs.size[runs], minlength=len(p.budgets.claim)).astype(np.int64)


def _capped(p: Problem, caps: IntArray, have: IntArray, rng: Random) -> IntArray:
    out = caps.copy()
    for vertex, leaves in enumerate(p.budgets.leaves_below):
        if rng.random() < 0.2:
            out[vertex] = max(0, int(have[list(leaves)].sum()) + rng.choice([-4, -2, -1, 0, 1, 2, 3, 4]))
    return out


def _holds(p: Problem, rng: Random) -> Iterator[Hold]:
    """Promises to one or two waiting jobs, on nodes where they may or may not start at once; half of the time on those
    from which allocated work may go."""
    jobs, kept = p.jobs, {hold.job for hold in p.holds}
    among = np.flatnonzero((jobs.state == JobState.PENDING) & jobs.may_allocate).tolist()
    among = sorted(set(among) - kept, key=lambda j: int(jobs.rank[j]))[:2]
    owned = set(p.held.node[jobs.mode[p.held.job] == Mode.ALLOCATED].tolist()) if rng.random() < 0.5 else set()
    for job in among[: rng.choice([1, 1, 2])]:
        eligible = np.flatnonzero(p.eligibility[jobs.eligibility[job]]).tolist()
        rng.shuffle(eligible)
        nodes = sorted(([n for n in eligible if n in owned] or eligible)[: rng.choice([1, 1, 2])])
        if nodes:
            gpus = tuple(rng.randint(1, max(1, int(p.nodes.healthy[n]) // rng.choice([1, 2]))) for n in nodes)
            level = int(jobs.required_level[job])
            domain = int(p.topology.domain_of[level, nodes[0]])
            starts_us = p.now_us + rng.choice([0, 600, HOUR, 9 * HOUR]) * US
            yield Hold(job, level, domain, tuple(nodes), gpus, starts_us)


def everything(p: Problem, may_go: Collection[int] | None = None, inversion: int | None = None) -> Possible:
    """What can happen as far as anybody knows who does not count."""
    jobs = p.jobs
    pending, evictable = jobs.state == JobState.PENDING, np.flatnonzero(jobs.state == JobState.EVICTABLE).tolist()
    modes = ((Mode.ALLOCATED, jobs.may_allocate), (Mode.BORROWED, jobs.may_borrow))
    starts = frozenset((j, mode) for mode, may in modes for j in np.flatnonzero(pending & may).tolist())
    return Possible(
        starts=starts,
        needed=starts,
        promotes=frozenset(np.flatnonzero(jobs.may_promote).tolist()),
        goes=frozenset(evictable if may_go is None else set(evictable) & set(may_go)),
        passed=frozenset(),
        most_granted=(10**9,) * len(p.budgets.claim),
    )


# -- what they are about ----------------------------------------------------------------------------------------------


def features(p: Problem, found: Possible) -> Iterator[str]:
    """What a round has of all that may rule something out."""
    jobs, nodes, budgets = p.jobs, p.nodes, p.budgets
    pending, waiting = jobs.state == JobState.PENDING, {j for j, _ in found.starts}
    for hold in p.holds:
        yield "promise, its job may start" if hold.job in waiting else "promise in force"
    for name, caps in (("max_gpus", budgets.max_gpus), ("max_borrowed", budgets.max_borrowed)):
        for vertex in np.flatnonzero(caps >= 0).tolist():
            yield f"{name} at depth {_depth(p, vertex)}"
    either = pending & jobs.may_allocate & jobs.may_borrow
    asked = {
        "any, with a claim": either & (budgets.claim[jobs.leaf] > 0),
        "promotable": jobs.may_promote,
        "rack": pending & (jobs.required_level > 0),
        "max_per_node": pending & (jobs.max_per_node > 0),
        "exclusive": pending & jobs.exclusive,
        "exclusive, running": jobs.exclusive & (jobs.state == JobState.EVICTABLE),
        "same_gpu_group": pending & jobs.same_gpu_group,
        "cpu": pending & (jobs.resources.sum(axis=1) > 0),
        "draining": nodes.state == NodeState.DRAINING,
        "down": nodes.state == NodeState.DOWN,
        "unhealthy": nodes.healthy < nodes.gpus,
        "unknown devices": nodes.unknown_devices,
        "bound on preemptions": p.policy.max_preempted_gpus >= 0,
        "several pools": len(p.pool_names) > 1,
        "several levels": len(p.topology.levels) > 3,
    }
    yield from (name for name, here in asked.items() if np.any(here))


def _depth(p: Problem, vertex: int) -> int:
    above = int(p.budgets.parent[vertex])
    return 0 if above < 0 else 1 + _depth(p, above)


# -- what is said of them ---------------------------------------------------------------------------------------------


@dataclass
class Tally:
    """What a number of rounds showed: what is wrong, and how much was ruled out of what."""

    failures: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


class Every:
    """All decisions of a round, or all that break no rule but the one dropped."""

    def __init__(self, p: Problem, drop: str = "") -> None:
        self.problem, self.search = p, Search(p, drop)
        self.outlines = self.search.outlines()

    def examine(self, where: str, found: Possible, may_go: Collection[int] | None, tally: Tally) -> None:
        """Look for decisions that have what is ruled out."""
        jobs, search = self.problem.jobs, self.search
        may = frozenset(np.flatnonzero(jobs.state == JobState.EVICTABLE).tolist() if may_go is None else may_go)
        starts = {(j, m) for j in search.pending for m, ok in zip(MODES[1:], self._modes(j), strict=True) if ok}
        tally.failures += [f"{where}: {found.starts - starts} start?"] if found.starts - starts else []
        tally.failures += [f"{where}: {found.goes - may} go?"] if found.goes - may else []
        raised = set(search.promotable)
        tally.failures += [f"{where}: {found.promotes - raised} are promoted?"] if found.promotes - raised else []
        tally.counts += Counter(
            {
                "starts": len(starts),
                "starts ruled out": len(starts - found.starts),
                "goes": len(may),
                "goes ruled out": len(may - found.goes),
                "promotions": len(raised),
                "promotions ruled out": len(raised - found.promotes),
                "passed": len(found.passed),
            }
        )
        out = {j for j, _ in starts} - {j for j, _ in found.starts} - found.passed
        for outline in self.outlines:
            if outline.gone <= may:
                wrong = list(self._wrong(outline, found))
                if wrong:
                    tally.counts["outlines ruled out"] += 1
                    if search.can_place(outline):
                        tally.failures += [f"{where}: {what}" for what in wrong]
                elif out:
                    tally.failures += [f"{where}: {what}" for what in self._passed_over(outline, out, tally)]

    def _modes(self, job: int) -> tuple[bool, bool]:
        return bool(self.problem.jobs.may_allocate[job]), bool(self.problem.jobs.may_borrow[job])

    def _wrong(self, outline: Outline, found: Possible) -> Iterator[str]:
        """What of an outline is ruled out."""
        ids = self.problem.jobs.ids
        for j, mode in zip(self.search.pending, outline.modes, strict=True):
            if mode and (j, MODES[mode]) not in found.starts:
                yield f"{ids[j]} starts {MODES[mode].name}"
        for j in sorted(outline.gone - found.goes):
            yield f"{ids[j]} goes"
        for j in sorted(outline.promoted - found.promotes):
            yield f"{ids[j]} is promoted"
        for leaf, (have, bound) in enumerate(zip(outline.granted, found.most_granted, strict=True)):
            if have > bound:
                yield f"{self.problem.budgets.leaf_names[leaf]} has {have} > {bound}"

    def _passed_over(self, outline: Outline, out: set[int], tally: Tally) -> Iterator[str]:
        """Who is inverted of those that neither start nor are said to be passed over."""
        jobs, search = self.problem.jobs, self.search
        begun = [(j, m) for j, m in zip(search.pending, outline.modes, strict=True) if m]
        asked = {
            k
            for k in out
            for j, m in begun
            if jobs.leaf[j] == jobs.leaf[k] and jobs.order[j] > jobs.order[k] and self._modes(k)[m - 1]
        }
        for spots in search.places(outline)[:MOST_PLACES] if asked else ():
            tally.counts["decisions asked who is passed over"] += 1
            for k in asked.intersection(inverted(self.problem, search.decision(Full(outline, spots)))):
                yield f"{jobs.ids[k]} is passed over"

    def had(self) -> tuple[set[tuple[int, Mode]], set[int], set[int]]:
        """Starts, promotions and preemptions of any decision."""
        starts: set[tuple[int, Mode]] = set()
        promotes: set[int] = set()
        goes: set[int] = set()
        for o in self.outlines:
            begun = {(j, MODES[m]) for j, m in zip(self.search.pending, o.modes, strict=True) if m}
            news = not (begun <= starts and o.promoted <= promotes and o.gone <= goes)
            if news and self.search.can_place(o):
                starts, promotes, goes = starts | begun, promotes | o.promoted, goes | o.gone
        return starts, promotes, goes

    def passed(self, found: Possible) -> set[int]:
        """Who is inverted in some decision and starts in none of them."""
        never = {j for j in self.search.pending if j not in {k for k, _ in found.starts}}
        out: set[int] = set()
        for outline in self.outlines if never else ():
            if any(outline.modes):
                for spots in self.search.places(outline)[:MOST_PLACES]:
                    out |= never.intersection(inverted(self.problem, self.search.decision(Full(outline, spots))))
        return out


def examine(seed: int, tally: Tally) -> None:
    """A round, with everything and with some of what may go; what is wrong goes into the tally."""
    p, rng = drawn(seed), Random(seed)
    every, found = Every(p), possible(p)
    every.examine(f"{seed}", found, None, tally)
    tally.counts += Counter(set(features(p, found)))
    evictable = np.flatnonzero(p.jobs.state == JobState.EVICTABLE).tolist()
    if evictable:
        may = frozenset(j for j in evictable if rng.random() < 0.5)
        less = possible(p, may)
        every.examine(f"{seed}, of {sorted(may)}", less, may, tally)
        if not (less.starts <= found.starts and less.goes <= found.goes and less.promotes <= found.promotes):
            tally.failures.append(f"{seed}: more can happen where less may go")
