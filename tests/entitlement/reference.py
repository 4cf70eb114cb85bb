"""The fills once more, slowly and in other words: every set of pools tried, every breakpoint tried."""

from __future__ import annotations

from fractions import Fraction
from itertools import chain, combinations

import networkx as nx


def clamp(value, low, high):
    return max(low, min(value, high))


def box_split(owed, charged, low, high, gpus, horizon_s):
    """Siblings' GPUs without breakpoints: solve for the free ones, pin the worse offending side, again.

    Bitran and Hax (1981) for a separable problem under one sum. Returns exact amounts.
    """
    high = [hi if o else lo for o, lo, hi in zip(owed, low, high, strict=True)]
    total = max(sum(low), min(gpus, sum(high)))
    given = [Fraction(lo) if lo == hi else None for lo, hi in zip(low, high, strict=True)]
    while None in given:
        free = [i for i, x in enumerate(given) if x is None]
        rest = total - sum(x for x in given if x is not None)
        level = Fraction(rest * horizon_s + sum(charged[i] for i in free), sum(owed[i] for i in free))
        x = {i: (level * owed[i] - charged[i]) / horizon_s for i in free}
        under = sum(max(0, low[i] - x[i]) for i in free)
        over = sum(max(0, x[i] - high[i]) for i in free)
        for i in free:
            if under == over == 0:
                given[i] = x[i]
            elif under >= over and x[i] <= low[i]:
                given[i] = Fraction(low[i])
            elif under < over and x[i] >= high[i]:
                given[i] = Fraction(high[i])
    return given


def subsets(items):
    items = list(items)
    return [frozenset(s) for s in chain.from_iterable(combinations(items, n) for n in range(len(items) + 1))]


class Reference:
    """``fill_pools`` by trying every set of pools; protected GPUs are matched with demand as documented there."""

    def __init__(self, case):
        self.tree, self.h = case.tree, case.horizon_s
        self.kept_of_leaf = {v: sum(row) for v, row in zip(self.tree.leaves, case.protected, strict=True)}
        self.want = {
            v: self.without_protected(asked, held) if owed else []
            for v, asked, held, owed in zip(self.tree.leaves, case.demand, case.protected, self.tree.owed, strict=True)
        }
        self.spare = [max(0, g - sum(row[p] for row in case.protected)) for p, g in enumerate(case.gpus)]
        self.sets = subsets(range(len(case.gpus)))
        self.owed = dict(zip(self.tree.leaves, self.tree.owed, strict=True))
        self.charged = dict(zip(self.tree.leaves, self.tree.charged, strict=True))

    @staticmethod
    def without_protected(asked, held):
        units = sorted((len(a), sorted(a)) for a, gpus in asked for _ in range(gpus))
        for p, gpus in enumerate(held):
            for _ in range(gpus):
                match = next((u for u in units if p in u[1]), None)
                if match:
                    units.remove(match)
        return [frozenset(u[1]) for u in units]

    def leaves(self, v):
        below = self.tree.children(v)
        return [leaf for c in below for leaf in self.leaves(c)] if below else [v]

    def sum(self, v, of):
        return sum(of[leaf] for leaf in self.leaves(v))

    def outside(self, v, pools):
        below = self.tree.children(v)
        most = sum(self.outside(c, pools) for c in below) if below else sum(not a <= pools for a in self.want[v])
        cap = self.tree.cap[v]
        return most if cap < 0 else min(most, max(0, cap - self.sum(v, self.kept_of_leaf)))

    def value(self, v, level):
        """Unclamped GPUs beyond the protected ones."""
        charged = self.sum(v, self.charged) + self.h * self.sum(v, self.kept_of_leaf)
        return (level * self.sum(v, self.owed) - charged) / Fraction(self.h)

    def slacks(self, given, parents):
        """(slack, vertices that would use it up when raised) of every limit."""
        for s in self.sets:
            out = {v: self.outside(v, s) for v in given}
            excess = sum(max(0, x - out[v]) for v, x in given.items())
            yield sum(self.spare[p] for p in s) - excess, {v for v, x in given.items() if x >= out[v]}
        for p, total in parents.items():
            below = [v for v in given if self.tree.parent[v] == p]
            yield total - sum(given[v] for v in below), set(below)

    def raise_all(self, vertices, settled, parents):
        frozen = dict(settled)
        while len(frozen) < len(settled) + len(vertices):
            free = [v for v in vertices if v not in frozen]
            pinned = [v for v in free if not self.sum(v, self.owed)]
            if pinned:
                frozen |= dict.fromkeys(pinned, Fraction(0))
                continue

            def at(level, frozen=frozen, free=free):
                return frozen | {v: max(Fraction(0), self.value(v, level)) for v in free}

            level = self.last_feasible(at, free, parents)
            given = at(level)
            tight = [users for slack, users in self.slacks(given, parents) if slack == 0]
            stuck = {v: given[v] for v in free if any(v in users for users in tight)}
            # a vertex that still stands at 0 is stuck only from where it would start to rise
            stuck = {v: x for v, x in stuck.items() if self.value(v, level) >= 0}
            assert stuck
            frozen |= stuck
        return {v: frozen[v] for v in vertices}

    def last_feasible(self, at, free, parents):
        """Largest λ at which everything is within its limits."""
        ok = lambda level: all(slack >= 0 for slack, _ in self.slacks(at(level), parents))  # noqa: E731
        marks = set()
        for v in free:
            slope = Fraction(self.sum(v, self.owed), self.h)
            start = -self.value(v, Fraction(0)) / slope
            marks |= {start + self.outside(v, s) / slope for s in self.sets} | {start}
        marks = sorted(marks)
        marks = [marks[0] - 1, *marks, marks[-1] + 1]
        good = max(i for i, m in enumerate(marks) if ok(m))
        low, high = marks[good], marks[good + 1]  # every slack is linear between two marks
        steps = [
            a / (a - b)
            for (a, _), (b, _) in zip(self.slacks(at(low), parents), self.slacks(at(high), parents), strict=True)
            if b < 0
        ]
        return low + min(steps) * (high - low)

    def fits(self, given, parents):
        return all(slack >= 0 for slack, _ in self.slacks(given, parents))

    def whole(self, exact, settled, parents):
        given = {v: int(x) for v, x in exact.items()}
        for v in sorted(exact, key=lambda v: (given[v] - exact[v], self.tree.names[v])):
            if exact[v] != int(exact[v]):
                more = given | {v: given[v] + 1}
                if self.fits(more | settled, parents):
                    given = more
        return given

    def fill(self):
        granted, settled = {}, {}
        for vertices in self.tree.by_depth:
            parents = {self.tree.parent[v]: granted[self.tree.parent[v]] for v in vertices if self.tree.parent[v] >= 0}
            granted |= self.whole(self.raise_all(vertices, settled, parents), settled, parents)
            settled |= {v: granted[v] for v in vertices if not self.tree.children(v)}
        return [granted[v] + self.kept_of_leaf[v] for v in self.tree.leaves]

    def routable(self, per_leaf):
        """Whether whole GPUs beyond the protected ones can be placed, by networkx."""
        graph = nx.DiGraph()
        graph.add_nodes_from(["source", "sink"])
        for v, gpus in zip(self.tree.leaves, per_leaf, strict=True):
            graph.add_edge("source", ("leaf", v), capacity=gpus - self.kept_of_leaf[v])
            for pools in set(self.want[v]):
                graph.add_edge(("leaf", v), ("accepts", v, pools), capacity=self.want[v].count(pools))
                for p in pools:
                    graph.add_edge(("accepts", v, pools), ("pool", p))
        for p, gpus in enumerate(self.spare):
            graph.add_edge(("pool", p), "sink", capacity=gpus)
        return nx.maximum_flow_value(graph, "source", "sink") == sum(per_leaf) - sum(self.kept_of_leaf.values())
