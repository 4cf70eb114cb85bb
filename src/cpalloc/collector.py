"""Python's cyclic garbage collector, and when it is in the way."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Make many objects at once without the collector looking through them again and again; also a decorator.

    Reading, compiling and decoding a large round make hundreds of thousands of objects that live on and are in no
    cycle. Whoever finds the collector off leaves it so.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
