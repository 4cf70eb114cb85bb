"""Pausing the garbage collector."""

from __future__ import annotations

import gc

import pytest

from cpalloc.collector import collector_paused


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
