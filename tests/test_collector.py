"""Pausing the garbage collector."""

from __future__ import annotations

import gc

import pytest

from cpalloc.collector import collector_paused, collector_sparing_the_old


@collector_paused()
def fail() -> None:
    """Fail with the collector off."""
    assert not gc.isenabled()
    raise KeyError


def test_it_is_off_inside_and_on_again_after_an_error() -> None:
    with pytest.raises(KeyError):
        fail()
    assert gc.isenabled()


def test_who_finds_it_off_leaves_it_so() -> None:
    with collector_paused():
        with collector_paused():
            pass
        assert not gc.isenabled()


def test_what_was_made_meanwhile_is_old_at_once() -> None:
    with collector_paused():
        made = [[i] for i in range(100)]
        young = {id(x) for x in gc.get_objects(generation=0)}
        assert {id(x) for x in made} <= young
    old = {id(x) for x in gc.get_objects(generation=2)}
    assert {id(x) for x in made} <= old
    assert not gc.get_freeze_count()


def test_what_somebody_has_frozen_stays_so() -> None:
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        with collector_paused():
            made = [[]]
        assert gc.get_freeze_count() == frozen > 0
        assert id(made[0]) not in {id(x) for x in gc.get_objects(generation=2)}
    finally:
        gc.unfreeze()


def test_what_is_old_is_out_of_sight_for_a_while() -> None:
    kept = [[i] for i in range(100)]
    gc.collect()
    with collector_sparing_the_old():
        assert gc.get_freeze_count() > 0
        assert not any(seen is kept for seen in gc.get_objects())
        cycle: list[object] = []
        cycle.append(cycle)
        del cycle
        assert gc.collect() >= 1  # what is made meanwhile is collected
    assert gc.get_freeze_count() == 0
    assert any(seen is kept for seen in gc.get_objects())


def test_what_somebody_else_has_frozen_stays_out_of_sight() -> None:
    gc.freeze()
    try:
        with collector_sparing_the_old():
            pass
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
