from itertools import pairwise

import numpy as np
import pytest

from cpalloc.sim.measures.steps import bin_edges, held_per_bin, held_per_group, integral, level_integral, step_at


def ints(*values):
    return np.array(values, dtype=np.int64)


def test_the_last_bin_may_be_short():
    assert bin_edges(0, 9000).tolist() == [0, 3600, 7200, 9000]
    assert bin_edges(100, 7300).tolist() == [100, 3700, 7300]
    assert bin_edges(5, 5).tolist() == [5]


def test_integral_of_steps_given_in_any_order():
    # 2 from t=10 on, 5 from t=20 on: up to 30 that is 2·20 + 3·10 = 70
    assert integral(ints(20, 10), ints(3, 2), ints(10, 15, 30)).tolist() == [0, 10, 70]


def test_no_steps_are_zero():
    none = ints()
    assert integral(none, none, ints(0, 7)).tolist() == [0, 0]
    assert held_per_bin(none, none, none, ints(0, 10, 20)).tolist() == [0, 0]


def test_stays_are_cut_at_bins_and_at_the_ends():
    # 4 GPUs in [5, 25) over bins [10, 20) and [20, 30): 10·4 and 5·4
    assert held_per_bin(ints(5), ints(25), ints(4), ints(10, 20, 30)).tolist() == [40, 20]


def test_groups_are_kept_apart_and_may_be_empty():
    held = held_per_group(ints(2, 0, 2), 3, ints(0, 0, 10), ints(10, 20, 20), ints(1, 2, 3), ints(0, 10, 20))
    assert held.tolist() == [[20, 20], [0, 0], [10, 30]]


def test_groups_agree_with_brute_force():
    rng = np.random.default_rng(7)
    n, groups, edges = 300, 5, bin_edges(0, 1000, 90)
    start = rng.integers(0, 900, n)
    end, gpus, group = start + rng.integers(0, 200, n), rng.integers(1, 9, n), rng.integers(0, groups, n)
    want = np.zeros((groups, len(edges) - 1), dtype=np.int64)
    for g, a, b, k in zip(group, start, end, gpus, strict=True):
        for i, (low, high) in enumerate(pairwise(edges)):
            want[g, i] += k * max(0, min(b, high) - max(a, low))
    assert np.array_equal(held_per_group(group, groups, start, end, gpus, edges), want)


def test_levels_hold_until_the_next():
    # 0.5 from 0, 2.0 from 15: bins [0, 10), [10, 20) → 5, 0.5·5 + 2·5 = 12.5
    level = level_integral(ints(0, 15), np.array([0.5, 2.0]), ints(0, 10, 20))
    assert level == pytest.approx([5.0, 12.5])
    assert step_at(ints(10, 20), ints(0, 10, 19, 20, 99)).tolist() == [0, 0, 0, 1, 1]
