"""Every decision of a tiny round, one after the other: what the solver must not be able to beat, nor fall behind.

Rules and values are stated here a third time, from the policy's text, on plain integers; tests compare them with the
plain side of the package on samples. The search goes over *outlines* first (who starts in which mode, who is preempted,
who is promoted), which settle most tiers, and over the placements of those outlines only that are still in the running.
A rule can be dropped to see whether it binds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from cpalloc.problem.problem import Action, Decision, JobState, Mode, NodeState, Problem, Replica, status_quo
from reference.values import Values

NEVER = 2**62
US = 1_000_000


@dataclass(frozen=True, slots=True)
class Spot:
    """One way to place a gang: replicas per node, GPUs per bin (a node, or one GPU group of it)."""

    counts: tuple[int, ...]
    gpus: tuple[int, ...]


@dataclass(eq=False, slots=True)
class Outline:
    """Everything but the places: modes of the pending jobs (0: waits), preempted and promoted jobs."""

    modes: tuple[int, ...]
    gone: frozenset[int]
    promoted: frozenset[int]
    granted: tuple[int, ...]
    borrowed: tuple[int, ...]
    places: list[tuple[Spot, ...]] | None = None
    placeable: bool | None = None
    memo: dict[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Full:
    """A whole decision: an outline and one spot per start, in the order of the pending jobs that start."""

    outline: Outline
    spots: tuple[Spot, ...]


class TooLarge(Exception):
    """More decisions than one wants to look at."""


class Search:
    """All decisions of a tiny problem that break no rule, or none but the one dropped."""

    def __init__(self, problem: Problem, drop: str = "", most: int = 400_000) -> None:
        self.problem, self.drop, self.most = problem, drop, most
        jobs, nodes = problem.jobs, problem.nodes
        state = jobs.state.tolist()
        self.num_nodes = len(nodes.names)
        self.pending = [j for j in range(len(jobs)) if state[j] == JobState.PENDING]
        self.stays = [j for j in range(len(jobs)) if state[j] in (JobState.FIXED, JobState.EVICTABLE)]
        self.stopping = [j for j in range(len(jobs)) if state[j] == JobState.STOPPING]
        self.movable = [j for j in self.stays if self._movable(j)]
        self.promotable = [j for j in range(len(jobs)) if jobs.may_promote[j]]
        self.size, self.leaf = jobs.size.tolist(), jobs.leaf.tolist()
        self.each, self.replicas = jobs.gpus_per_replica.tolist(), jobs.replicas.tolist()
        self.rank, self.order = jobs.rank.tolist(), jobs.order.tolist()
        self.mode_now, self.exclusive = jobs.mode.tolist(), jobs.exclusive.tolist()
        self.same_group = jobs.same_gpu_group.tolist()
        self.limit = jobs.max_per_node.tolist()
        self.needs = jobs.resources.tolist()
        self.nodes_of = [frozenset(r.node for r in p if r.node >= 0) for p in jobs.placement]
        self.pool = nodes.pool.tolist()
        self.domain_of = [row.tolist() for row in problem.topology.domain_of]
        self._lay_bins()
        self._lay_freed()
        self.options = {j: self._spots(j) for j in self.pending}
        self.rooms = [self._hold_room(i) for i in range(len(problem.holds))]
        self.release = {j: self._start_release(j) for j in self.pending}
        self.size_of_pending = [self.size[j] for j in self.pending]
        self.values = Values(self)
        self.seen = 0

    # -- the ground -----------------------------------------------------------------------------------------------

    def _movable(self, j: int) -> bool:
        jobs, state = self.problem.jobs, self.problem.nodes.state
        if jobs.state[j] == JobState.EVICTABLE:
            return True
        where = {r.node for r in jobs.placement[j]}
        return self.drop == "protection" and all(n >= 0 and state[n] == NodeState.READY for n in where)

    def _lay_bins(self) -> None:
        nodes = self.problem.nodes
        grouped = any(self.same_group[j] for j in self.pending)
        self.bins: list[tuple[int, int]] = []
        self.bins_of: list[list[int]] = []
        free = []
        for n in range(self.num_nodes):
            masks = list(nodes.groups[n]) if grouped and not nodes.unknown_devices[n] else [-1]
            self.bins_of.append(list(range(len(self.bins), len(self.bins) + len(masks))))
            for mask in masks:
                self.bins.append((n, mask))
                whole = mask == -1
                free.append(int(nodes.free_gpus[n]) if whole else (nodes.free_devices[n] & mask).bit_count())
        self.free = tuple(free)
        self.free_res = nodes.free_resources.tolist()

    def _lay_freed(self) -> None:
        """What every movable job gives back: GPUs per bin, resources per node."""
        held, nodes, jobs = self.problem.held, self.problem.nodes, self.problem.jobs
        self.freed: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self.freed_res: dict[int, list[tuple[int, list[int]]]] = defaultdict(list)
        for row, j in enumerate(held.job.tolist()):
            n = int(held.node[row])
            self._give(j, n, int(held.gpus[row]), held.devices[row])
            self.freed_res[j].append((n, held.resources[row].tolist()))
        for j in self.movable:
            if jobs.state[j] == JobState.EVICTABLE:
                continue
            for rep in jobs.placement[j]:
                mask = rep.devices & nodes.healthy_devices[rep.node] if rep.devices >= 0 else -1
                self._give(j, rep.node, rep.gpus if mask < 0 else mask.bit_count(), mask)
                self.freed_res[j].append((rep.node, self.needs[j]))

    def _give(self, j: int, n: int, gpus: int, devices: int) -> None:
        for b in self.bins_of[n]:
            mask = self.bins[b][1]
            self.freed[j].append((b, gpus if mask == -1 else (devices & mask).bit_count()))

    def _spots(self, j: int) -> list[Spot]:
        """All ways to place a job were everything movable gone."""
        problem, nodes, drop = self.problem, self.problem.nodes, self.drop
        most = list(self.free)
        for v in self.movable:
            for b, gpus in self.freed[v]:
                most[b] += gpus
        level = 0 if drop == "domain" else int(problem.jobs.required_level[j])
        allowed = problem.eligibility[problem.jobs.eligibility[j]].tolist()
        groups: dict[object, list[int]] = defaultdict(list)
        for n in range(self.num_nodes):
            if nodes.state[n] == NodeState.READY and (allowed[n] or drop == "eligibility"):
                groups[self.domain_of[level][n], 0 if drop == "gang" else self.pool[n]].append(n)
        out: dict[Spot, None] = {}
        wanted = [self.replicas[j]] + ([self.replicas[j] - 1] if drop == "gang" and self.replicas[j] > 1 else [])
        for members, replicas in product(groups.values(), wanted):
            ways = [self._on_node(j, n, replicas, most) for n in members]
            self._spread(members, ways, replicas, [], out)
        return list(out)

    def _on_node(self, j: int, n: int, replicas: int, most: list[int]) -> list[list[tuple[int, ...]]]:
        """For every count of replicas the splits of their GPUs over the bins of a node."""
        g, bins = self.each[j], self.bins_of[n]
        bound = self.same_group[j] and self.drop != "eligibility"
        if bound and self.problem.nodes.unknown_devices[n]:
            return [[(0,) * len(bins)]]
        if self.drop == "capacity":
            return [[(c * g,) + (0,) * (len(bins) - 1)] for c in range(replicas + 1)]
        limit = replicas if not self.limit[j] or self.drop == "spread" else min(replicas, self.limit[j])
        step = g if bound else 1
        ways: list[list[tuple[int, ...]]] = []
        for count in range(limit + 1):
            ranges = [range(0, min(most[b], count * g) + 1, step) for b in bins]
            splits = [s for s in product(*ranges) if sum(s) == count * g]
            if not splits:
                break
            ways.append(splits)
        return ways

    def _spread(
        self,
        members: list[int],
        ways: list[list[list[tuple[int, ...]]]],
        left: int,
        chosen: list[tuple[int, tuple[int, ...]]],
        out: dict[Spot, None],
    ) -> None:
        at = len(chosen)
        if at == len(members):
            if not left:
                counts, gpus = [0] * self.num_nodes, [0] * len(self.bins)
                for n, (count, split) in zip(members, chosen, strict=True):
                    counts[n] = count
                    for b, x in zip(self.bins_of[n], split, strict=True):
                        gpus[b] = x
                out[Spot(tuple(counts), tuple(gpus))] = None
            return
        for count, splits in enumerate(ways[at][: left + 1]):
            for split in splits:
                self._spread(members, ways, left - count, [*chosen, (count, split)], out)

    # -- reservations kept from the last answer -------------------------------------------------------------------

    def _start_release(self, j: int) -> int:
        """When a job that is allocated from now on surely leaves (policy section 6, docs/decisions.md).

        A budget with a claim may need it to keep that, which is not known before all is decided.
        """
        problem, jobs = self.problem, self.problem.jobs
        began = max(int(jobs.started_us[j]), -1)
        if began < 0:
            began = int(jobs.placed_us[j]) if jobs.placed_us[j] >= 0 else problem.now_us
        out = NEVER if jobs.timeout_s[j] < 0 else began + int(jobs.timeout_s[j]) * US
        if self._over(self.leaf[j]) and self.problem.budgets.claim[self.leaf[j]] == 0:
            out = min(out, problem.now_us + int(jobs.min_runtime_s[j]) * US)
        return out

    def _over(self, leaf: int) -> bool:
        budgets = self.problem.budgets
        return bool(budgets.owed[leaf] == 0 or budgets.charged[leaf] > budgets.owed[leaf])

    def _hold_room(self, index: int) -> dict[int, tuple[int, list[tuple[int, int]]]]:
        """Per node GPUs beside a reservation, and (job, GPUs) of what stays there beyond it unless preempted."""
        problem, jobs = self.problem, self.problem.jobs
        hold, budgets = problem.holds[index], problem.budgets
        room = {}
        for n, gpus in zip(hold.nodes, hold.gpus, strict=True):
            stay: list[tuple[int, int]] = []
            for j in self.stays:
                if self.mode_now[j] != Mode.ALLOCATED or n not in self.nodes_of[j]:
                    continue
                since = int(jobs.started_us[j]) if jobs.started_us[j] >= 0 else int(jobs.placed_us[j])
                ends = NEVER if jobs.timeout_s[j] < 0 else max(problem.now_us, since + int(jobs.timeout_s[j]) * US)
                leaf = self.leaf[j]
                have = sum(
                    self.size[i] for i in self.stays if self.leaf[i] == leaf and self.mode_now[i] == Mode.ALLOCATED
                )
                if self._over(leaf) and have - self.size[j] >= budgets.claim[leaf]:
                    ends = min(ends, max(problem.now_us, int(jobs.protected_until_us[j])))
                if ends > hold.starts_us:
                    stay.append((j, sum(r.gpus for r in jobs.placement[j] if r.node == n)))
            room[n] = int(problem.nodes.healthy[n]) - gpus, stay
        return room

    # -- outlines -------------------------------------------------------------------------------------------------

    def outlines(self) -> list[Outline]:
        """All outlines that break no rule which an outline can break."""
        jobs = self.problem.jobs
        choices = [
            (0,)
            + ((int(Mode.ALLOCATED),) if jobs.may_allocate[j] and self.options[j] else ())
            + ((int(Mode.BORROWED),) if jobs.may_borrow[j] and self.options[j] else ())
            for j in self.pending
        ]
        base = [[0, 0, 0] for _ in range(len(self.problem.budgets.leaf_vertex))]
        for j in self.stays:
            base[self.leaf[j]][self.mode_now[j]] += self.size[j]
        out = []
        for modes in product(*choices):
            fed = {self.leaf[j] for j, m in zip(self.pending, modes, strict=True) if m == Mode.ALLOCATED}
            helped = [v for v in self.movable if fed - {self.leaf[v]} or self.drop == "preemption"]
            for take in product((False, True), repeat=len(helped)):
                gone = frozenset(v for v, t in zip(helped, take, strict=True) if t)
                raised = [v for v in self.promotable if v not in gone]
                for lift in product((False, True), repeat=len(raised)):
                    promoted = frozenset(v for v, t in zip(raised, lift, strict=True) if t)
                    outline = self._outline(modes, gone, promoted, base)
                    if self._allowed(outline):
                        out.append(outline)
        return out

    def _outline(
        self, modes: tuple[int, ...], gone: frozenset[int], promoted: frozenset[int], base: list[list[int]]
    ) -> Outline:
        have = [row.copy() for row in base]
        for v in gone:
            have[self.leaf[v]][self.mode_now[v]] -= self.size[v]
        for v in promoted:
            have[self.leaf[v]][Mode.BORROWED] -= self.size[v]
            have[self.leaf[v]][Mode.ALLOCATED] += self.size[v]
        for j, m in zip(self.pending, modes, strict=True):
            have[self.leaf[j]][m] += self.size[j] if m else 0
        return Outline(
            modes, gone, promoted, tuple(r[Mode.ALLOCATED] for r in have), tuple(r[Mode.BORROWED] for r in have)
        )

    def _allowed(self, o: Outline) -> bool:
        return all(
            rule(o)
            for name, rule in (("floor", self._floor), ("limits", self._limits), ("funding", self._funding))
            if name != self.drop
        ) and (self.drop == "preemption" or self._bounded(o))

    def _bounded(self, o: Outline) -> bool:
        bound = self.problem.policy.max_preempted_gpus
        return bound < 0 or sum(self.size[v] for v in o.gone) <= bound

    def _floor(self, o: Outline) -> bool:
        losers = {self.leaf[v] for v in o.gone if self.mode_now[v] == Mode.ALLOCATED}
        return all(o.granted[leaf] >= self.problem.budgets.claim[leaf] for leaf in losers)

    def _limits(self, o: Outline) -> bool:
        budgets = self.problem.budgets
        new = {
            int(Mode.ALLOCATED): {self.leaf[v] for v in o.promoted},
            int(Mode.BORROWED): set(),
        }
        for j, m in zip(self.pending, o.modes, strict=True):
            if m:
                new[m].add(self.leaf[j])
        for mode, caps, have in ((1, budgets.max_gpus, o.granted), (2, budgets.max_borrowed, o.borrowed)):
            for vertex, leaves in enumerate(budgets.leaves_below):
                if caps[vertex] >= 0 and new[mode] & set(leaves) and sum(have[x] for x in leaves) > caps[vertex]:
                    return False
        return True

    def _funding(self, o: Outline) -> bool:
        budgets, jobs = self.problem.budgets, self.problem.jobs
        fresh = [j for j, m in zip(self.pending, o.modes, strict=True) if m == Mode.ALLOCATED] + list(o.promoted)
        for j in fresh:
            leaf = self.leaf[j]
            if budgets.owed[leaf] == 0 or (
                jobs.may_borrow[j] and o.granted[leaf] - self.size[j] >= budgets.claim[leaf]
            ):
                return False
        return True

    # -- placements -----------------------------------------------------------------------------------------------

    def starts(self, o: Outline) -> list[int]:
        """Pending jobs that an outline starts."""
        return [j for j, m in zip(self.pending, o.modes, strict=True) if m]

    def room(self, o: Outline) -> tuple[list[int], list[list[int]]]:
        """GPUs per bin and resources per node that starts may use."""
        bins, res = list(self.free), [row.copy() for row in self.free_res]
        for v in o.gone:
            for b, gpus in self.freed[v]:
                bins[b] += gpus
            for n, amounts in self.freed_res[v]:
                res[n] = [x + y for x, y in zip(res[n], amounts, strict=True)]
        return bins, res

    def company(self, o: Outline) -> list[set[int]]:
        """Running and stopping jobs on every node beside which starts would run."""
        here: list[set[int]] = [set() for _ in range(self.num_nodes)]
        for j in self.stays + self.stopping:
            if j not in o.gone:
                for n in self.nodes_of[j]:
                    here[n].add(j)
        return here

    def can_place(self, o: Outline) -> bool:
        """Whether an outline has any placement."""
        if o.placeable is None:
            o.placeable = bool(o.places) if o.places is not None else next(self._place(o), None) is not None
        return o.placeable

    def places(self, o: Outline) -> list[tuple[Spot, ...]]:
        """All placements of an outline."""
        if o.places is None:
            o.places = list(self._place(o))
            o.placeable = bool(o.places)
        return o.places

    def _place(self, o: Outline) -> Iterator[tuple[Spot, ...]]:
        starts = self.starts(o)
        bins, res = self.room(o)
        if sum(self.size[j] for j in starts) > sum(bins) and self.drop not in ("capacity", "gang"):
            return
        here = self.company(o)
        allocated = {j for j, m in zip(self.pending, o.modes, strict=True) if m == Mode.ALLOCATED}
        helpers = {
            v: [i for i, j in enumerate(starts) if j in allocated and self.leaf[j] != self.leaf[v]] for v in o.gone
        }

        def descend(at: int, bins: list[int], res: list[list[int]], here: list[set[int]], chosen: tuple[Spot, ...]):
            if at == len(starts):
                if self._made_use_of(helpers, chosen) and self._keeps_promises(o, starts, allocated, chosen):
                    self.seen += 1
                    if self.seen > self.most:
                        raise TooLarge
                    yield chosen
                return
            j = starts[at]
            for spot in self.options[j]:
                step = self._put(j, spot, bins, res, here)
                if step is not None:
                    yield from descend(at + 1, *step, (*chosen, spot))

        yield from descend(0, bins, res, here, ())

    def _put(
        self, j: int, spot: Spot, bins: list[int], res: list[list[int]], here: list[set[int]]
    ) -> tuple[list[int], list[list[int]], list[set[int]]] | None:
        """What is left after a start, None where it does not fit."""
        left = bins
        if self.drop != "capacity":
            left = [x - y for x, y in zip(bins, spot.gpus, strict=True)]
            if min(left) < 0:
                return None
            if any(self.needs[j]):
                res = [row.copy() for row in res]
                for n, count in enumerate(spot.counts):
                    for r, need in enumerate(self.needs[j]):
                        res[n][r] -= need * count
                        if need and count and res[n][r] < 0:
                            return None
        if self.any_exclusive:
            here = list(here)
            for n, count in enumerate(spot.counts):
                if not count:
                    continue
                beside = here[n]
                if self.drop != "spread" and beside and (self.exclusive[j] or any(self.exclusive[i] for i in beside)):
                    return None
                here[n] = beside | {j}
        return left, res, here

    @property
    def any_exclusive(self) -> bool:
        """Whether any job wants nodes to itself."""
        return any(self.exclusive)

    def _made_use_of(self, helpers: dict[int, list[int]], chosen: tuple[Spot, ...]) -> bool:
        """Rules 2 and 6: every victim makes room for an allocated start of another budget on one of its nodes."""
        if self.drop == "preemption":
            return True
        return all(any(chosen[i].counts[n] for i in row for n in self.nodes_of[v]) for v, row in helpers.items())

    def _keeps_promises(self, o: Outline, starts: list[int], allocated: set[int], chosen: tuple[Spot, ...]) -> bool:
        """Bound starts and promotions leave alone what is kept for a gang that does not start itself."""
        if self.drop == "holds":
            return True
        for hold, rooms in zip(self.problem.holds, self.rooms, strict=True):
            if hold.job in starts:
                continue
            bound = [
                i
                for i, j in enumerate(starts)
                if j in allocated and self.rank[j] > self.rank[hold.job] and self.release[j] > hold.starts_us
            ]
            raised = [v for v in o.promoted if self._start_release(v) > hold.starts_us]
            for n, (free, stay) in rooms.items():
                taken = sum(chosen[i].counts[n] * self.each[starts[i]] for i in bound)
                taken += sum(r.gpus for v in raised for r in self.problem.jobs.placement[v] if r.node == n)
                if taken > max(0, free - sum(gpus for j, gpus in stay if j not in o.gone)):
                    return False
        return True

    # -- back to the package --------------------------------------------------------------------------------------

    def decision(self, full: Full) -> Decision:
        """The package's form of a decision, lowest devices first."""
        problem, o = self.problem, full.outline
        quo = status_quo(problem)
        action, mode, promoted = quo.action.copy(), quo.mode.copy(), quo.promoted.copy()
        masks = list(problem.nodes.free_devices)
        for v in o.gone:
            action[v], mode[v] = Action.PREEMPT, Mode.NONE
            for row in np.flatnonzero(problem.held.job == v).tolist():
                n = int(problem.held.node[row])
                if masks[n] >= 0 and problem.held.devices[row] >= 0:
                    masks[n] |= problem.held.devices[row]
        for v in o.promoted:
            promoted[v], mode[v] = True, Mode.ALLOCATED
        placement = {}
        for j, m, spot in zip(self.starts(o), [m for m in o.modes if m], full.spots, strict=True):
            action[j], mode[j] = Action.START, m
            placement[j] = self._replicas(j, spot, masks)
        return Decision(action=action, mode=mode, promoted=promoted, placement=placement)

    def _replicas(self, j: int, spot: Spot, masks: list[int]) -> tuple[Replica, ...]:
        out = []
        for n, count in enumerate(spot.counts):
            if not count:
                continue
            if masks[n] < 0:
                out.extend(Replica(n, self.each[j], -1) for _ in range(count))
                continue
            devices: list[int] = []
            for b in self.bins_of[n]:
                free = masks[n] & self.bins[b][1] if self.bins[b][1] != -1 else masks[n]
                devices.extend([i for i in range(free.bit_length()) if free >> i & 1][: spot.gpus[b]])
            for i in range(count):
                mask = sum(1 << d for d in devices[i * self.each[j] : (i + 1) * self.each[j]])
                masks[n] &= ~mask
                out.append(Replica(n, self.each[j], mask))
        return tuple(sorted(out, key=lambda r: (r.node, r.devices)))


@dataclass(frozen=True, slots=True)
class Step:
    """One part of a tier in the chain: its optimum under the earlier limits, and the limit later parts respect."""

    tier: str
    part: int
    best: int
    limit: int


class Chain:
    """Tier after tier: the least value among the decisions still in the running, then those within the limit stay."""

    def __init__(self, search: Search) -> None:
        self.search = search
        self.outlines: list[Outline] | None = search.outlines()
        self.fulls: list[Full] = []

    def least(self, tier: str, part: int) -> int:
        """The optimum of a part of a tier among what is left."""
        search = self.search
        if search.values.of_outline(tier) and self.outlines is not None:
            ordered = sorted(self.outlines, key=lambda o: search.values.outline(tier, o)[part])
            found = next((o for o in ordered if search.can_place(o)), None)
            assert found is not None, "no decision is left, not even the status quo"
            return search.values.outline(tier, found)[part]
        self._expand()
        return min(search.values.full(tier, f)[part] for f in self.fulls)

    def keep(self, tier: str, part: int, limit: int) -> None:
        """Drop decisions over a limit."""
        search = self.search
        if search.values.of_outline(tier) and self.outlines is not None:
            self.outlines = [o for o in self.outlines if search.values.outline(tier, o)[part] <= limit]
        else:
            self._expand()
            self.fulls = [f for f in self.fulls if search.values.full(tier, f)[part] <= limit]

    def _expand(self) -> None:
        if self.outlines is not None:
            self.fulls = [Full(o, p) for o in self.outlines for p in self.search.places(o)]
            self.outlines = None

    def rest(self) -> list[Full]:
        """The decisions still in the running."""
        self._expand()
        return self.fulls


def binds(problem: Problem, rule: str, chain: Sequence[Step], most: int = 4_000) -> bool:
    """Whether dropping a rule admits a decision that is better in strict order under the same limits.

    Only so many placements are looked at: a True is certain, a False may be for want of looking.
    """
    search = Search(problem, drop=rule, most=most)
    try:
        relaxed = Chain(search)
        for step in chain:
            if relaxed.least(step.tier, step.part) < step.best:
                return True
            relaxed.keep(step.tier, step.part, step.limit)
    except TooLarge:
        return False
    return False
