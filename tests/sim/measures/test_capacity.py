import numpy as np
import pytest

from cpalloc.problem.problem import Mode
from cpalloc.schema.types import NodeState
from cpalloc.sim.history import RunEnd
from cpalloc.sim.measures import view
from cpalloc.sim.measures.capacity import capacity, capacity_bins
from cpalloc.sim.measures.stays import absences
from cpalloc.sim.measures.steps import bin_edges
from cpalloc.sim.workload import NodeEvent
from sim.measures.histories import HOUR, Lab, history, job, run


def test_held_and_idle_of_two_nodes():
    # 16 GPUs for 4 h = 64 GPU-h. a: 8 GPUs x 2 h allocated = 16; b: 4 x 3 h borrowed = 12; idle 36
    h = history(
        jobs=[job("a", gpus=8), job("b", gpus=4, borrowed=True)],
        runs=[run("a", 0, 2 * HOUR, {"n0": 8}), run("b", HOUR, 4 * HOUR, {"n1": 4}, mode=Mode.BORROWED)],
        end_s=4 * HOUR,
    )
    c = capacity(view(h))
    assert (c.allocated_gpu_hours, c.borrowed_gpu_hours, c.idle_gpu_hours) == (16, 12, 36)
    assert c.availability == 1
    assert c.occupancy == pytest.approx(28 / 64)
    assert c.borrowed_share == pytest.approx(12 / 28)


def test_work_let_finish_on_a_draining_node_is_neither_in_service_nor_held():
    # n0 drains at 1 h, its job stays until 3 h; 8 + 8 GPUs, then 8 in service: 16 + 3·8 = 40 of 64 GPU-h
    h = history(
        jobs=[job("a", gpus=16)],
        runs=[run("a", 0, 3 * HOUR, {"n0": 8, "n1": 8})],
        events=[NodeEvent(HOUR, "n0", NodeState.DRAINING)],
        end_s=4 * HOUR,
    )
    c = capacity(view(h))
    assert c.in_service_gpu_hours == 40
    assert c.availability == pytest.approx(40 / 64)
    assert c.off_service_gpu_hours == 16  # 8 GPUs for 2 h
    assert c.allocated_gpu_hours == 32  # 16 · 1 h + 8 · 2 h
    assert c.occupancy == pytest.approx(32 / 40)


def test_a_node_that_comes_back_counts_again():
    # n0 down in [1 h, 2 h): the job lost at 1 h; back at 2 h
    h = history(
        jobs=[job("a", gpus=8)],
        runs=[run("a", 0, HOUR, {"n0": 8}, end=RunEnd.LOST)],
        events=[NodeEvent(HOUR, "n0", NodeState.DOWN), NodeEvent(2 * HOUR, "n0", NodeState.READY)],
        end_s=3 * HOUR,
    )
    v = view(h)
    assert [(a.node, a.start_s, a.end_s) for a in absences(h, v.nodes)] == [(0, HOUR, 2 * HOUR)]
    bins = capacity_bins(v, bin_edges(0, 3 * HOUR))
    assert (bins.in_service // HOUR).tolist() == [16, 8, 16]
    assert (bins.idle // HOUR).tolist() == [8, 8, 16]
    assert bins.off_service.sum() == 0


def test_open_runs_last_until_the_end():
    h = history(jobs=[job("a", gpus=8)], runs=[run("a", HOUR, 99, {"n0": 8}, end=RunEnd.OPEN)], end_s=3 * HOUR)
    assert capacity(view(h)).allocated_gpu_hours == 16


def test_conservation_in_every_bin():
    rng = np.random.default_rng(3)
    jobs, runs = [], []
    for gpu in range(8):  # one single-GPU job after the other on each GPU of n0, in both modes
        t = int(rng.integers(0, HOUR))
        while t < 20 * HOUR:
            end = t + int(rng.integers(60, 3 * HOUR))
            name = f"j{len(jobs)}"
            jobs.append(job(name))
            mode = Mode.BORROWED if rng.random() < 0.4 else Mode.ALLOCATED
            runs.append(run(name, t, end, {"n0": [gpu]}, mode=mode))
            t = end + int(rng.integers(0, HOUR))
    runs.sort(key=lambda r: r.start_s)
    events = [NodeEvent(5 * HOUR + 17, "n0", NodeState.DRAINING), NodeEvent(9 * HOUR, "n0", NodeState.READY)]
    v = view(history(jobs=jobs, runs=runs, end_s=20 * HOUR, events=events, lab=Lab(nodes=3)))
    bins = capacity_bins(v, bin_edges(0, 20 * HOUR, 1234))
    assert np.array_equal(bins.allocated + bins.borrowed + bins.idle, bins.in_service)
    assert (bins.idle >= 0).all()
    held = (v.runs.size * (np.minimum(v.runs.end_s, 20 * HOUR) - v.runs.start_s)).sum()
    assert bins.allocated.sum() + bins.borrowed.sum() + bins.off_service.sum() == held
    assert bins.off_service.sum() > 0


def test_nothing_in_service_has_no_occupancy():
    h = history(jobs=[], end_s=HOUR, events=[NodeEvent(0, n, NodeState.DOWN) for n in ("n0", "n1")])
    c = capacity(view(h))
    assert (c.availability, c.occupancy, c.borrowed_share) == (0, None, None)
