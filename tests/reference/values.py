"""Values of the tiers of a decision, from the policy's text, for the search over all decisions of a tiny round."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cpalloc.models.objectives.lend import borrow_demand, split
from cpalloc.problem.problem import JobState, Mode, NodeState

if TYPE_CHECKING:
    from reference.brute_force import Full, Outline, Search

US = 1_000_000
OUTLINE_TIERS = frozenset({"starvation", "shortfall", "preemption", "idle", "lend"})


class Values:
    """Tier values; those that outlines settle are remembered with them."""

    def __init__(self, search: Search) -> None:
        self.search, self.problem = search, search.problem
        self.demand = borrow_demand(self.problem)
        self.splits: dict[int, list[int]] = {}
        self.free_after: dict[frozenset[int], list[int]] = {}
        self.weight = [size * (int(p) + 1) for size, p in zip(search.size, self.problem.jobs.priority, strict=True)]

    @staticmethod
    def of_outline(tier: str) -> bool:
        """Whether a tier depends on the outline only."""
        return tier in OUTLINE_TIERS

    def outline(self, tier: str, o: Outline) -> tuple[int, ...]:
        """Value of a tier that the outline settles."""
        if tier not in o.memo:
            o.memo[tier] = getattr(self, f"_{tier}")(o)
        return o.memo[tier]

    def full(self, tier: str, full: Full) -> tuple[int, ...]:
        """Value of any tier."""
        if tier in OUTLINE_TIERS:
            return self.outline(tier, full.outline)
        value: tuple[int, ...] = getattr(self, f"_{tier}")(full)
        return value

    # -- settled by the outline -----------------------------------------------------------------------------------

    def _starvation(self, o: Outline) -> tuple[int, ...]:
        total = 0
        for e, got in zip(self.problem.budgets.entitled.tolist(), o.granted, strict=True):
            for k, factor in ((1, 1), (2, 2), (3, 4)):
                total += factor * min(max(4 * max(0, e - got) - k * e, 0), e)
        return (total,)

    def _shortfall(self, o: Outline) -> tuple[int, ...]:
        return (sum(max(0, e - g) for e, g in zip(self.problem.budgets.entitled.tolist(), o.granted, strict=True)),)

    def _preemption(self, o: Outline) -> tuple[int, ...]:
        jobs = self.problem.jobs
        cost = age = gpus = 0
        for v in o.gone:
            began = int(jobs.started_us[v]) if jobs.started_us[v] >= 0 else int(jobs.placed_us[v])
            lost = 0
            if jobs.started_us[v] >= 0:
                saved = int(jobs.checkpointed_us[v]) if jobs.resumable[v] else -1
                lost = (self.problem.now_us - max(began, saved)) // US
            gpus += self.search.size[v]
            age += (self.problem.now_us - began) // US
            cost += self.search.size[v] * (max(0, lost) + int(jobs.restart_cost_s[v]))
        return cost, len(o.gone), gpus, age

    def _idle(self, o: Outline) -> tuple[int, ...]:
        started = [self.search.size[j] for j in self.search.starts(o)]
        lent = [s for j, m, s in zip(self.search.pending, o.modes, self.search.size_of_pending, strict=True) if m == 2]
        return sum(self.free(o)) - sum(started), sum(lent)

    def free(self, o: Outline) -> list[int]:
        """In-service GPUs that nobody holds, before starts, per node."""
        if o.gone not in self.free_after:
            nodes, jobs = self.problem.nodes, self.problem.jobs
            out = []
            for n in range(self.search.num_nodes):
                mask, count = nodes.healthy_devices[n], 0
                for j in self.search.stays + self.search.stopping:
                    for rep in jobs.placement[j] if j not in o.gone else ():
                        if rep.node == n:
                            mask &= ~rep.devices if rep.devices >= 0 else mask
                            count += rep.gpus
                ready = nodes.state[n] == NodeState.READY
                left = max(0, int(nodes.healthy[n]) - count) if nodes.unknown_devices[n] else mask.bit_count()
                out.append(left if ready else 0)
            self.free_after[o.gone] = out
        return self.free_after[o.gone]

    def _lend(self, o: Outline) -> tuple[int, ...]:
        total = sum(o.borrowed)
        if total not in self.splits:
            self.splits[total] = split(total, self.problem.budgets.share, self.demand)
        value = 0
        for target, got in zip(self.splits[total], o.borrowed, strict=True):
            for k in range(4):
                value += 2**k * min(max(4 * max(0, target - got) - k * target, 0), target)
        return (value,)

    # -- settled by the places ------------------------------------------------------------------------------------

    def _inversion(self, full: Full) -> tuple[int, ...]:
        search, o, total = self.search, full.outline, 0
        jobs = self.problem.jobs
        for j, mode_of_j in zip(search.pending, o.modes, strict=True):
            if mode_of_j:
                continue
            for mode, may in ((1, jobs.may_allocate[j]), (2, jobs.may_borrow[j])):
                worse = [
                    i
                    for i, m in zip(search.pending, o.modes, strict=True)
                    if m == mode and search.leaf[i] == search.leaf[j] and search.order[i] > search.order[j]
                ]
                if may and worse and self._would_fit(full, j, mode, worse):
                    total += self.weight[j]
                    break
        return (total,)

    def _would_fit(self, full: Full, j: int, mode: int, worse: list[int]) -> bool:
        search, o = self.search, full.outline
        budgets = self.problem.budgets
        caps, have = (budgets.max_gpus, o.granted) if mode == 1 else (budgets.max_borrowed, o.borrowed)
        leaf = search.leaf[j]
        freed = sum(search.size[i] for i in worse)
        for vertex, leaves in enumerate(budgets.leaves_below):
            if leaf in leaves and 0 <= caps[vertex] < sum(have[x] for x in leaves) - freed + search.size[j]:
                return False
        bins, res = search.room(o)
        here = search.company(o)
        for i, spot in zip(search.starts(o), full.spots, strict=True):
            lent = mode == 1 and o.modes[search.pending.index(i)] == 2  # no reason why allocated work would not fit
            if i not in worse and not lent:
                bins = [x - y for x, y in zip(bins, spot.gpus, strict=True)]
                for n, count in enumerate(spot.counts):
                    if count:
                        here[n].add(i)
                        res[n] = [x - y * count for x, y in zip(res[n], search.needs[i], strict=True)]
        room: dict[tuple[int, int], int] = {}
        level = int(self.problem.jobs.required_level[j])
        allowed = self.problem.eligibility[self.problem.jobs.eligibility[j]]
        for n in range(search.num_nodes):
            if allowed[n]:
                key = search.domain_of[level][n], search.pool[n]
                room[key] = room.get(key, 0) + self._slots(j, n, bins, res[n], here[n])
        return max(room.values(), default=0) >= search.replicas[j]

    def _slots(self, j: int, n: int, bins: list[int], res: list[int], beside: set[int]) -> int:
        search, g = self.search, self.search.each[j]
        if beside and (search.exclusive[j] or any(search.exclusive[i] for i in beside)):
            return 0
        rooms = [bins[b] for b in search.bins_of[n]]
        if search.same_group[j]:
            count = 0 if self.problem.nodes.unknown_devices[n] else sum(x // g for x in rooms)
        else:
            count = sum(rooms) // g
        for need, left in zip(search.needs[j], res, strict=True):
            if need:
                count = min(count, left // need)
        return max(0, min(count, search.limit[j]) if search.limit[j] else count)

    def _fragmentation(self, full: Full) -> tuple[int, ...]:
        """Σ weight · (stranded · charge_horizon + size · time to place)."""
        search, problem, o = self.search, self.problem, full.outline
        free, bins = list(self.free(o)), search.room(o)[0]
        usable = [sum(bins[b] for b in search.bins_of[n]) for n in range(search.num_nodes)]
        here = search.company(o)
        for j, spot in zip(search.starts(o), full.spots, strict=True):
            for n, count in enumerate(spot.counts):
                if count:
                    free[n] -= count * search.each[j]
                    usable[n] -= count * search.each[j]
                    here[n].add(j)
        for n in range(search.num_nodes):
            shut = any(search.exclusive[j] for j in here[n])
            usable[n] = 0 if shut else min(max(usable[n], 0), free[n])
        ends = [self._ends(full, n, here[n]) for n in range(search.num_nodes)]
        total = 0
        for shape in problem.shape_mix:
            slots: dict[tuple[int, int], int] = {}
            opens: dict[tuple[int, int], list[int]] = {}
            left = 0
            for n in range(search.num_nodes):
                if shape.pool in (-1, search.pool[n]):
                    key = search.domain_of[shape.level][n], search.pool[n]
                    slots[key] = slots.get(key, 0) + usable[n] // shape.gpus_per_replica
                    opens.setdefault(key, []).extend(ends[n][shape.gpus_per_replica - 1 :: shape.gpus_per_replica])
                    left += free[n]
            stranded = left - shape.size * sum(x // shape.replicas for x in slots.values())
            times = [sorted(x)[shape.replicas - 1] for x in opens.values() if len(x) >= shape.replicas]
            wait = min([problem.policy.max_min_runtime_s, *(-(-t // US) for t in times)])
            total += shape.weight * (stranded * problem.policy.charge_horizon_s + shape.size * wait)
        return (total,)

    def _ends(self, full: Full, n: int, here: set[int]) -> list[int]:
        """Microseconds until protection no longer forbids taking each in-service GPU of a node, ascending."""
        search, problem, o = self.search, self.problem, full.outline
        jobs, nodes = problem.jobs, problem.nodes
        if nodes.state[n] != NodeState.READY:
            return []
        ends: dict[int, int] = {}
        loose: list[int] = []
        whole = 0
        modes = dict(zip(search.pending, o.modes, strict=True))
        spots = dict(zip(search.starts(o), full.spots, strict=True))
        for j in here:
            fresh = j in spots or j in o.promoted
            mode = modes[j] if j in spots else 1 if j in o.promoted else search.mode_now[j]
            if mode != Mode.ALLOCATED or jobs.state[j] == JobState.STOPPING:
                continue
            kept = int(jobs.protected_until_us[j]) - problem.now_us if jobs.protected[j] else 0
            until = max(0, int(jobs.min_runtime_s[j]) * US if fresh else kept)
            whole = max(whole, until if search.exclusive[j] else 0)
            if j in spots:
                loose += [until] * (spots[j].counts[n] * search.each[j])
                continue
            for rep in jobs.placement[j]:
                if rep.node == n and nodes.unknown_devices[n]:
                    loose += [until] * rep.gpus
                elif rep.node == n:
                    for d in range(rep.devices.bit_length()):
                        if (rep.devices & nodes.healthy_devices[n]) >> d & 1:
                            ends[d] = max(ends.get(d, 0), until)
        taken = sorted([*ends.values(), *loose], reverse=True)[: int(nodes.healthy[n])]
        out = [0] * (int(nodes.healthy[n]) - len(taken)) + taken[::-1]
        return [max(x, whole) for x in out]

    def _locality(self, full: Full) -> tuple[int, ...]:
        search, o = self.search, full.outline
        free, spans, touched = list(self.free(o)), 0, set()
        for j, spot in zip(search.starts(o), full.spots, strict=True):
            level = int(self.problem.jobs.preferred_level[j])
            domains = set()
            for n, count in enumerate(spot.counts):
                free[n] -= count * search.each[j]
                if count and level >= 0:
                    domains.add((level, search.domain_of[level][n]))
            spans += max(0, len(domains) - 1)
            touched |= domains
        left = sum(free[n] for level, d in touched for n in range(search.num_nodes) if search.domain_of[level][n] == d)
        return spans, left
