"""Writes the history while the simulation runs: growing columns of integers, no object per event."""

from __future__ import annotations

from array import array
from fractions import Fraction

import numpy as np

from cpalloc.problem.problem import Mode, NodeState
from cpalloc.sim.history import (
    FloatArray,
    History,
    IntArray,
    JobEnd,
    Places,
    RoundPath,
    Rounds,
    RunEnd,
    Runs,
    Samples,
)
from cpalloc.sim.sampling import FragmentationSample
from cpalloc.sim.state import State

_RUNS = (
    "job",
    "start_s",
    "end_s",
    "mode",
    "end",
    "work_before_s",
    "work_saved_s",
    "restart_s",
    "protected_until_s",
    "first_place",
)
_PLACES = ("node", "gpus", "devices")
_ROUNDS = ("at_s", "pending", "started", "preempted", "path", "proved", "unproved_tiers")
_SAMPLES = ("at_s", "in_service", "allocated", "borrowed", "pending", "charged", "owed", "largest_gang")


class _Columns:
    """Columns of 64-bit integers by name."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.of = {name: array("q") for name in names}

    def add(self, *row: int) -> None:
        """Append a row, in the order of the names."""
        for column, value in zip(self.of.values(), row, strict=True):
            column.append(value)

    def arrays(self) -> dict[str, IntArray]:
        return {name: np.array(column, dtype=np.int64) for name, column in self.of.items()}


class Recorder:
    """Collects what :class:`History` is made of."""

    def __init__(self, state: State) -> None:
        self._row = [-1] * len(state.jobs)
        self._runs, self._places, self._rounds = _Columns(_RUNS), _Columns(_PLACES), _Columns(_ROUNDS)
        self._samples = _Columns(_SAMPLES)
        self._seconds, self._stranded, self._time_to_place = array("d"), array("d"), array("d")
        self._capacity_s, self._capacity = [state.now_s], [state.in_service_gpus]
        self._share_s: list[int] = [state.now_s]
        self._share: list[list[Fraction]] = [list(state.ledger.shares)]
        self.job_end = array("q", [JobEnd.NOT_SUBMITTED] * len(state.jobs))
        self.finished_s = array("q", [-1] * len(state.jobs))

    def open_run(self, state: State, job: int, work_before_s: int, restart_s: int) -> None:
        """Begin a row for a job that has just been started or promoted; ``restart_s`` are still to come."""
        places = self._places.of["node"]
        self._row[job] = len(self._runs.of["job"])
        self._runs.add(
            job,
            state.now_s,
            -1,
            state.mode[job],
            RunEnd.OPEN,
            work_before_s,
            work_before_s,
            restart_s,
            state.protected_until_s[job],
            len(places),
        )
        for node, devices in state.places[job]:
            self._places.add(node, devices.bit_count(), _signed(devices))

    def close_run(self, job: int, end_s: int, end: RunEnd, work_saved_s: int) -> None:
        """Finish the row of a job's present run."""
        row, runs = self._row[job], self._runs.of
        runs["end_s"][row] = end_s
        runs["end"][row] = end
        runs["work_saved_s"][row] = work_saved_s
        runs["restart_s"][row] = min(runs["restart_s"][row], end_s - runs["start_s"][row])

    def add_round(
        self, at_s: int, pending: int, started: int, preempted: int, path: RoundPath, unproved: int, seconds: float
    ) -> None:
        """Add the row of a round."""
        self._rounds.add(at_s, pending, started, preempted, path, unproved == 0, unproved)
        self._seconds.append(seconds)

    def num_rounds(self) -> int:
        """Rounds so far."""
        return len(self._seconds)

    def capacity_changed(self, state: State) -> None:
        """Note the GPUs in service from now on."""
        if self._capacity_s[-1] == state.now_s:
            self._capacity[-1] = state.in_service_gpus
        elif self._capacity[-1] != state.in_service_gpus:
            self._capacity_s.append(state.now_s)
            self._capacity.append(state.in_service_gpus)

    def shares_changed(self, state: State) -> None:
        """Note the shares from now on."""
        if self._share_s[-1] == state.now_s:
            self._share_s.pop()
            self._share.pop()
        self._share_s.append(state.now_s)
        self._share.append(list(state.ledger.shares))

    def add_sample(self, state: State, at_s: int, fragmentation: FragmentationSample) -> None:
        """Add the row of a sample; GPUs held on nodes out of service are left out, as occupancy leaves them out."""
        samples, (allocated, borrowed) = self._samples.of, _held_in_service(state)
        samples["at_s"].append(at_s)
        samples["in_service"].append(state.in_service_gpus)
        samples["allocated"].append(allocated)
        samples["borrowed"].append(borrowed)
        samples["pending"].append(state.pending_gpus)
        samples["charged"].extend(state.ledger.all_charged(at_s))
        samples["owed"].extend(state.ledger.all_owed(at_s))
        samples["largest_gang"].append(fragmentation.largest_gang)
        self._stranded.append(fragmentation.stranded)
        self._time_to_place.append(fragmentation.time_to_place_s)

    def history(self, state: State, policy: str, end_s: int, *, interrupted: bool, notes: tuple[str, ...]) -> History:
        """Put the columns together."""
        leaves = state.ledger.leaf_names
        runs, places = self._runs.arrays(), self._places.arrays()
        runs["first_place"] = np.append(runs["first_place"], len(places["node"]))
        samples = self._samples.arrays()
        for name in ("charged", "owed"):
            samples[name] = samples[name].reshape(len(samples["at_s"]), len(leaves))
        return History(
            workload=state.workload,
            policy=policy,
            seed=state.config.seed,
            start_s=state.config.start_s,
            end_s=end_s,
            window_s=state.config.site.window,
            installed_gpus=sum(state.nodes.gpus),
            leaf_names=leaves,
            node_names=state.nodes.names,
            capacity_s=np.array(self._capacity_s, dtype=np.int64),
            capacity_gpus=np.array(self._capacity, dtype=np.int64),
            share_s=np.array(self._share_s, dtype=np.int64),
            share=_floats(self._share, len(leaves)),
            runs=Runs(**runs),
            places=Places(**places),
            rounds=Rounds(**self._rounds.arrays(), seconds=np.array(self._seconds, dtype=np.float64)),
            samples=Samples(
                **samples,
                stranded=np.array(self._stranded, dtype=np.float64),
                time_to_place_s=np.array(self._time_to_place, dtype=np.float64),
            ),
            job_end=np.array(self.job_end, dtype=np.int64),
            finished_s=np.array(self.finished_s, dtype=np.int64),
            interrupted=interrupted,
            warm_up_s=state.config.warm_up_s,
            notes=notes,
        )


def _signed(devices: int) -> int:
    """A bitmask as the 64-bit integer with the same bits, so that a node may have 64 GPUs."""
    return devices - (1 << 64) if devices >> 63 else devices


def _floats(rows: list[list[Fraction]], width: int) -> FloatArray:
    return np.array([[float(x) for x in row] for row in rows], dtype=np.float64).reshape(len(rows), width)


def _held_in_service(state: State) -> tuple[int, int]:
    """GPUs held allocated and borrowed, on ready nodes."""
    allocated, borrowed = state.allocated_gpus, state.borrowed_gpus
    for node, node_state in enumerate(state.node_state):
        if node_state is NodeState.READY:
            continue
        for job in state.node_jobs[node]:
            held = sum(devices.bit_count() for n, devices in state.places[job] if n == node)
            if state.mode[job] is Mode.ALLOCATED:
                allocated -= held
            else:
                borrowed -= held
    return allocated, borrowed
