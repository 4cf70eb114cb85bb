"""Random small rounds, measured twice."""

from __future__ import annotations

import numpy as np
import pytest

from cpalloc.metrics.fragmentation import fragmentation, tier_value
from cpalloc.metrics.occupancy import measures, node_use
from cpalloc.problem.problem import Decision, JobState, NodeState, Problem, Shape

from .helpers import HOUR, A, B, J, N, decide, make
from .reference import Cluster

STATES = (NodeState.READY, NodeState.READY, NodeState.READY, NodeState.READY, NodeState.DRAINING, NodeState.DOWN)


def pick(rng: np.random.Generator, mask: int, count: int) -> int:
    """``count`` random devices out of a mask, or 0 where there are not enough."""
    there = [d for d in range(mask.bit_length()) if mask >> d & 1]
    if len(there) < count:
        return 0
    return sum(1 << int(d) for d in rng.choice(there, size=count, replace=False))


class RandomRound:
    """Grows a round job by job, remembering per node what is still to be had."""

    def __init__(self, rng: np.random.Generator, unknown: bool) -> None:
        self.rng = rng
        self.nodes = []
        for _ in range(int(rng.integers(1, 9))):
            gpus = int(rng.choice([1, 2, 4, 8, 8]))
            sick = 1 << int(rng.integers(gpus)) if rng.random() < 0.25 else 0
            block = int(rng.integers(2))
            self.nodes.append(
                N(
                    gpus,
                    (f"b{block}", f"b{block}/r{rng.integers(2)}"),
                    STATES[rng.integers(len(STATES))],
                    int(rng.integers(2)),
                    ~sick,
                    unknown and bool(rng.random() < 0.4),
                )
            )
        self.left = [(1 << n.gpus) - 1 for n in self.nodes]
        self.locked = [False] * len(self.nodes)
        self.jobs: list[J] = []

    def place(self, exclusive: bool, healthy: bool) -> tuple[tuple[int, int], ...]:
        """Takes room for a gang; () where there is none."""
        size, at = int(self.rng.choice([1, 1, 2, 4, 8])), []
        for _ in range(int(self.rng.choice([1, 1, 2, 3]))):
            node = int(self.rng.integers(len(self.nodes)))
            n = self.nodes[node]
            if self.locked[node] or (healthy and n.state != NodeState.READY):
                continue
            if exclusive and self.left[node] != (1 << n.gpus) - 1:
                continue
            mask = pick(self.rng, self.left[node] & (n.mask if healthy else -1), size)
            if mask:
                self.left[node] &= ~mask
                self.locked[node] = exclusive
                at.append((node, mask.bit_count() if n.unknown else mask))
        return tuple(at)

    def add(self, state: JobState) -> None:
        """A running job, where there is room for it."""
        rng = self.rng
        exclusive = bool(rng.random() < 0.15)
        at = self.place(exclusive, healthy=False)
        mode = (A, B)[rng.integers(2)]
        if state == JobState.FIXED and rng.random() < 0.2:
            at += ((-1, 2),)
        left_s = float(rng.choice([0, 0.000001, 60, 7200.5, 28800])) if state == JobState.FIXED and mode == A else 0
        if at:
            self.jobs.append(J(state, mode, at, left_s, int(rng.choice([0, 600, 3600])), exclusive))

    def follow(self) -> None:
        """A fixed job placed on the GPUs of a stopping one."""
        stopping = [j for j in self.jobs if j.state == JobState.STOPPING]
        if stopping:
            before = stopping[0]
            mode, left_s = ((A, 5400.0), (B, 0.0))[self.rng.integers(2)]
            self.jobs.append(J(JobState.FIXED, mode, before.at, left_s, 5400, before.exclusive))


def random_round(seed: int, *, unknown: bool) -> tuple[Problem, Decision]:
    rng = np.random.default_rng(seed)
    grown = RandomRound(rng, unknown)
    for _ in range(int(rng.integers(0, 12))):
        grown.add((JobState.FIXED, JobState.EVICTABLE, JobState.EVICTABLE, JobState.STOPPING)[rng.integers(4)])
    if rng.random() < 0.5:
        grown.follow()
    evictable = [i for i, j in enumerate(grown.jobs) if j.state == JobState.EVICTABLE]
    preempt = [i for i in evictable if rng.random() < 0.4]
    promote = [i for i in evictable if i not in preempt and grown.jobs[i].mode == B and rng.random() < 0.4]
    start = {}
    for _ in range(3):
        exclusive = bool(rng.random() < 0.2)
        at = grown.place(exclusive, healthy=True)
        if at:
            start[len(grown.jobs)] = ((A, B)[rng.integers(2)], at)
            grown.jobs.append(J(min_runtime_s=int(rng.choice([900, 3600, 28800])), exclusive=exclusive))
    mix = [
        Shape(
            int(rng.choice([1, 1, 2, 3])),
            int(rng.choice([1, 2, 3, 8])),
            int(rng.integers(4)),
            int(rng.integers(1, 5)),
            int(rng.integers(-1, 2)),
        )
        for _ in range(4)
    ]
    problem = make(grown.nodes, grown.jobs, mix, ("block", "rack"), max_min_runtime_s=int(rng.choice([HOUR, 8 * HOUR])))
    if not any(n.pool for n in grown.nodes):
        problem = make(grown.nodes, grown.jobs, [s for s in mix if s.pool < 1], ("block", "rack"))
    return problem, decide(problem, grown.nodes, start=start, preempt=preempt, promote=promote)


@pytest.mark.parametrize("unknown", [False, True])
@pytest.mark.parametrize("batch", range(10))
def test_random_rounds(batch: int, unknown: bool) -> None:
    for seed in range(batch * 40, batch * 40 + 40):
        problem, decision = random_round(seed, unknown=unknown)
        slow = Cluster(problem, decision)
        every = range(len(problem.nodes.names))
        use = node_use(problem, decision)
        ready = [n for n in every if problem.nodes.state[n] == NodeState.READY]
        assert [use.free[n] for n in every] == [slow.count(n, "free") for n in every], seed
        assert [use.usable_free[n] for n in every] == [slow.usable(n) for n in every], seed
        assert [use.usable_with_borrowed[n] for n in every] == [slow.usable_with_borrowed(n) for n in every], seed
        for kind, array in (("allocated", use.allocated), ("borrowed", use.borrowed), ("stopping", use.stopping)):
            assert [array[n] for n in ready] == [slow.count(n, kind) for n in ready], (seed, kind)

        told = measures(problem, decision)
        assert told.held_draining_gpus == slow.draining_held
        assert told.held_gpus + int(use.free.sum()) == told.in_service_gpus == problem.in_service_gpus
        assert told.occupancy is None or 0 <= told.occupancy <= 1

        told_f = fragmentation(problem, decision)
        for fit in told_f.by_shape:
            copies = slow.placeable(fit.shape)
            assert fit.placeable_now == copies, seed
            assert fit.stranded_gpus == slow.free(fit.shape) - copies * fit.shape.size, seed
            assert fit.time_to_place_s == slow.time_to_place(fit.shape), (seed, fit)
        for level in range(3):
            gang = told_f.largest_gang[level]
            assert (gang.gpus, gang.replicas) == slow.largest(level, slow.usable), seed
            gang = told_f.largest_gang_with_borrowed[level]
            assert (gang.gpus, gang.replicas) == slow.largest(level, slow.usable_with_borrowed), seed
        rows = iter(told_f.by_domain)
        for level in (1, 2):
            for domain, name in enumerate(problem.topology.names[level]):
                row = next(rows)
                assert (row.level, row.name) == (problem.topology.levels[level], name)
                inside = [n for n in every if problem.topology.domain_of[level, n] == domain]
                assert row.free_gpus == sum(slow.count(n, "free") for n in inside)
                assert row.whole_free_nodes == sum(slow.usable(n) == problem.nodes.gpus[n] for n in inside)
                assert row.free_at_us == slow.free_at(level, domain, decision), seed
        assert tier_value(problem, decision) == slow.tier(), seed
