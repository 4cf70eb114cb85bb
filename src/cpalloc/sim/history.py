"""What a simulation leaves behind: columns of numbers, one row per run of a job, enough to measure and to draw all.

Memory is what makes long traces hard, so nothing here is an object per event. Times are seconds since the workload's
epoch; ``-1`` stands for none.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from cpalloc.sim.workload import Workload

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


class RunEnd(IntEnum):
    """Why a run ended."""

    OPEN = 0
    """Still running when the simulation stopped."""
    FINISHED = 1
    PREEMPTED = 2
    """By the policy, for another job."""
    DRAINED = 3
    """Its node drained and its protection was over."""
    LOST = 4
    """Its node went down."""
    TIMED_OUT = 5
    PROMOTED = 6
    """From borrowed to allocated in place; the next row of the job goes on without a break."""


class JobEnd(IntEnum):
    """How a job stands when the simulation stops."""

    WAITING = 0
    RUNNING = 1
    DONE = 2
    TIMED_OUT = 3
    KILLED = 4
    """Preempted, drained or lost, and not resumable."""
    NOT_SUBMITTED = 5
    NEVER_FITS = 6
    """Refused as inadmissible: no node could ever hold it."""


class RoundPath(IntEnum):
    """What a round cost."""

    NOTHING = 0
    """Nothing could change; no policy was asked."""
    QUICK = 1
    """Settled without a solver, provably as the solver would."""
    SOLVED = 2
    """The policy was asked in full."""


@dataclass(frozen=True, slots=True)
class Runs:
    """One row per stretch a job held GPUs in one mode; length R, in order of ``start_s``.

    ``job`` indexes ``Workload.jobs``; ``mode`` is ``problem.Mode`` (ALLOCATED or BORROWED); ``end`` a :class:`RunEnd`.
    ``work_before_s`` / ``work_saved_s``: progress the job had when it started, and what survives the end of the run
    (all it reached when it finished or is open). ``restart_s``: seconds at the start of the run spent on restarting.
    ``protected_until_s``: end of the protection, -1 for borrowed runs. ``first_place[r] : first_place[r + 1]`` are the
    run's rows in :class:`Places` (length R + 1).
    """

    job: IntArray
    start_s: IntArray
    end_s: IntArray
    mode: IntArray
    end: IntArray
    work_before_s: IntArray
    work_saved_s: IntArray
    restart_s: IntArray
    protected_until_s: IntArray
    first_place: IntArray


@dataclass(frozen=True, slots=True)
class Places:
    """Where runs lie: one row per (run, node). ``devices`` is a bitmask of GPU indices on ``node`` (an index)."""

    node: IntArray
    gpus: IntArray
    devices: IntArray


@dataclass(frozen=True, slots=True)
class Rounds:
    """One row per round. ``path`` is a :class:`RoundPath`; ``proved`` 1 if every tier was proven (or needed no proof).

    ``unproved_tiers`` counts tiers without a proof; ``seconds`` is wall clock, the one column that differs between
    two runs of the same simulation.
    """

    at_s: IntArray
    pending: IntArray
    started: IntArray
    preempted: IntArray
    path: IntArray
    proved: IntArray
    unproved_tiers: IntArray
    seconds: FloatArray


@dataclass(frozen=True, slots=True)
class Samples:
    """The state at fixed intervals (T rows), taken after the round of that instant.

    GPUs: ``in_service``, ``allocated``, ``borrowed``, ``pending``. Per leaf (T x L): ``charged``, ``owed`` in
    GPU-seconds over the window. Fragmentation (policy section 8), over the workload's own mix of shapes: ``stranded``
    GPUs, ``time_to_place_s`` (expected), ``largest_gang`` GPUs (whole nodes, without preemption).
    """

    at_s: IntArray
    in_service: IntArray
    allocated: IntArray
    borrowed: IntArray
    pending: IntArray
    charged: IntArray
    owed: IntArray
    stranded: FloatArray
    time_to_place_s: FloatArray
    largest_gang: IntArray


@dataclass(frozen=True, slots=True)
class History:
    """A finished (or interrupted) simulation of ``workload`` under ``policy`` over ``[start_s, end_s)``.

    ``leaf_names``: leaves in the order of the columns of ``Samples``, over all budget trees of the run.
    ``node_names``: nodes in the order that ``Places.node`` counts in, which is by name.
    ``capacity_s`` / ``capacity_gpus``: steps of the in-service GPUs; ``installed_gpus`` all of them.
    ``share_s`` (K) / ``share`` (K x L): steps of the leaves' shares.
    ``job_end`` (length J) is a :class:`JobEnd`; ``finished_s`` when it left for good, -1. ``warm_up_s``: so long after
    the start the measures begin; until then the cluster fills up.
    """

    workload: Workload
    policy: str
    seed: int
    start_s: int
    end_s: int
    window_s: int
    installed_gpus: int
    leaf_names: tuple[str, ...]
    capacity_s: IntArray
    capacity_gpus: IntArray
    share_s: IntArray
    share: FloatArray
    runs: Runs
    places: Places
    rounds: Rounds
    samples: Samples
    job_end: IntArray
    finished_s: IntArray
    node_names: tuple[str, ...] = ()
    interrupted: bool = False
    warm_up_s: int = 0
    notes: tuple[str, ...] = ()
