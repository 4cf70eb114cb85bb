"""Integrals of step functions: how many GPU-seconds were held, owed or in service between instants."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

from cpalloc.sim.history import FloatArray, IntArray

Number = TypeVar("Number", np.int64, np.float64)

HOUR_S = 3600


def bin_edges(start_s: int, end_s: int, step_s: int = HOUR_S) -> IntArray:
    """Edges of consecutive bins of ``step_s`` over ``[start_s, end_s)``; the last bin may be shorter.

    Returns
    -------
    IntArray, shape (H + 1,)
        At least ``[start_s]``, which is no bin at all.
    """
    whole = np.arange(start_s, end_s, step_s, dtype=np.int64)
    return np.append(whole, max(start_s, end_s))


def integral(at_s: IntArray, change: npt.NDArray[Number], until_s: IntArray) -> npt.NDArray[Number]:
    """Integral of a step function from the beginning of time to each instant.

    The function is 0 at first and changes by ``change[i]`` at ``at_s[i]``, so that the integral to t is
    ``Σ_{at_i <= t} change_i · (t − at_i)``.

    Parameters
    ----------
    at_s, change
        The steps, shape (n,), in any order.
    until_s
        Instants, shape (m,).

    Returns
    -------
    array, shape (m,)
        In the unit of ``change`` times seconds.
    """
    order = np.argsort(at_s, kind="stable")
    at, by = at_s[order], change[order]
    zero = np.zeros(1, dtype=by.dtype)
    passed = np.searchsorted(at, until_s, side="right")
    level: npt.NDArray[Number] = np.concatenate((zero, np.cumsum(by)))[passed]
    moment: npt.NDArray[Number] = np.concatenate((zero, np.cumsum(by * at)))[passed]
    return level * until_s - moment


def held_per_bin(start_s: IntArray, end_s: IntArray, gpus: IntArray, edges_s: IntArray) -> IntArray:
    """GPU-seconds that stays of ``gpus`` from ``start_s`` to ``end_s`` (shape (n,) each) put into each bin.

    Returns
    -------
    IntArray, shape (H,)
    """
    at, change = np.concatenate((start_s, end_s)), np.concatenate((gpus, -gpus))
    return np.diff(integral(at, change, edges_s))


def held_per_group(
    group: IntArray, groups: int, start_s: IntArray, end_s: IntArray, gpus: IntArray, edges_s: IntArray
) -> IntArray:
    """:func:`held_per_bin` of each group apart; ``group`` gives every stay a number in 0 … ``groups`` - 1.

    Returns
    -------
    IntArray, shape (groups, H)
    """
    result = np.zeros((groups, len(edges_s) - 1), dtype=np.int64)
    order = np.argsort(group, kind="stable")
    cuts = np.searchsorted(group[order], np.arange(1, groups))
    for g, rows in enumerate(np.split(order, cuts)):
        result[g] = held_per_bin(start_s[rows], end_s[rows], gpus[rows], edges_s)
    return result


def step_at(at_s: IntArray, when_s: IntArray) -> IntArray:
    """Index of the step in force at each instant: the last with ``at_s <= when``, the first one before all."""
    return np.maximum(np.searchsorted(at_s, when_s, side="right") - 1, 0)


def level_integral(at_s: IntArray, level: FloatArray, edges_s: IntArray) -> FloatArray:
    """Integral per bin of a function that has the value ``level[i]`` from ``at_s[i]`` on (``at_s`` ascending).

    Returns
    -------
    FloatArray, shape (H,)
    """
    return np.diff(integral(at_s, np.diff(level, prepend=0.0), edges_s))
