"""Random draws that come out the same on every platform: integers only, one named stream per aspect."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import TypeVar
from zlib import crc32

import numpy as np

T = TypeVar("T")

_MILLION = 10**6


class Dice:
    """A random stream named after what it decides.

    Only integers are drawn and compared: logarithms and powers differ in the last bit between platforms.
    """

    def __init__(self, seed: int, name: str) -> None:
        self._rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, crc32(name.encode())])))

    def between(self, low: int, high: int) -> int:
        """Draw an integer, both ends included; ``low`` where the range is empty."""
        return low if high <= low else int(self._rng.integers(low, high + 1))

    def chance(self, share: float) -> bool:
        """Say yes with probability ``share``, held to a millionth. Draws once whatever the share."""
        return int(self._rng.integers(0, _MILLION)) < round(share * _MILLION)

    def pick(self, items: Sequence[T], weights: Sequence[int] | None = None) -> T:
        """Draw one of the items, by integer weights where given; uniformly when they are all 0."""
        if weights is None or not any(weights):
            return items[int(self._rng.integers(0, len(items)))]
        steps = list(accumulate(weights))
        return items[bisect_right(steps, int(self._rng.integers(0, steps[-1])))]

    def shuffled(self, count: int) -> list[int]:
        """Draw an order of ``range(count)``."""
        order: list[int] = self._rng.permutation(count).tolist()
        return order

    def amount(self, share: float, of: int) -> int:
        """Round ``share * of`` up or down at random, so that small totals get their share on average."""
        millionths = round(share * _MILLION) * of
        return millionths // _MILLION + (int(self._rng.integers(0, _MILLION)) < millionths % _MILLION)
