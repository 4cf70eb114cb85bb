from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from cpalloc.entitlement import Tree, claims, entitlements, fill
from cpalloc.entitlement.fill import split, whole
from cpalloc.entitlement.level import Line, water_level

HOUR = 3600


def flat(owed, charged, names=None):
    """Siblings at the root; amounts in GPU-hours."""
    names = names or [f"b{i}" for i in range(len(owed))]
    return Tree(names, [-1] * len(owed), [int(o * HOUR) for o in owed], [int(c * HOUR) for c in charged])


def one_pool(amounts):
    return [[(frozenset({0}), gpus)] for gpus in amounts]


def test_the_ratio_decides_who_gets_the_last_node():
    # decision 1: both rise to λ only where x: λ·8064 − 6048, y: λ·2688 − 2150.4; at Σ = 8 Y is still under 0
    assert fill(flat([8064, 2688], [6048, 2150.4]), 8, [0, 0], [8, 8], HOUR) == [8, 0]


def test_idle_days_leave_a_claim_to_everything():
    # decision 2: Y at 4/7 claims all 64 against X at 8/7, protected or not
    tree = flat([8064, 2688], [64 * 144, 64 * 24], ["X", "Y"])
    assert claims(tree, [64], one_pool([64, 64]), HOUR) == [0, 64]
    assert entitlements(tree, [64], [[0], [64]], one_pool([64, 64]), HOUR) == [0, 64]


def test_one_charge_step_splits_near_equals():
    # decision 6: λ·5376 = (64 + 2688 + 2714.88) / 2 = 2733.44 → X 45.44, Y 18.56: six jobs of 8 and two
    tree = flat([5376, 5376], [2688, 2714.88], ["X", "Y"])
    lines = [Line(o, c, 0, hi) for o, c, hi in zip(tree.owed, tree.charged, (800, 32), strict=True)]
    assert split(lines, 64, HOUR) == [Fraction(4544, 100), Fraction(1856, 100)]
    entitled = fill(tree, 64, [0, 0], [800, 32], HOUR)
    assert entitled == [45, 19]
    # of the ways to fill 8 nodes, 6:2 leaves the least shortfall
    short = {n: max(0, 45 - 8 * n) + max(0, 19 - 8 * (8 - n)) for n in range(9)}
    assert min(short, key=short.get) == 6


def test_who_alone_asks_gets_all_it_asks_for():
    # decision 12: A runs 25 protected GPUs, wants 5 more and B sleeps
    tree = flat([2520, 2520], [0, 0])
    assert entitlements(tree, [30], [[25], [0]], one_pool([30, 0]), HOUR) == [30, 0]
    assert claims(tree, [30], one_pool([30, 0]), HOUR) == [30, 0]


def test_near_equals_over_their_share():
    # decision 16: λ·24,192,000 = (80·3600 + 26,611,200 + 26,490,240) / 2 → 23.2 and 56.8
    tree = Tree(["q0", "q1"], [-1, -1], [24_192_000] * 2, [26_611_200, 26_490_240])
    assert claims(tree, [80], one_pool([80, 80]), HOUR) == [23, 57]
    assert fill(tree, 80, [0, 0], [80, 80], HOUR) == [23, 57]


@pytest.fixture
def sleeping_sibling() -> Tree:
    """Scenario 19: A/busy and A/idle under A, B/one under B, A and B 1 : 1."""
    return Tree(
        ["A", "A/busy", "A/idle", "B", "B/one"],
        [-1, 0, 0, -1, 3],
        [2_419_200, 2_419_200, 4_838_400],
        [1_440_000, 0, 2_880_000],
    )


def test_the_tree_protects_a_busy_leaf_whose_siblings_sleep(sleeping_sibling):
    # A stands at 0.298 of its share, B at 0.595: A's claim is all 16, and A/busy inherits it although it is at 0.595
    assert claims(sleeping_sibling, [16], one_pool([16, 0, 16]), HOUR) == [16, 0, 0]
    # B/one holds 8 protected; A/busy runs 8 past protection
    assert entitlements(sleeping_sibling, [16], [[0], [0], [8]], one_pool([16, 0, 16]), HOUR) == [8, 0, 8]


def test_without_the_tree_the_busy_leaf_would_lose(sleeping_sibling):
    flat_tree = Tree(["busy", "idle", "one"], [-1] * 3, sleeping_sibling.owed, sleeping_sibling.charged)
    # busy and one are at the same ratio: the 16 go 1 : 2 as they are owed, and busy would lose 3 of its 8
    assert fill(flat_tree, 16, [0] * 3, [16, 0, 16], HOUR) == [5, 0, 11]


def test_protected_work_is_a_floor_even_beyond_the_demand_and_the_gpus():
    tree = flat([10, 10], [0, 0])
    assert fill(tree, 8, [6, 0], [8, 8], HOUR) == [6, 2]
    assert fill(tree, 8, [6, 0], [0, 8], HOUR) == [6, 2]
    assert fill(tree, 8, [6, 5], [9, 9], HOUR) == [6, 5]
    assert fill(tree, 0, [0, 0], [9, 9], HOUR) == [0, 0]


def test_who_is_owed_nothing_gets_what_it_has_protected():
    tree = flat([10, 0, 0], [50, 0, 3])
    assert fill(tree, 8, [0, 2, 0], [3, 8, 8], HOUR) == [3, 2, 0]


def test_an_unfunded_leaf_does_not_add_to_its_parents_demand():
    # p's leaf x is owed nothing: p asks for y's 2 only, and q's z gets the rest
    tree = Tree(["p", "q", "x", "y", "z"], [-1, -1, 0, 0, 1], [0, 10, 10], [0, 0, 0])
    assert fill(tree, 8, [0] * 3, [8, 2, 8], 1) == [0, 2, 6]


def test_what_a_cap_cuts_goes_to_the_siblings():
    tree = Tree(["p", "q", "x", "y", "z"], [-1, -1, 0, 0, 1], [10, 10, 20], [0, 0, 0], [3, -1, -1, -1, -1])
    assert fill(tree, 16, [0] * 3, [8, 8, 16], HOUR) == [2, 1, 13]  # 1.5 : 1.5, tie by name
    assert fill(tree, 16, [4, 0, 0], [8, 8, 16], HOUR) == [4, 0, 12]  # protected beyond the cap: nothing more


def test_largest_remainder_breaks_ties_by_name():
    assert fill(flat([10] * 3, [0] * 3, ["c", "a", "b"]), 4, [0] * 3, [9] * 3, HOUR) == [1, 2, 1]
    assert whole([Fraction(1, 2), Fraction(3, 2), Fraction(2)], ["z", "a", "b"]) == [0, 2, 2]


def test_rounding_keeps_the_parents_sum():
    # 5 GPUs: p 2.5, q 2.5 → p 3 by name; p's children 1.5 and 1.5 → x 2; q's one child 2
    tree = Tree(["p", "q", "x", "y", "z"], [-1, -1, 0, 0, 1], [10, 10, 20], [0, 0, 0])
    assert fill(tree, 5, [0] * 3, [9] * 3, HOUR) == [2, 1, 2]


def test_one_gpu_for_a_quarter_of_an_hour_tips_a_tie():
    # decision 15: at equal ratios the name decides the odd GPU, 900 GPU-seconds more decide against it
    owed = 619_315_200
    assert fill(Tree(["a", "b"], [-1, -1], [owed] * 2, [owed, owed]), 7, [0, 0], [9, 9], HOUR) == [4, 3]
    assert fill(Tree(["a", "b"], [-1, -1], [owed] * 2, [owed + 900, owed]), 7, [0, 0], [9, 9], HOUR) == [3, 4]


def test_water_level_has_no_tolerance():
    # 1/3 and 2/3 of a GPU-second apart from 10^15
    lines = [Line(10**15, 10**15 - 1, 0, 10), Line(10**15 - 7, 10**15, 0, 10)]
    level = water_level(lines, 7, 3)
    assert sum(line.at(level, 3) for line in lines) == 7
    assert water_level(lines, 20, 3) is None
    assert water_level([], 0, 3) is None


def test_numpy_amounts_do_not_overflow():
    big = np.array([10**15, 10**15], dtype=np.int64)
    tree = Tree(["a", "b"], np.array([-1, -1]), big, big - 1, np.array([-1, -1]))
    assert fill(tree, np.int64(9), np.array([0, 0]), np.array([9, 9]), 10**9) == [5, 4]


def test_an_empty_tree_gets_nothing():
    tree = Tree([], [], [], [])
    assert fill(tree, 8, [], [], HOUR) == []
    assert claims(tree, [8, 8], [], HOUR) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gpus": -1}, "gpus"),
        ({"protected": [0]}, "2 values expected"),
        ({"protected": [0, -1]}, "protected"),
        ({"demand": [0, -1]}, "demand"),
        ({"horizon_s": 0}, "horizon_s"),
    ],
)
def test_refuses_what_makes_no_sense(change, message):
    arguments = {"gpus": 8, "protected": [0, 0], "demand": [1, 1], "horizon_s": HOUR} | change
    with pytest.raises(ValueError, match=message):
        fill(flat([1, 1], [0, 0]), **arguments)


def test_refuses_a_tree_that_is_none():
    with pytest.raises(ValueError, match="cycle"):
        Tree(["a", "b"], [1, 0], [], [])
    with pytest.raises(ValueError, match="owed"):
        Tree(["a", "b"], [-1, -1], [1], [1, 2])
    with pytest.raises(ValueError, match="charged"):
        Tree(["a"], [-1], [1], [-1])
    with pytest.raises(ValueError, match="cap"):
        Tree(["a"], [-1], [1], [1], [-2])
