"""GPUs of every budget after a decision."""

from __future__ import annotations

import numpy as np

from cpalloc.problem.problem import Decision, IntArray, Mode, Problem


def granted(problem: Problem, decision: Decision) -> IntArray:
    """Allocated GPUs kept, started or promoted; one entry per leaf."""
    return _of_mode(problem, decision, Mode.ALLOCATED)


def borrowed(problem: Problem, decision: Decision) -> IntArray:
    """Borrowed GPUs kept (and not promoted) or started; one entry per leaf."""
    return _of_mode(problem, decision, Mode.BORROWED)


def _of_mode(problem: Problem, decision: Decision, mode: Mode) -> IntArray:
    jobs = problem.jobs
    runs = (decision.mode == mode) & (jobs.leaf >= 0)
    leaves = len(problem.budgets.leaf_vertex)
    # Exact: sums are far below 2 ** 53.
    return np.bincount(jobs.leaf[runs], weights=jobs.size[runs], minlength=leaves).astype(np.int64)
