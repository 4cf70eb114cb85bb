"""HiGHS on the same model: a MIP solver proves what has little to branch on and much to bound (docs/tried.md)."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from threading import Event

import highspy
import numpy as np
from ortools.sat.python import cp_model

from cpalloc.solver.mip import Ints, Mip, NotLinear, mip_of
from cpalloc.solver.outcome import Run, Status

log = logging.getLogger(__name__)

NOISE = 1e-4
"""How far above the next integer a bound may lie by rounding alone."""

HEAD_START_S = 0.15
"""Seconds that the others get first: most models are solved by then, and HiGHS is slow to stop once it has begun."""

ROW_S = 5e-5
"""Seconds a row takes to be stated and read; what cannot be done by the limit is not begun."""

RELATIVE_NOISE = 1e-9
"""The same, relative to the bound."""


class Highs:
    """One single-threaded solve by branch and cut, begun once others had a head start.

    ``most``: what the optimum is known not to exceed, if anything is.
    """

    def __init__(
        self, model: cp_model.CpModel, limit_s: float, head_start_s: float = HEAD_START_S, *, most: int | None = None
    ) -> None:
        self._model, self._limit_s, self._head_start_s, self._most = model, limit_s, head_start_s, most
        self._stopped = Event()
        self._highs: highspy.Highs | None = None
        self._has_rows = False

    def stop(self) -> None:
        """Tell it to stop, whether it has begun or not."""
        self._stopped.set()
        if self._highs is not None:
            self._highs.cancelSolve()

    def may_be_left(self) -> bool:
        """Once it has rows of its own: it may take a second to stop."""
        return self._has_rows

    def solve(self) -> Run:
        """Solve until the optimum is proved, the limit is reached, or somebody says stop.

        A solution is believed only if it satisfies the model in exact arithmetic. Bounds are floating-point ones,
        taken down to the next integer below what rounding could have added.
        """
        began = time.perf_counter()
        if ROW_S * len(self._model.proto.constraints) > self._limit_s:
            return Run(Status.UNKNOWN, source="highs")
        if self._stopped.wait(min(self._head_start_s, self._limit_s)):
            return Run(Status.UNKNOWN, source="highs")
        try:
            mip = mip_of(self._model)
        except (NotLinear, OSError):
            return Run(Status.UNKNOWN, source="highs")
        self._has_rows = True
        if self._most is not None:
            mip = mip.at_most(self._most)
        highs = self._highs = highspy.Highs()
        left_s = self._limit_s - (time.perf_counter() - began)
        if self._stopped.is_set() or left_s <= 0:
            return Run(Status.UNKNOWN, source="highs", seconds=time.perf_counter() - began)
        highs.HandleUserInterrupt = True
        _set_options(highs, left_s)
        if highs.passModel(_lp(mip)) == highspy.HighsStatus.kError or highs.run() == highspy.HighsStatus.kError:
            log.error("HiGHS refuses a model of %d rows; it is solved without it", len(mip.least))
            return Run(Status.UNKNOWN, source="highs", seconds=time.perf_counter() - began)
        return _outcome(highs, mip, time.perf_counter() - began)


def relaxed(model: cp_model.CpModel, limit_s: float) -> tuple[int, Sequence[float]] | None:
    """A lower bound, and a point that is worth it: the optimum with fractions allowed.

    None where the limit, in seconds, is reached first, or no rows state the model. Not to be stopped but by its limit.
    """
    began = time.perf_counter()
    try:
        mip = mip_of(model)
    except (NotLinear, OSError):
        return None
    if not len(mip.low):
        worth = mip.worth(np.zeros(0, dtype=np.int64))
        return None if worth is None else (worth, [])
    lp, highs = _lp(mip), highspy.Highs()
    lp.integrality_ = []
    _set_options(highs, max(0.0, limit_s - (time.perf_counter() - began)))
    if highs.passModel(lp) == highspy.HighsStatus.kError or highs.run() == highspy.HighsStatus.kError:
        return None
    if highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    bound = _floor(highs.getInfo().objective_function_value)
    return None if bound is None else (bound, list(highs.getSolution().col_value)[: mip.own])


def _set_options(highs: highspy.Highs, limit_s: float) -> None:
    """Silent, one thread, and no gap: objectives are integers, so a bound within 0.5 proves the optimum."""
    options = {"output_flag": False, "threads": 1, "parallel": "off", "time_limit": limit_s}
    for option, value in (options | {"mip_rel_gap": 0.0, "mip_abs_gap": 0.5}).items():
        highs.setOptionValue(option, value)


def _lp(mip: Mip) -> highspy.HighsLp:
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(mip.low), len(mip.least)
    lp.col_cost_, lp.offset_ = mip.cost.astype(np.float64), float(mip.offset)
    lp.col_lower_, lp.col_upper_ = mip.low.astype(np.float64), mip.high.astype(np.float64)
    lp.row_lower_, lp.row_upper_ = mip.least, mip.most
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = mip.start.astype(np.int32)
    lp.a_matrix_.index_ = mip.column.astype(np.int32)
    lp.a_matrix_.value_ = mip.factor.astype(np.float64)
    lp.integrality_ = [highspy.HighsVarType.kInteger] * len(mip.low)
    return lp


def _outcome(highs: highspy.Highs, mip: Mip, seconds: float) -> Run:
    answer, info = highs.getModelStatus(), highs.getInfo()
    if answer == highspy.HighsModelStatus.kInfeasible:
        return Run(Status.INFEASIBLE, source="highs", seconds=seconds)
    if answer == highspy.HighsModelStatus.kModelEmpty:
        worth = mip.worth(np.zeros(0, dtype=np.int64))  # no variable at all
        status = Status.INFEASIBLE if worth is None else Status.OPTIMAL
        return Run(status, None if worth is None else [], worth, worth, "highs", seconds)
    bound = _floor(info.mip_dual_bound)
    x, worth = _solution(highs, mip)
    if x is None or worth is None:
        return Run(Status.UNKNOWN, bound=bound, source="highs", seconds=seconds)
    if bound is not None and worth <= bound:
        return Run(Status.OPTIMAL, x[: mip.own].tolist(), worth, worth, "highs", seconds)
    return Run(Status.FEASIBLE, x[: mip.own].tolist(), worth, bound, "highs", seconds)


def _solution(highs: highspy.Highs, mip: Mip) -> tuple[Ints | None, int | None]:
    solution = highs.getSolution()
    if not solution.value_valid:
        return None, None
    x: Ints = np.rint(np.array(solution.col_value)).astype(np.int64)
    return x, mip.worth(x)


def _floor(bound: float) -> int | None:
    """The least integer that a bound proves, rounding allowed for."""
    if not math.isfinite(bound) or abs(bound) >= 2**53:
        return None
    return math.ceil(bound - NOISE - RELATIVE_NOISE * abs(bound))
