"""Random draws of a lab: one stream per aspect, so that turning one knob leaves the rest alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar
from zlib import crc32

import numpy as np
import numpy.typing as npt

from cpalloc.sim.lab.config import Spread

T = TypeVar("T")
IntArray = npt.NDArray[np.int64]


def stream(seed: int, *names: str) -> np.random.Generator:
    """The random stream of what ``names`` says, under ``seed``."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, *(crc32(n.encode()) for n in names)])))


def draw_spread(rng: np.random.Generator, spread: Spread, count: int) -> IntArray:
    """Log-normal durations in whole seconds, held between the spread's ends."""
    drawn = spread.median * np.exp(spread.sigma * rng.standard_normal(count))
    seconds: IntArray = np.clip(np.rint(drawn), spread.least, spread.most).astype(np.int64)
    return seconds


def draw_from(rng: np.random.Generator, weights: Mapping[T, float], count: int) -> list[T]:
    """Independent draws of keys by weight."""
    keys = list(weights)
    p = np.array([weights[k] for k in keys], dtype=np.float64)
    return [keys[i] for i in rng.choice(len(keys), size=count, p=p / p.sum())]
