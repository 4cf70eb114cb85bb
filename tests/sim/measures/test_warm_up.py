"""Measures begin after the warm-up: the same history, measured from an hour on."""

from dataclasses import replace

import pytest

from cpalloc.problem.problem import Mode
from cpalloc.sim.history import RunEnd
from cpalloc.sim.measures import summary
from sim.measures.histories import HOUR, Sample, history, job, run


def warm(warm_up_s: int):
    # x: 8 GPUs in the first hour, then b (8 GPUs, until 3 h); s waits for idle GPUs and is a debug job by size only
    h = history(
        jobs=[job("a", gpus=8), job("b", gpus=8), job("s", "y", 2 * HOUR, borrowed=True, min_runtime_s=0)],
        runs=[
            run("a", 0, HOUR, {"n0": 8}, end=RunEnd.PREEMPTED, saved_s=0),
            run("b", HOUR, 3 * HOUR, {"n0": 8}),
            run("s", 3 * HOUR, 4 * HOUR, {"n1": 1}, mode=Mode.BORROWED),
        ],
        samples=[Sample(0, stranded=9.0, charged=(0, 0), owed=(1, 1)), Sample(2 * HOUR, charged=(0, 0), owed=(1, 1))],
        end_s=4 * HOUR,
    )
    return summary(replace(h, warm_up_s=warm_up_s))


def test_capacity_and_delivery_count_from_its_end():
    # 16 GPUs x 3 h = 48 GPU-h; held: b 16, s 1. x is owed 8 GPUs an hour while b is there or a waits: 24, and gets 16
    s = warm(HOUR)
    assert s.capacity.in_service_gpu_hours == 48
    assert s.capacity.occupancy == pytest.approx(17 / 48)
    assert (s.delivery.owed_gpu_hours, s.delivery.delivered_gpu_hours) == (24, 16)


def test_waits_count_jobs_submitted_after_it_and_losses_runs_that_ended_after_it():
    assert warm(0).waits.all.first.count == 3
    s = warm(HOUR)
    assert (s.waits.all.first.count, s.waits.borrowed.first.count, s.waits.debug.first.count) == (1, 1, 0)
    assert (warm(0).progress.lost_gpu_hours, s.progress.lost_gpu_hours) == (8, 0)
    assert (warm(0).interruptions.preemptions, s.interruptions.preemptions) == (1, 0)


def test_samples_count_from_its_end():
    assert warm(0).fragmentation.stranded_gpus.mean == 4.5
    assert warm(HOUR).fragmentation.stranded_gpus.mean == 0


def test_a_warm_up_beyond_the_end_leaves_nothing():
    s = warm(9 * HOUR)
    assert s.capacity.in_service_gpu_hours == 0
    assert s.capacity.occupancy is None
