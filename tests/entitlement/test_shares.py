from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cpalloc.entitlement import default_owed, projected_ratio_key, ratio, shares

HOUR = 3600
WEEK = 168 * HOUR


def test_roots_are_siblings_and_shares_multiply_down():
    # roots 75 : 25; under the second 1 : 3
    assert shares([-1, -1, 1, 1], [75, 25, 1, 3]) == [
        Fraction(3, 4),
        Fraction(1, 4),
        Fraction(1, 16),
        Fraction(3, 16),
    ]


def test_parents_may_come_after_their_children():
    assert shares([2, 2, -1], [1, 2, 5]) == [Fraction(1, 3), Fraction(2, 3), Fraction(1)]


def test_a_group_without_weight_has_no_share():
    assert shares([-1, -1, 0, 0, 1], [1, 1, 0, 0, 7]) == [Fraction(1, 2), Fraction(1, 2), 0, 0, Fraction(1, 2)]
    assert shares([-1, -1], [0, 0]) == [0, 0]
    assert shares([], []) == []


@settings(deadline=None)
@given(st.data())
def test_shares_of_the_leaves_add_to_one(data):
    size = data.draw(st.integers(1, 30))
    parent = [data.draw(st.integers(-1, v - 1)) for v in range(size)]
    weight = data.draw(st.lists(st.integers(1, 10**6), min_size=size, max_size=size))
    result = shares(parent, weight)
    assert sum(s for v, s in enumerate(result) if v not in parent) == 1
    for p in set(parent) - {-1}:
        assert sum(s for v, s in enumerate(result) if parent[v] == p) == result[p]


@pytest.mark.parametrize(
    ("parent", "weight", "message"),
    [
        ([-1], [1, 2], "1 values expected, 2 given"),
        ([-1], [-1], "least allowed is 0"),
        ([1, 0], [1, 1], "cycle"),
        ([0], [1], "cycle"),
        ([-1, 2], [1, 1], "no vertex"),
        ([-2], [1], "least allowed is -1"),
    ],
)
def test_refuses_what_is_not_a_forest(parent, weight, message):
    with pytest.raises(ValueError, match=message):
        shares(parent, weight)


def test_owed_is_floored():
    assert default_owed(Fraction(1, 3), 8, 100) == 266  # 266.67
    assert default_owed(Fraction(1), 1024, WEEK) == 619_315_200
    assert default_owed(Fraction(75, 100), 64, WEEK) == 8_064 * HOUR
    assert default_owed(Fraction(0), 64, WEEK) == 0


def test_one_gpu_for_a_quarter_of_an_hour_moves_a_ratio():
    # decision 15: 900 of 619,315,200 GPU-seconds
    owed = default_owed(Fraction(1), 1024, WEEK)
    assert ratio(900, owed) == Fraction(900, 619_315_200) > ratio(0, owed)
    for charged in (0, owed // 2, owed, 10**15):
        assert ratio(charged + 900, owed) > ratio(charged, owed)
        assert projected_ratio_key(charged + 900, owed, 8, HOUR) > projected_ratio_key(charged, owed, 8, HOUR)


def test_ratio_is_infinite_where_nothing_is_owed():
    assert ratio(0, 0) is None
    assert ratio(6_048, 8_064) == Fraction(3, 4)


def test_the_ratio_decides():
    # decision 1: X at 0.75, Y at 0.80; a step of 8 GPUs moves X to 6,056 / 8,064 and Y to 2,158.4 / 2,688
    x = projected_ratio_key(6_048 * HOUR, 8_064 * HOUR, 8, HOUR)
    y = projected_ratio_key(21_504 * HOUR // 10, 2_688 * HOUR, 8, HOUR)
    assert x == (False, Fraction(6_056, 8_064))
    assert x < y < projected_ratio_key(0, 0, 0, HOUR)


def test_idle_days_are_not_forgotten():
    # decision 2: Y slept six days while X held 64 GPUs, then held all 64 for one
    x_charged, y_charged = 64 * 144 * HOUR, 64 * 24 * HOUR
    assert ratio(y_charged, 2_688 * HOUR) == Fraction(4, 7)
    assert ratio(x_charged, 8_064 * HOUR) == Fraction(8, 7)
    keys = [projected_ratio_key(c, o * HOUR, 8, HOUR) for c, o in ((y_charged, 2_688), (x_charged, 8_064))]
    assert keys == sorted(keys)


def test_numpy_amounts_do_not_overflow():
    big = np.int64(10**15)
    assert ratio(big, big) == 1
    assert projected_ratio_key(big, big, np.int64(10**6), np.int64(10**9)) == (False, Fraction(2 * 10**15, 10**15))
    assert default_owed(Fraction(1, 3), np.int64(10**6), np.int64(10**15)) == 10**21 // 3
    assert shares(np.array([-1, -1]), np.array([1, 1])) == [Fraction(1, 2)] * 2
