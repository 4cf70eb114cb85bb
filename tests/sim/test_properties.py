"""What holds of every simulation, whatever the policy: nothing is counted twice, nothing is lost on the way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from cpalloc.problem.problem import Mode
from cpalloc.schema import Policy as SitePolicy
from cpalloc.schema.types import NodeState
from cpalloc.sim.config import SimConfig
from cpalloc.sim.history import History, IntArray, JobEnd, RunEnd
from cpalloc.sim.policies.allocator import cpalloc_policy, fair_share
from cpalloc.sim.policies.base import Policy
from cpalloc.sim.policies.best_fit import BestFit
from cpalloc.sim.policies.fgd import Fgd
from cpalloc.sim.policies.fifo import fifo
from cpalloc.sim.policies.partition import partition
from cpalloc.sim.policies.priority import Priority
from cpalloc.sim.policies.sjf import sjf
from cpalloc.sim.policies.srtf import Srtf
from cpalloc.sim.simulate import simulate
from sim.chaos import Chaos, random_workload
from sim.worlds import same

POLICIES: dict[str, Callable[[], Policy]] = {
    "fifo": fifo,
    "fifo-parts": lambda: fifo(partitioned=True),
    "sjf-fgd": lambda: sjf(Fgd()),
    "srtf": lambda: Srtf(BestFit()),
    "srtf-parts": lambda: Srtf(partitioned=True),
    "partition": partition,
    "priority": Priority,
    "fair-share": fair_share,
    "cpalloc": lambda: cpalloc_policy(deterministic_limit=0.05),
    "chaos": lambda: Chaos(1),
    "chaos-too": lambda: Chaos(2),
}
EVER = 10**7
"""Seconds: a window that nothing slides out of."""

CASES = [(name, seed) for name in POLICIES for seed in range(4 if name == "cpalloc" else 8)]


def simulated(name: str, seed: int) -> History:
    config = SimConfig(
        round_interval_s=(0, 60)[seed % 2],
        heartbeat_s=(0, 90)[seed // 2 % 2],
        sample_interval_s=700,
        until_s=None if seed % 3 else 2_500,
        site=SitePolicy(window=EVER),
    )
    return simulate(random_workload(seed), POLICIES[name](), config=config)


@pytest.mark.parametrize(("name", "seed"), CASES)
def test_laws(name: str, seed: int) -> None:
    h = simulated(name, seed)
    assert len(h.runs.job) > 5
    sizes_and_order(h)
    no_gpu_twice_and_none_out_of_service(h)
    capacity_is_conserved(h)
    work_is_conserved(h)
    charges_are_allocated_time(h)
    protection_is_kept(h, protects=POLICIES[name]().traits.protects)
    ends_agree(h)


def size_of(h: History) -> IntArray:
    return np.array([j.size for j in h.workload.jobs], dtype=np.int64)


def sizes_and_order(h: History) -> None:
    """Rows by start, nothing before its submission, whole gangs."""
    runs = h.runs
    submitted = np.array([j.submitted_s for j in h.workload.jobs])
    assert (np.diff(runs.start_s) >= 0).all()
    assert (runs.start_s >= submitted[runs.job]).all()
    assert (runs.end_s >= runs.start_s).all()
    held = np.add.reduceat(h.places.gpus, runs.first_place[:-1])
    assert (held == size_of(h)[runs.job]).all()
    assert (h.places.gpus == [int(d).bit_count() for d in h.places.devices]).all()


def no_gpu_twice_and_none_out_of_service(h: History) -> None:
    """Replay by hand: at every instant each GPU has one holder, and what starts does so on ready nodes."""
    states = {n.name: NodeState.READY for n in h.workload.cluster.nodes}
    steps: list[tuple[int, int, int, str]] = []
    for row in range(len(h.runs.job)):
        if h.runs.end_s[row] > h.runs.start_s[row]:
            steps += [(int(h.runs.start_s[row]), 2, row, "start"), (int(h.runs.end_s[row]), 0, row, "end")]
    steps += [(e.at_s, 1, i, "node") for i, e in enumerate(h.workload.node_events)]
    held = dict.fromkeys(h.node_names, 0)
    for _, _, row, what in sorted(steps, key=lambda s: s[:2]):
        if what == "node":
            states[h.workload.node_events[row].node] = h.workload.node_events[row].state
            continue
        for place in range(int(h.runs.first_place[row]), int(h.runs.first_place[row + 1])):
            node, devices = h.node_names[int(h.places.node[place])], int(h.places.devices[place])
            if what == "end":
                held[node] &= ~devices
            else:
                assert states[node] is NodeState.READY
                assert not held[node] & devices
                held[node] |= devices


def capacity_is_conserved(h: History) -> None:
    """Allocated + borrowed + idle + out of service = installed, as GPU-seconds; each in its own way of counting."""
    ends = np.append(h.capacity_s[1:], h.end_s)
    in_service = int(((ends - h.capacity_s) * h.capacity_gpus).sum())
    gpus, run_of = h.places.gpus, np.repeat(np.arange(len(h.runs.job)), np.diff(h.runs.first_place))
    seconds = (h.runs.end_s - h.runs.start_s)[run_of]
    allocated = int((gpus * seconds)[h.runs.mode[run_of] == Mode.ALLOCATED].sum())
    borrowed = int((gpus * seconds)[h.runs.mode[run_of] == Mode.BORROWED].sum())
    held_outside = idle = 0
    healthy = {n.name: n.gpus - len(n.unhealthy_gpus) for n in h.workload.cluster.nodes}
    for number, name in enumerate(h.node_names):
        for begin, end, ready in stretches(h, name):
            held = 0
            for place in np.flatnonzero(h.places.node == number):
                row = run_of[place]
                overlap = min(end, h.runs.end_s[row]) - max(begin, h.runs.start_s[row])
                held += int(gpus[place]) * max(0, int(overlap))
            if ready:
                idle += healthy[name] * (end - begin) - held
                assert idle >= 0
            else:
                held_outside += held
    assert allocated + borrowed - held_outside + idle == in_service
    assert in_service <= h.installed_gpus * (h.end_s - h.start_s)
    assert (h.samples.allocated + h.samples.borrowed <= h.samples.in_service).all()


def stretches(h: History, node: str) -> list[tuple[int, int, bool]]:
    """(begin, end, ready) of a node over the history."""
    changes = [(h.start_s, True)]
    changes += [(e.at_s, e.state is NodeState.READY) for e in h.workload.node_events if e.node == node]
    changes = [c for c in changes if c[0] < h.end_s]
    ends = [at for at, _ in changes[1:]] + [h.end_s]
    return [(at, end, ready) for (at, ready), end in zip(changes, ends, strict=True)]


def work_is_conserved(h: History) -> None:
    """Rows of a job join up; what is saved in all is the work of what is done; nothing saves more than it ran."""
    runs = h.runs
    gained = runs.work_saved_s - runs.work_before_s
    ran = runs.end_s - runs.start_s - runs.restart_s
    assert (runs.restart_s >= 0).all()
    assert (gained <= ran).all()
    whole = np.isin(runs.end, [RunEnd.FINISHED, RunEnd.OPEN, RunEnd.TIMED_OUT])
    assert (gained == ran)[whole].all()
    for j, job in enumerate(h.workload.jobs):
        rows = np.flatnonzero(runs.job == j)
        if len(rows):
            assert runs.work_before_s[rows[0]] == 0
            assert (runs.work_before_s[rows[1:]] == runs.work_saved_s[rows[:-1]]).all()
            assert (runs.start_s[rows[1:]] >= runs.end_s[rows[:-1]]).all()
        saved = int(gained[rows].sum())
        if h.job_end[j] == JobEnd.DONE:
            assert saved == job.work_s
        else:
            assert 0 <= saved <= job.work_s


def charges_are_allocated_time(h: History) -> None:
    """In a window that nothing slides out of, what is charged is what was allocated."""
    leaf = np.array([h.leaf_names.index(j.budget) for j in h.workload.jobs])
    rows = h.runs.mode == Mode.ALLOCATED
    for k, at in enumerate(h.samples.at_s):
        seconds = np.clip(np.minimum(h.runs.end_s, at) - h.runs.start_s, 0, None)
        charged = np.zeros(len(h.leaf_names), dtype=np.int64)
        np.add.at(charged, leaf[h.runs.job][rows], (size_of(h)[h.runs.job] * seconds)[rows])
        assert charged.tolist() == h.samples.charged[k].tolist()


def protection_is_kept(h: History, *, protects: bool) -> None:
    runs = h.runs
    young = runs.end_s < runs.protected_until_s
    assert not (young & np.isin(runs.end, [RunEnd.PREEMPTED, RunEnd.DRAINED, RunEnd.PROMOTED])).any()
    assert ((runs.protected_until_s >= 0) == (protects & (runs.mode == Mode.ALLOCATED))).all()


def ends_agree(h: History) -> None:
    """How the last run ended is how the job stands."""
    last = {int(j): RunEnd(int(e)) for j, e in zip(h.runs.job, h.runs.end, strict=True)}
    expected = {RunEnd.FINISHED: JobEnd.DONE, RunEnd.TIMED_OUT: JobEnd.TIMED_OUT, RunEnd.OPEN: JobEnd.RUNNING}
    for j, job in enumerate(h.workload.jobs):
        end = JobEnd(int(h.job_end[j]))
        if j in last and last[j] in expected:
            assert end is expected[last[j]]
        elif j in last:
            assert end in (JobEnd.WAITING, JobEnd.KILLED)
            assert (end is JobEnd.KILLED) <= (not job.resumable)
        else:
            assert end in (JobEnd.WAITING, JobEnd.NEVER_FITS, JobEnd.NOT_SUBMITTED)
        left = end in (JobEnd.DONE, JobEnd.TIMED_OUT, JobEnd.KILLED)
        assert (h.finished_s[j] >= 0) == left


@pytest.mark.parametrize("name", POLICIES)
def test_the_same_twice(name: str) -> None:
    assert same(simulated(name, 3), simulated(name, 3))


@pytest.mark.parametrize("name", ["fifo", "sjf-fgd", "srtf", "partition", "priority"])
def test_nobody_waits_who_fits_when_all_has_been_done(name: str) -> None:
    """On a calm cluster everything that fits somewhere is done in the end."""
    calm = replace(random_workload(7), node_events=(), budget_changes=())
    h = simulate(calm, POLICIES[name]())
    waiting = [j for j, end in enumerate(h.job_end) if end == JobEnd.WAITING]
    assert not waiting or name == "partition"
    assert not np.isin(h.job_end, [JobEnd.RUNNING, JobEnd.NOT_SUBMITTED]).any()
