from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cpalloc.entitlement import Tree, claims, entitlements, fill, fill_pools
from cpalloc.entitlement.routing import Routing

from .cases import accepted, cases, permuted
from .reference import Reference, subsets

HOUR = 3600
A, B, AB = frozenset({0}), frozenset({1}), frozenset({0, 1})


def equals(count: int) -> Tree:
    return Tree([f"b{i}" for i in range(count)], [-1] * count, [100 * HOUR] * count, [0] * count)


def nothing(count: int, pools: int = 2) -> list[list[int]]:
    return [[0] * pools for _ in range(count)]


def test_a_saturated_pool_freezes_and_the_rest_go_on():
    # b0 and b1 want pool A only and share its 8; b2 takes B's 16, more than its third
    asked = [[(A, 20)], [(A, 20)], [(AB, 20)]]
    assert fill_pools(equals(3), [8, 16], nothing(3), asked, HOUR) == [4, 4, 16]


def test_the_flexible_leave_the_scarce_pool_to_the_choosy():
    # 8 and 8 GPUs, equals: both can have 8 only if b1 goes to B
    assert fill_pools(equals(2), [8, 8], nothing(2), [[(A, 16)], [(AB, 16)]], HOUR) == [8, 8]


def test_demand_of_one_leaf_may_be_in_several_pools():
    # b0's 3 in A and 9 in B, b1 wants B: 3 + 3 and 5 is not fair, 3 + 1 and 7 is closer: (3 + x) = 8 − x → 5.5 each
    assert fill_pools(equals(2), [8, 8], nothing(2), [[(A, 3), (B, 9)], [(B, 9)]], HOUR) == [6, 5]


def test_rounding_skips_a_step_that_has_no_flow():
    # A has 3 for b0, b1: 1.5 each, b0 first by name; B has 2 for b2, b3, b4: 2/3 each go first, b4 gets none
    asked = [[(A, 9)], [(A, 9)], [(B, 9)], [(B, 9)], [(B, 9)]]
    assert fill_pools(equals(5), [3, 2], nothing(5), asked, HOUR) == [2, 1, 1, 1, 0]


def test_protected_work_keeps_to_its_pool():
    # b0 holds 6 protected in A: of A 2 are left for b1, which wants A only
    asked = [[(A, 6), (AB, 10)], [(A, 10)]]
    assert fill_pools(equals(2), [8, 8], [[6, 0], [0, 0]], asked, HOUR) == [14, 2]
    # what is protected counts inside the demand that accepts its pool, and besides when there is none
    assert fill_pools(equals(2), [8, 8], [[6, 0], [0, 0]], [[(AB, 8)], []], HOUR) == [8, 0]
    assert fill_pools(equals(2), [8, 8], [[6, 0], [0, 0]], [[(B, 3)], []], HOUR) == [9, 0]


def test_protected_work_comes_off_the_choosiest_demand():
    # b0's 4 in A come off its A amount; the 4 that accept both go to B, where b1 has its 4 too
    assert fill_pools(equals(2), [4, 8], [[4, 0], [0, 0]], [[(AB, 4), (A, 4)], [(B, 4)]], HOUR) == [8, 4]


def test_a_pool_overfull_of_protected_work_has_nothing_to_share():
    assert fill_pools(equals(2), [4, 8], [[6, 0], [0, 0]], [[(A, 9)], [(A, 9), (B, 3)]], HOUR) == [6, 3]


def test_the_tree_protects_a_busy_leaf_whose_siblings_sleep_in_several_pools():
    # scenario 19 with 8 of the 16 GPUs in a second pool that only B/one accepts besides
    tree = Tree(
        ["A", "A/busy", "A/idle", "B", "B/one"],
        [-1, 0, 0, -1, 3],
        [2_419_200, 2_419_200, 4_838_400],
        [1_440_000, 0, 2_880_000],
    )
    assert claims(tree, [16, 0], [[(A, 16)], [], [(AB, 16)]], HOUR) == [16, 0, 0]
    assert claims(tree, [8, 8], [[(A, 16)], [], [(AB, 16)]], HOUR) == [8, 0, 8]
    assert claims(tree, [8, 8], [[(AB, 16)], [], [(AB, 16)]], HOUR) == [16, 0, 0]


def test_caps_of_interior_vertices_hold_in_several_pools():
    tree = Tree(["p", "q", "x", "y", "z"], [-1, -1, 0, 0, 1], [10, 10, 20], [0, 0, 0], [3, -1, -1, -1, -1])
    asked = [[(A, 8)], [(B, 8)], [(AB, 16)]]
    assert fill_pools(tree, [8, 8], nothing(3), asked, HOUR) == [2, 1, 13]


@pytest.mark.parametrize(
    ("pools", "asked", "message"),
    [
        ([8, 8], [[(frozenset(), 1)]], "accepts the pools"),
        ([8, 8], [[(frozenset({2}), 1)]], "pools 0 to 1"),
        ([8, 8], [[(A, -1)]], "demand"),
        ([8], [[(B, 1)]], "pools 0 to 0"),
        ([8, -1], [[]], "gpus"),
    ],
)
def test_refuses_what_makes_no_sense(pools, asked, message):
    with pytest.raises(ValueError, match=message):
        entitlements(equals(1), pools, [[0] * len(pools)], asked, HOUR)


@settings(deadline=None)
@given(cases())
def test_one_pool_is_the_plain_fill(case):
    everything = frozenset({0})
    held = [[sum(row)] for row in case.protected]
    asked = [[(everything, gpus) for _, gpus in row] for row in case.demand]
    expected = fill(*case.one_pool)
    assert fill_pools(case.tree, [sum(case.gpus)], held, asked, case.horizon_s) == expected
    assert entitlements(case.tree, [sum(case.gpus)], held, asked, case.horizon_s) == expected


@settings(deadline=None)
@given(cases())
def test_pools_everybody_accepts_are_one_pool(case):
    every = frozenset(range(len(case.gpus)))
    case = replace(
        case,
        protected=[[0] * len(case.gpus) for _ in case.protected],
        demand=[[(every, gpus) for _, gpus in row] for row in case.demand],
    )
    assert fill_pools(*case.arguments) == fill(*case.one_pool)
    assert claims(case.tree, case.gpus, case.demand, case.horizon_s) == fill(*case.one_pool)


@settings(max_examples=300, deadline=None)
@given(cases())
def test_equals_the_fill_that_tries_every_set_of_pools(case):
    assert fill_pools(*case.arguments) == Reference(case).fill()


@settings(deadline=None)
@given(cases(max_pools=4))
def test_the_result_can_be_routed_and_uses_what_can_be_used(case):
    reference = Reference(case)
    result = fill_pools(*case.arguments)
    assert reference.routable(result)
    for leaf, gpus in zip(case.tree.leaves, result, strict=True):
        kept = reference.kept_of_leaf[leaf]
        assert kept <= gpus <= kept + len(reference.want[leaf])
    if all(cap < 0 for cap in case.tree.cap):
        for i in range(len(result)):
            assert not reference.routable([x + (i == j) for j, x in enumerate(result)])


@settings(deadline=None)
@given(cases(max_pools=4), st.data())
def test_the_order_of_vertices_amounts_and_pools_does_not_matter(case, data):
    case = replace(case, protected=[[0] * len(case.gpus) for _ in case.protected])  # matched in order of the pools
    base = fill_pools(*case.arguments)
    changed, old = permuted(case, data.draw(st.permutations(range(len(case.tree.names)))))
    place = data.draw(st.permutations(range(len(case.gpus))))
    gpus = [0] * len(place)
    for p, new in enumerate(place):
        gpus[new] = case.gpus[p]
    demand = [[(frozenset(place[p] for p in s), n) for s, n in reversed(row)] for row in changed.demand]
    assert fill_pools(*replace(changed, gpus=gpus, demand=demand).arguments) == [base[i] for i in old]


@settings(deadline=None)
@given(st.data())
def test_overload_names_a_set_of_pools_that_is_overloaded(data):
    pools = data.draw(st.integers(1, 4))
    tree = equals(data.draw(st.integers(1, 4)))
    wants = [data.draw(st.dictionaries(accepted(pools), st.integers(1, 5), max_size=3)) for _ in tree.names]
    spare = data.draw(st.lists(st.integers(0, 8), min_size=pools, max_size=pools))
    routing = Routing(tree, wants, spare, {})
    given_ = {v: data.draw(st.fractions(0, sum(want.values()), max_denominator=6)) for v, want in enumerate(wants)}
    excess = {
        s: sum(max(0, x - routing.outside(s)[v]) for v, x in given_.items()) - sum(spare[p] for p in s)
        for s in subsets(range(pools))
    }
    found = routing.overload(given_)
    assert max(excess.values()) == (0 if found is None else excess[found])
    assert (found is None) == (max(excess.values()) == 0)


def large(leaves: int, pools: int, seed: int = 0):
    """A tree of 8 programmes, 40 projects and ``leaves`` researchers, busy pools, several demands a leaf."""
    rng = Random(seed)
    names = [f"p{i}" for i in range(8)] + [f"p{i % 8}/{i}" for i in range(40)] + [f"r{i}" for i in range(leaves)]
    parent = [-1] * 8 + [i % 8 for i in range(40)] + [8 + i % 40 for i in range(leaves)]
    owed = [rng.randrange(10**5, 10**8) for _ in range(leaves)]
    charged = [rng.randrange(2 * o) for o in owed]
    every = range(pools)
    kinds = [frozenset({p}) for p in every] + [frozenset(every), frozenset(every[: pools // 2]) or frozenset(every)]
    asked = [[(rng.choice(kinds), rng.choice([1, 8, 64])) for _ in range(rng.randrange(5))] for _ in range(leaves)]
    held = [[rng.choice([0, 0, 0, 4]) for _ in every] for _ in range(leaves)]
    return Tree(names, parent, owed, charged), [rng.randrange(500, 3000) for _ in every], held, asked, HOUR


@pytest.mark.parametrize(("leaves", "pools"), [(300, 4), (1000, 1)])
def test_many_leaves_get_what_there_is(leaves, pools):
    tree, gpus, held, asked, horizon_s = large(leaves, pools)
    result = entitlements(tree, gpus, held, asked, horizon_s)
    assert len(result) == leaves
    assert all(got >= sum(row) for got, row in zip(result, held, strict=True))
    assert sum(result) <= sum(max(g, sum(row[p] for row in held)) for p, g in enumerate(gpus))


def test_many_pools_are_no_harder_than_few():
    tree, pools, held, asked, horizon_s = large(100, 20)
    result = fill_pools(tree, pools, held, asked, horizon_s)
    assert result == fill_pools(tree, pools, held, [row[::-1] for row in asked], horizon_s)
    assert sum(result) <= sum(max(g, sum(row[p] for row in held)) for p, g in enumerate(pools))
