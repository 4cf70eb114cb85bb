"""Whom budgets spare for a gang, against every choice there is."""

from __future__ import annotations

from itertools import combinations
from random import Random

import numpy as np
import pytest

from cpalloc.metrics import sparing
from cpalloc.metrics.sparing import Sparing, Yielding
from cpalloc.problem.problem import IntArray

Case = tuple[Yielding, IntArray, int, IntArray, int]


def drawn(rng: Random) -> Case:
    """Some jobs, what budgets can spare of them, and a gang that has room if all of them are gone."""
    while not slots_of((case := _drawn(rng))[1], case[2]).any():
        pass
    return case


def _drawn(rng: Random) -> Case:
    """Jobs of up to three leaves on a few nodes, and a gang: replicas of g GPUs."""
    nodes, leaves, g = rng.randint(1, 5), rng.randint(1, 3), rng.choice([1, 2, 3, 4, 8])
    room = np.array([8 - rng.choice([0, 0, 0, 2, 5, 8, 11]) for _ in range(nodes)])
    left = room.tolist()
    who, at, gpus, size, leaf, end_us = [], [], [], [], [], []
    for _ in range(rng.randint(1, 8)):
        on = rng.sample(range(nodes), min(nodes, rng.choice([1, 1, 1, 2, 3])))
        each = rng.choice([1, 2, 4, 8])
        if any(left[n] < each for n in on):
            continue
        for n in on:
            left[n] -= each
            who.append(len(size))
            at.append(n)
            gpus.append(each)
        size.append(each * len(on) + rng.choice([0, 0, 4]))  # some have GPUs elsewhere
        leaf.append(rng.randrange(leaves))
        end_us.append(rng.randrange(5))
    jobs = rng.sample(range(100), len(size))
    yielding = Yielding(*(np.array(x, dtype=np.int64) for x in (sorted(jobs), size, leaf, end_us, who, at, gpus)))
    spare = np.array([rng.randint(0, sum(size) + 1) for _ in range(leaves)])
    return yielding, room, g, spare, rng.randint(1, max(1, int(slots_of(room, g).sum())))


def slots_of(room: IntArray, g: int) -> IntArray:
    slots: IntArray = np.maximum(room, 0) // g
    return slots


def room_without(case: Case, gone: set[int]) -> IntArray:
    """Room if only those are gone; positions of jobs."""
    yielding, room = case[0], case[1].copy()
    stays = ~np.isin(yielding.who, list(gone))
    np.subtract.at(room, yielding.at[stays], yielding.gpus[stays])
    return room


def suits(case: Case, gone: set[int]) -> bool:
    """Whether budgets can spare all of those together, and the gang has room then."""
    yielding, _, g, spare, need = case
    who = sorted(gone)
    given = np.bincount(yielding.leaf[who], yielding.size[who], minlength=len(spare))
    return bool((given <= spare).all()) and int(slots_of(room_without(case, gone), g).sum()) >= need


def there_is_one(case: Case) -> bool:
    count = len(case[0].jobs)
    return any(suits(case, set(gone)) for n in range(count + 1) for gone in combinations(range(count), n))


def asked(case: Case) -> tuple[bool, set[int]]:
    """What is found, and who is gone then, as positions."""
    yielding, room, g, spare, need = case
    each, most = np.full(len(room), g), np.full(len(room), need)
    found = Sparing(yielding, room.copy(), each, most)
    within = found.keep_within(spare, need)
    return within, {yielding.jobs.tolist().index(j) for j in found.gone}


def test_what_is_found_can_be_spared_and_suffices_and_whatever_there_is_is_found() -> None:
    rng, found, none = Random("spared"), 0, 0
    for _ in range(1500):
        case = drawn(rng)
        within, gone = asked(case)
        assert within == there_is_one(case)
        assert not within or suits(case, gone)
        found, none = found + within, none + (not within)
    assert found > 600
    assert none > 350


@pytest.mark.parametrize(
    ("setting", "value", "least", "most"), [("MOST_DEAD_ENDS", 0, 1, 60), ("ONE_BY_ONE", 1, 0, 75)]
)
def test_with_fewer_dead_ends_or_several_at_a_time_little_is_missed_and_nothing_false_is_found(
    setting: str, value: int, least: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sparing, setting, value)
    rng, missed = Random(setting), 0
    for _ in range(1500):
        case = drawn(rng)
        within, gone = asked(case)
        assert not within or suits(case, gone)
        missed += not within and there_is_one(case)
    assert least <= missed <= most


def test_the_bound_on_what_has_to_go_never_says_so_of_what_can_be_spared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparing, "MOST_DEAD_ENDS", -1)  # the bound alone
    rng, cut, rest = Random("bound"), 0, 0
    for _ in range(1500):
        yielding, room, g, spare, need = case = drawn(rng)
        beyond = np.bincount(yielding.leaf, yielding.size, minlength=len(spare)).astype(np.int64) - spare
        each, most = np.full(len(room), g), np.full(len(room), need)
        if Sparing(yielding, room.copy(), each, most)._needs_more(beyond, spare, need):
            assert not there_is_one(case)
            cut += 1
        elif not there_is_one(case):
            rest += 1
    assert cut > rest / 2


def test_only_those_stay_away_who_are_needed_and_the_last_to_be_spared_come_back_first() -> None:
    rng, trimmed = Random("needed"), 0
    for _ in range(500):
        yielding, room, g, _, need = case = drawn(rng)
        count = np.minimum(slots_of(room, g), need)
        sparing_ = Sparing(yielding, room.copy(), np.full(len(room), g), count)
        sparing_.keep_needed()
        gone = {yielding.jobs.tolist().index(j) for j in sparing_.gone}
        assert (slots_of(room_without(case, gone), g) >= count).all()
        for j in gone:
            assert (slots_of(room_without(case, gone - {j}), g) < count).any()
        trimmed += len(gone) < len(yielding.jobs)
    assert trimmed > 150


def test_who_would_be_spared_last_comes_back_first_and_what_a_budget_needs_not_back_counts_for_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sparing, "MOST_DEAD_ENDS", 0)

    def one(size: list[int], end_us: list[int], leaf: list[int], spare: list[int], need: int) -> set[int]:
        """Who is gone of jobs that have whole nodes to themselves."""
        who = [j for j, gpus in enumerate(size) for _ in range(gpus // 8)]
        columns = (range(len(size)), size, leaf, end_us, who, range(len(who)), [8] * len(who))
        yielding = Yielding(*(np.array(column, dtype=np.int64) for column in columns))
        within, gone = asked((yielding, np.full(len(who), 8), 8, np.array(spare), need))
        assert within
        return gone

    assert one([8, 8], [1, 2], [0, 0], spare=[8], need=1) == {0}
    assert one([8, 8], [2, 1], [0, 0], spare=[8], need=1) == {1}
    # 7 GPUs have to come back, for which 8 will do as well as 48; the other budget's cost three slots.
    assert len(one([48, 8, 8, 8, 8, 8], [9, 1, 1, 1, 1, 1], [0, 0, 1, 1, 1, 1], spare=[49, 8], need=5) & {0, 1}) == 1
