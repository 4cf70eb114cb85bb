from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from cpalloc.entitlement import Tree, fill
from cpalloc.entitlement.fill import bounds, split, whole
from cpalloc.entitlement.level import Line

from .cases import cases, permuted
from .reference import box_split

amounts = st.integers(0, 20)


@st.composite
def lines(draw):
    low, more = draw(st.sampled_from([0, 0, 1, 3])), draw(st.integers(0, 12))
    return Line(draw(amounts), draw(amounts), low, low + more)


sibling_lines = st.lists(lines(), max_size=8)


def most(line: Line) -> int:
    return line.high if line.owed else line.low


@settings(deadline=None)
@given(sibling_lines, st.integers(0, 40), st.integers(1, 5))
def test_split_adds_up_within_bounds(siblings, gpus, horizon_s):
    exact = split(siblings, gpus, horizon_s)
    assert sum(exact) == max(sum(x.low for x in siblings), min(gpus, sum(map(most, siblings))))
    assert all(line.low <= x <= most(line) for line, x in zip(siblings, exact, strict=True))


@settings(deadline=None)
@given(sibling_lines, st.integers(0, 40), st.integers(1, 5))
def test_nobody_who_can_give_a_gpu_is_ahead_of_one_who_can_take_it(siblings, gpus, horizon_s):
    exact = split(siblings, gpus, horizon_s)
    takers = [(a.charged + x * horizon_s) / a.owed for a, x in zip(siblings, exact, strict=True) if x < most(a)]
    givers = [(a.charged + x * horizon_s) / a.owed for a, x in zip(siblings, exact, strict=True) if x > a.low]
    if takers and givers:
        assert min(takers) >= max(givers)


@settings(deadline=None)
@given(sibling_lines, st.integers(0, 40), st.integers(1, 5))
def test_split_equals_a_fill_written_differently(siblings, gpus, horizon_s):
    columns = zip(*((a.owed, a.charged, a.low, a.high) for a in siblings), strict=True) if siblings else [()] * 4
    assert split(siblings, gpus, horizon_s) == box_split(*columns, gpus, horizon_s)


@settings(deadline=None)
@given(sibling_lines, st.integers(0, 40), st.integers(1, 5))
def test_more_gpus_never_hurt_before_rounding(siblings, gpus, horizon_s):
    fewer, more = split(siblings, gpus, horizon_s), split(siblings, gpus + 1, horizon_s)
    assert all(a <= b for a, b in zip(fewer, more, strict=True))
    # largest remainder may take the rounded GPU back, and no more
    names = [f"b{i}" for i in range(len(siblings))]
    assert all(a - 1 <= b for a, b in zip(whole(fewer, names), whole(more, names), strict=True))


@settings(deadline=None)
@given(sibling_lines, st.integers(0, 40), st.integers(1, 5))
def test_rounding_moves_nobody_by_a_whole_gpu(siblings, gpus, horizon_s):
    exact = split(siblings, gpus, horizon_s)
    rounded = whole(exact, [f"b{i}" for i in range(len(siblings))])
    assert sum(rounded) == sum(exact)
    assert all(abs(a - b) < 1 for a, b in zip(rounded, exact, strict=True))
    assert all(line.low <= x <= most(line) for line, x in zip(siblings, rounded, strict=True))
    up = [x % 1 for x, y in zip(exact, rounded, strict=True) if y > x]
    down = [x % 1 for x, y in zip(exact, rounded, strict=True) if y < x]
    assert not up or not down or min(up) >= max(down)


def below(tree: Tree, vertex: int) -> list[int]:
    kids = tree.children(vertex)
    return [leaf for c in kids for leaf in below(tree, c)] if kids else [tree.leaves.index(vertex)]


@settings(deadline=None)
@given(cases(max_pools=1))
def test_every_group_of_siblings_is_a_split_of_what_its_parent_got(case):
    tree, gpus, held, asked, horizon_s = case.one_pool
    result = fill(tree, gpus, held, asked, horizon_s)
    vertex_lines = bounds(tree, held, asked)
    got = [sum(result[leaf] for leaf in below(tree, v)) for v in range(len(tree.names))]
    for parent in [-1, *range(len(tree.names))]:
        kids = tree.children(parent)
        if kids:
            exact = split([vertex_lines[v] for v in kids], gpus if parent < 0 else got[parent], horizon_s)
            assert [got[v] for v in kids] == whole(exact, [tree.names[v] for v in kids])
            assert sum(exact) == (got[parent] if parent >= 0 else sum(got[v] for v in kids))


@settings(deadline=None)
@given(cases(max_pools=1))
def test_fill_stays_within_protection_demand_and_caps(case):
    tree, gpus, held, asked, horizon_s = case.one_pool
    result = fill(tree, gpus, held, asked, horizon_s)
    for x, p, d, owed in zip(result, held, asked, tree.owed, strict=True):
        assert p <= x <= (max(d, p) if owed else p)
    for v, cap in enumerate(tree.cap):
        leaves = below(tree, v)
        assert cap < 0 or sum(result[i] for i in leaves) <= max(cap, sum(held[i] for i in leaves))
    assert sum(result) <= max(gpus, sum(held))
    if all(cap < 0 for cap in tree.cap):
        asked_for = sum(max(d, p) if o else p for p, d, o in zip(held, asked, tree.owed, strict=True))
        assert sum(result) == max(sum(held), min(gpus, asked_for))


@settings(deadline=None)
@given(cases(max_pools=1), st.data())
def test_the_order_of_the_vertices_does_not_matter(case, data):
    order = data.draw(st.permutations(range(len(case.tree.names))))
    changed, old = permuted(case, order)
    base = fill(*case.one_pool)
    assert fill(*changed.one_pool) == [base[i] for i in old]


@settings(deadline=None)
@given(cases(max_pools=1))
def test_renaming_in_the_same_order_does_not_matter(case):
    tree = case.tree
    renamed = replace(case, tree=Tree([f"x{n}y" for n in tree.names], tree.parent, tree.owed, tree.charged, tree.cap))
    assert fill(*renamed.one_pool) == fill(*case.one_pool)


@settings(deadline=None)
@given(cases(max_pools=1, caps=False))
def test_scaling_owed_charged_and_horizon_changes_nothing(case):
    tree, gpus, held, asked, horizon_s = case.one_pool
    scaled = Tree(tree.names, tree.parent, [o * 10**12 for o in tree.owed], [c * 10**12 for c in tree.charged])
    assert fill(scaled, gpus, held, asked, horizon_s * 10**12) == fill(tree, gpus, held, asked, horizon_s)


def test_a_sum_of_thirds_is_whole():
    assert whole([Fraction(1, 3)] * 3, ["a", "b", "c"]) == [1, 0, 0]
