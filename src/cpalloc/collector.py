"""Python's cyclic garbage collector, and when it is in the way."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Make many objects at once without the collector looking through them again and again; also a decorator.

    Reading, compiling and decoding a large round make hundreds of thousands of objects that live on and are in no
    cycle. They are old for the collector at once, which otherwise looks through all of them as soon as it is on again.
    Whoever finds the collector off leaves it so, and whoever has frozen objects keeps them frozen.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            if not gc.get_freeze_count():
                gc.freeze()  # all objects leave their generations, without being looked at,
                gc.unfreeze()  # and come back to the oldest
            gc.enable()


@contextmanager
def collector_sparing_the_old() -> Iterator[None]:
    """Keep what there is out of the collector's sight for a while; also a decorator.

    A round's objects are many and all in use while it is solved: 0.3 to 0.5 s to look through at 10,000 nodes, for
    nothing. Whoever has frozen objects keeps them frozen.
    """
    ours = not gc.get_freeze_count()
    if ours:
        gc.freeze()
    try:
        yield
    finally:
        if ours:
            gc.unfreeze()
