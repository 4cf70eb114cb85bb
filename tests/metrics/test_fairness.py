from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from cpalloc.metrics.fairness import (
    JobClass,
    WaitQuantiles,
    delivered_in_total,
    delivered_of_owed,
    job_class,
    nearest_rank,
    owed_in_hour,
    ratio,
    waits,
)

SHARE = Fraction(35, 100)
OWED = [owed_in_hour(SHARE, 100, demand) for demand in (0, 20, 80)]


class TestDecision15:
    def test_owed(self) -> None:
        # min(35, 0) + min(35, 20) + min(35, 80) = 0 + 20 + 35 = 55
        assert OWED == [0, 20, 35]
        assert sum(OWED) == 55

    def test_both_ways_agree_where_no_hour_is_over(self) -> None:
        told = delivered_of_owed([0, 20, 33], OWED)
        # (20 + 33) / 55 = 53 / 55 = 96.4 %
        assert (told.owed, told.delivered) == (55, 53)
        assert told.hour_capped == told.total_capped == Fraction(53, 55)
        assert f"{float(Fraction(53, 55)):.1%}" == "96.4%"

    def test_a_late_hour_makes_up_only_in_total(self) -> None:
        told = delivered_of_owed([0, 10, 45], OWED)
        # hour-capped (10 + 35) / 55 = 81.8 %; total-capped min(55, 55) / 55 = 100 %
        assert told.hour_capped == Fraction(45, 55)
        assert f"{float(Fraction(45, 55)):.1%}" == "81.8%"
        assert told.total_capped == 1

    def test_a_quarter_of_an_hour_of_one_gpu_moves_a_ratio(self) -> None:
        # one GPU for 15 minutes = 900 GPU-s, of 1,024 GPUs × 168 h × 3600 s = 619,315,200
        assert 1024 * 168 * 3600 == 619_315_200
        assert ratio(900, 619_315_200) == Fraction(900, 619_315_200) > 0
        assert ratio(619_315_200 + 900, 619_315_200) > 1
        assert ratio(900, 0) is None


def test_nothing_owed_is_not_a_hundred_percent() -> None:
    told = delivered_of_owed([3, 4], [0, 0])
    assert (told.delivered, told.hour_capped, told.total_capped) == (7, None, None)


def test_a_surplus_of_one_leaf_hides_nothing_of_another() -> None:
    told = delivered_in_total([([20, 0], [10, 10]), ([0, 5], [10, 10])])
    # hour-capped: (10 + 0) + (0 + 5) of 40; total-capped: min(20, 20) + min(5, 20) = 25 of 40, though 25 came in all
    assert (told.owed, told.delivered) == (40, 25)
    assert told.hour_capped == Fraction(15, 40)
    assert told.total_capped == Fraction(25, 40)
    # 30 delivered to a leaf that was owed 20 still counts 20
    assert delivered_in_total([([30, 0], [10, 10]), ([0, 5], [10, 10])]).total_capped == Fraction(25, 40)
    assert delivered_in_total([]).hour_capped is None


def test_hours_must_match() -> None:
    with pytest.raises(ValueError, match="zip"):
        delivered_of_owed([1], [1, 2])


def test_hour_capped_never_exceeds_total_capped() -> None:
    rng = np.random.default_rng(7)
    for _ in range(200):
        got, due = rng.integers(0, 50, (2, 24)).tolist()
        told = delivered_of_owed(got, due)
        assert told.hour_capped is not None
        assert told.total_capped is not None
        assert 0 <= told.hour_capped <= told.total_capped <= 1


def test_nearest_rank() -> None:
    # of 1 ... 10: ⌈5⌉ = 5th, ⌈9⌉ = 9th, ⌈9.9⌉ = 10th
    assert [nearest_rank(range(1, 11), p) for p in (50, 90, 99)] == [5, 9, 10]
    # of 1 ... 100 the 99th; of 101 the ⌈99.99⌉ = 100th; of three the ⌈1.5⌉ = 2nd
    assert nearest_rank(range(1, 101), 99) == 99
    assert nearest_rank(range(1, 102), 99) == 100
    assert nearest_rank([10, 20, 30], 50) == 20
    assert nearest_rank([7], 0) == nearest_rank([7], 100) == 7
    assert nearest_rank([], 50) is None


def test_waits_by_class() -> None:
    told = waits({JobClass.LARGE: [30, 10, 20], JobClass.DEBUG: [5]})
    assert list(told) == list(JobClass)
    assert told[JobClass.LARGE] == WaitQuantiles(3, 20, 30, 30)
    assert told[JobClass.DEBUG] == WaitQuantiles(1, 5, 5, 5)
    assert told[JobClass.MULTI_NODE] == WaitQuantiles(0, None, None, None)


@pytest.mark.parametrize(
    ("replicas", "gpus", "min_runtime_s", "interactive", "pool_gpus", "max_per_node", "expected"),
    [
        (1, 8, 900, False, 1024, 0, "debug"),
        (8, 1, 0, False, 1024, 0, "debug"),
        (1, 8, 901, False, 1024, 0, "single-node"),
        (9, 1, 900, False, 1024, 0, "multi-node"),
        (1, 1, 0, True, 1024, 0, "interactive"),  # declared, so before debug
        (64, 8, 0, True, 1024, 0, "interactive"),
        (2, 4, 3600, False, 1024, 0, "single-node"),
        (2, 4, 3600, False, 1024, 1, "multi-node"),  # one replica a node
        (3, 3, 3600, False, 1024, 0, "multi-node"),  # 9 > 8
        (16, 8, 3600, False, 1024, 0, "large"),  # 128 = 1024 / 8
        (127, 1, 3600, False, 1024, 0, "multi-node"),  # 127 < 128
        (1, 8, 3600, False, 64, 0, "large"),
        (1, 8, 900, False, 64, 0, "debug"),  # short and small, however small its pool
    ],
)
def test_job_class(
    replicas: int,
    gpus: int,
    min_runtime_s: int,
    interactive: bool,
    pool_gpus: int,
    max_per_node: int,
    expected: str,
) -> None:
    told = job_class(
        replicas=replicas,
        gpus_per_replica=gpus,
        min_runtime_s=min_runtime_s,
        interactive=interactive,
        pool_gpus=pool_gpus,
        node_gpus=8,
        max_per_node=max_per_node,
    )
    assert told == expected
