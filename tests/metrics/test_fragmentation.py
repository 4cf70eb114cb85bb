from __future__ import annotations

from fractions import Fraction

import pytest

from cpalloc.metrics.fragmentation import LargestGang, fragmentation, tier_value
from cpalloc.problem.problem import US, Decision, JobState, NodeState, Problem, Shape, status_quo

from .helpers import HOUR, NOW_US, A, B, J, N, decide, devices, make

FULL = devices(0, 8)
WHOLE_NODE = Shape(1, 8, 0, 1)
RACKS = ("rack",)


def rack(name: str, nodes: int) -> list[N]:
    return [N(domains=(name,)) for _ in range(nodes)]


def times(problem: Problem, decision: Decision) -> list[int]:
    return [fit.time_to_place_s for fit in fragmentation(problem, decision).by_shape]


def protected(node: int, mask: int, left_s: float) -> J:
    return J(JobState.FIXED, A, ((node, mask),), left_s=left_s)


class TestStranded:
    def test_copies_are_counted_per_domain(self) -> None:
        # racks of 3, 3 and 1 free nodes; gangs of 2 whole nodes:
        nodes = rack("a", 3) + rack("b", 3) + rack("c", 1)
        mix = [Shape(2, 8, 1, 1), Shape(2, 8, 0, 1), Shape(1, 16, 0, 1)]
        told = fragmentation(make(nodes, mix=mix, levels=RACKS), status_quo(make(nodes)))
        # in one rack 1 + 1 + 0 = 2 copies, 56 - 2·16 = 24 stranded; anywhere ⌊7/2⌋ = 3, 56 - 48 = 8;
        # replicas larger than a node: 0, all 56 stranded
        assert [(f.placeable_now, f.stranded_gpus) for f in told.by_shape] == [(2, 24), (3, 8), (0, 56)]
        assert told.stranded_gpus == Fraction(24 + 8 + 56, 3)
        assert told.free_gpus == 56

    def test_a_replica_does_not_span_nodes(self) -> None:
        nodes = [N(), N()]
        jobs = [protected(0, devices(0, 7), HOUR), protected(1, devices(0, 1), HOUR)]
        problem = make(nodes, jobs, [WHOLE_NODE, Shape(2, 4, 0, 1), Shape(1, 3, 2 - 1, 1)])
        told = fragmentation(problem, status_quo(problem))
        # 1 and 7 free: no whole node (8 stranded); ⌊1/4⌋ + ⌊7/4⌋ = 1 slot of the 2 (8); ⌊7/3⌋ = 2 copies (8 - 6 = 2)
        assert [f.stranded_gpus for f in told.by_shape] == [8, 8, 2]

    def test_a_gang_does_not_span_pools(self) -> None:
        nodes = [N(pool=0), N(pool=0), N(pool=0), N(pool=1)]
        problem = make(nodes, mix=[Shape(2, 8, 0, 1), Shape(2, 8, 0, 1, 0), Shape(1, 8, 0, 1, 1)])
        told = fragmentation(problem, status_quo(problem))
        # any pool: ⌊3/2⌋ + ⌊1/2⌋ = 1, 32 - 16 = 16; pool 0 alone: 1, 24 - 16 = 8; pool 1: 1, 8 - 8 = 0
        assert [(f.placeable_now, f.stranded_gpus) for f in told.by_shape] == [(1, 16), (1, 8), (1, 0)]

    def test_level_node_keeps_a_gang_on_one_node(self) -> None:
        problem = make([N(), N(), N(4)], mix=[Shape(2, 3, 1, 1)])
        # level 1 of (cluster, node) is the node: ⌊⌊8/3⌋/2⌋ twice, ⌊⌊4/3⌋/2⌋ = 0: 2 copies, 20 - 12 = 8
        fit = fragmentation(problem, status_quo(problem)).by_shape[0]
        assert (fit.placeable_now, fit.stranded_gpus) == (2, 8)

    def test_free_gpus_beside_an_exclusive_job_are_stranded_for_all(self) -> None:
        nodes = [N(), N()]
        jobs = [J(JobState.FIXED, A, ((0, devices(0, 2)),), left_s=HOUR, exclusive=True)]
        problem = make(nodes, jobs, [Shape(1, 1, 0, 1)])
        # 6 + 8 free, usable 0 + 8: 8 copies of one GPU, 6 stranded
        fit = fragmentation(problem, status_quo(problem)).by_shape[0]
        assert (fit.placeable_now, fit.stranded_gpus) == (8, 6)

    def test_decision_8_goes_into_the_hole(self) -> None:
        # policy 10.8: nodes with 1 and 8 GPUs free, place 1 GPU for 8 h, whole nodes in the mix
        nodes = [N(), N()]
        jobs = [protected(0, devices(0, 7), 8 * HOUR), J(min_runtime_s=8 * HOUR)]
        problem = make(nodes, jobs, [WHOLE_NODE])
        hole = decide(problem, nodes, start={1: (A, [(0, devices(7, 1))])})
        node = decide(problem, nodes, start={1: (A, [(1, devices(0, 1))])})
        # hole: 8 free, 1 copy, 0 stranded, fits now: 0. node: 1 + 7 free, 8 stranded · 3600 + 8 · 28800 s to wait
        assert tier_value(problem, hole) == 0
        assert tier_value(problem, node) == 8 * 3600 + 8 * 28800

    def test_decision_17_splits_evenly(self) -> None:
        # policy 10.17: 20 replicas of one GPU over racks with 19, 10, 10 free, gangs of 19 in the mix
        nodes = [N(19, ("a",)), N(10, ("b",)), N(10, ("c",))]
        problem = make(nodes, [J(min_runtime_s=HOUR)], [Shape(19, 1, 1, 1)], RACKS)
        even = decide(problem, nodes, start={0: (A, [(1, devices(0, 10)), (2, devices(0, 10))])})
        greedy = decide(problem, nodes, start={0: (A, [(0, devices(0, 19)), (1, devices(0, 1))])})
        # even: 19 free, 1 copy: 0. greedy: 9 + 10 free, none fits, all 19 stranded, 1 h until rack a is free again
        assert tier_value(problem, even) == 0
        assert tier_value(problem, greedy) == 19 * 3600 + 19 * 3600


class TestTimeToPlace:
    def test_the_earliest_domain_counts_and_its_last_needed_replica(self) -> None:
        nodes = rack("a", 3) + rack("b", 2)
        jobs = [protected(n, FULL, left) for n, left in enumerate((600, 7200, 1200, 60, 1800))]
        mix = [Shape(1, 8, 1, 1), Shape(2, 8, 1, 1), Shape(3, 8, 1, 1), Shape(3, 8, 0, 1), Shape(4, 8, 1, 1)]
        problem = make(nodes, jobs, mix, RACKS)
        # 1: b at 60. 2: a at 1200 before b at 1800. 3: only a, 7200. 3 anywhere: third of 60, 600, 1200.
        # 4: never in one rack, capped at max_min_runtime 8 h
        assert times(problem, status_quo(problem)) == [60, 1200, 7200, 1200, 28800]

    def test_slots_inside_a_node(self) -> None:
        jobs = [protected(0, devices(d, 1), left) for d, left in enumerate((100, 200, 300, 400, 500, 600))]
        problem = make([N()], jobs, [Shape(1, 2, 0, 1), Shape(1, 3, 0, 1), Shape(2, 3, 0, 1), Shape(1, 8, 0, 1)])
        # GPUs available at 0 0 100 200 300 400 500 600: two now, three at 100, two times three at the sixth, all at 600
        assert times(problem, status_quo(problem)) == [0, 100, 400, 600]

    @pytest.mark.parametrize(
        ("job", "seconds"),
        [
            (J(JobState.EVICTABLE, B, ((0, FULL),)), 0),  # borrowed
            (J(JobState.EVICTABLE, A, ((0, FULL),)), 0),  # past its protection
            (J(JobState.FIXED, A, ((0, FULL),)), 0),  # past it, shielded by its budget: still not protected
            (J(JobState.STOPPING, A, ((0, FULL),)), 0),  # leaves by itself
            (J(JobState.FIXED, A, ((0, FULL),), left_s=1), 1),
            (J(JobState.FIXED, A, ((0, FULL),), left_s=1.000001), 2),  # rounded up to whole seconds
            (J(JobState.FIXED, A, ((0, FULL),), left_s=8 * HOUR), 28800),
            (J(JobState.FIXED, A, ((0, devices(0, 1)),), left_s=90, exclusive=True), 90),
        ],
    )
    def test_what_protection_forbids(self, job: J, seconds: int) -> None:
        problem = make([N()], [job], [WHOLE_NODE])
        assert times(problem, status_quo(problem)) == [seconds]

    def test_starts_and_promotions_are_protected_from_now(self) -> None:
        nodes = [N(), N()]
        jobs = [J(JobState.EVICTABLE, B, ((0, FULL),), min_runtime_s=HOUR), J(min_runtime_s=1800)]
        problem = make(nodes, jobs, [WHOLE_NODE, Shape(2, 8, 0, 1)])
        decision = decide(problem, nodes, promote=[0], start={1: (A, [(1, devices(0, 1))])})
        # one node at 1800 (the start), both at 3600 (the promotion)
        assert times(problem, decision) == [1800, 3600]
        # started borrowed it protects nothing
        borrowed = decide(problem, nodes, promote=[0], start={1: (B, [(1, devices(0, 1))])})
        assert times(problem, borrowed) == [0, 3600]

    def test_an_exclusive_job_releases_the_whole_node(self) -> None:
        nodes = [N()]
        jobs = [J(JobState.FIXED, A, ((0, devices(0, 2)),), left_s=90, exclusive=True)]
        problem = make(nodes, jobs, [Shape(1, 1, 0, 1)])
        # 6 GPUs are free, but not to be had for 90 s
        assert times(problem, status_quo(problem)) == [90]

    def test_a_successor_of_a_stopping_job_holds_its_gpus(self) -> None:
        jobs = [J(JobState.STOPPING, B, ((0, FULL),)), protected(0, devices(0, 4), 60)]
        problem = make([N()], jobs, [Shape(1, 4, 0, 1), WHOLE_NODE])
        # devices 4-7 under the stopping job alone: now; 0-3 when the successor's protection ends
        assert times(problem, status_quo(problem)) == [0, 60]

    def test_counts_on_a_node_with_an_unhealthy_gpu_promise_nothing_early(self) -> None:
        nodes = [N(healthy=~1, unknown=True)]
        jobs = [protected(0, 4, 60), protected(0, 4, 600)]
        problem = make(nodes, jobs, [Shape(1, 3, 0, 1), Shape(1, 4, 0, 1)])
        # 7 in service, and either job may sit on the unhealthy one: surely 3 at 60, 4 only at 600
        assert times(problem, status_quo(problem)) == [60, 600]

    def test_nodes_out_of_service_and_absent_ones_never_help(self) -> None:
        nodes = [N(state=NodeState.DRAINING), N(state=NodeState.DOWN), N(healthy=~1)]
        jobs = [J(JobState.FIXED, A, ((-1, 8), (2, devices(1, 7))), left_s=60)]
        problem = make(nodes, jobs, [WHOLE_NODE, Shape(1, 7, 0, 1)])
        # 7 healthy GPUs on the only ready node: 8 never, 7 after 60 s
        assert times(problem, status_quo(problem)) == [28800, 60]

    def test_the_cap(self) -> None:
        problem = make([N()], [protected(0, FULL, 2 * HOUR)], [WHOLE_NODE], max_min_runtime_s=HOUR)
        assert times(problem, status_quo(problem)) == [HOUR]

    def test_expected_is_the_mean_over_the_mix(self) -> None:
        problem = make([N()], [protected(0, devices(0, 4), 600)], [Shape(1, 8, 0, 1), Shape(1, 4, 0, 3)])
        told = fragmentation(problem, status_quo(problem))
        # (1·600 + 3·0) / 4; stranded (1·4 + 3·0) / 4; tier with weights as they are: 1·(4·3600 + 8·600)
        assert told.expected_time_to_place_s == 150
        assert told.stranded_gpus == 1
        assert tier_value(problem, status_quo(problem)) == 4 * 3600 + 8 * 600


class TestLargestGang:
    def test_per_level_with_and_without_borrowed_work(self) -> None:
        nodes = rack("a", 3) + rack("b", 2)
        jobs = [protected(0, devices(0, 1), 60), J(JobState.EVICTABLE, B, ((1, FULL), (3, devices(0, 1))))]
        problem = make(nodes, jobs, levels=RACKS)
        told = fragmentation(problem, status_quo(problem))
        # whole and free: node 2 of a, node 4 of b; with the borrowed gang gone also 1 of a and 3 of b
        assert told.largest_gang == (LargestGang("cluster", 16, 2), LargestGang("rack", 8, 1))
        assert told.largest_gang_with_borrowed == (LargestGang("cluster", 32, 4), LargestGang("rack", 16, 2))

    def test_replicas_are_alike(self) -> None:
        # 1 × 16, 3 × 8, 3 × 8 of another pool, 2 × 8 not healthy or not ready: 24 GPUs beats 16; 7 × 8 would mix pools
        nodes = [N(16), *[N()] * 3, *[N(pool=1)] * 3, N(healthy=~1), N(state=NodeState.DRAINING)]
        problem = make(nodes)
        assert fragmentation(problem, status_quo(problem)).largest_gang == (LargestGang("cluster", 24, 3),)
        # equal GPUs: the gang with fewer replicas
        problem = make([N(16), N(), N()])
        assert fragmentation(problem, status_quo(problem)).largest_gang == (LargestGang("cluster", 16, 1),)

    def test_none(self) -> None:
        problem = make([N(state=NodeState.DOWN)])
        told = fragmentation(problem, status_quo(problem))
        assert told.largest_gang == (LargestGang("cluster", 0, 0),)
        assert (told.stranded_gpus, told.expected_time_to_place_s, told.by_shape) == (0, 0, ())


def test_rows_of_user_levels_only() -> None:
    nodes = [N(domains=("b1", "b1/r1")), N(domains=("b1", "b1/r2")), N(domains=("b0", "b0/r1"))]
    nodes.append(N(domains=("b1", "b1/r2"), state=NodeState.DRAINING))
    jobs = [protected(0, devices(0, 3), 60), protected(3, devices(0, 1), 90.5)]
    problem = make(nodes, jobs, levels=("block", "rack"))
    rows = fragmentation(problem, status_quo(problem)).by_domain
    assert [(r.level, r.name, r.free_gpus, r.whole_free_nodes, r.free_at_us - NOW_US) for r in rows] == [
        ("block", "b0", 8, 1, 0),
        ("block", "b1", 13, 1, 90_500_000),  # 5 + 8; the protected job on the draining node leaves last
        ("rack", "b0/r1", 8, 1, 0),
        ("rack", "b1/r1", 5, 0, 60 * US),
        ("rack", "b1/r2", 8, 1, 90_500_000),
    ]


def test_ten_thousand_nodes() -> None:
    count = 10_000
    nodes = [N(domains=(f"b{n // 512:02}", f"b{n // 512:02}/r{n // 32:04}"), pool=n % 2) for n in range(count)]
    jobs = [protected(n, devices(d, 1), 60.0 * (n % 400 + d)) for n in range(count) for d in range(6)]
    mix = [Shape(2**k, g, level, 1) for k in (0, 3, 6) for g in (1, 8) for level in (0, 1)]
    problem = make(nodes, jobs, mix, ("block", "rack"))
    # Two of 8 GPUs are free on every node, six come free later: a whole node waits for the last of its six.
    fits = {f.shape: f for f in fragmentation(problem, status_quo(problem)).by_shape}
    assert fits[Shape(1, 1, 0, 1)].placeable_now == 2 * count
    assert fits[Shape(1, 8, 0, 1)].placeable_now == 0
    assert fits[Shape(1, 8, 0, 1)].time_to_place_s == 5 * 60
