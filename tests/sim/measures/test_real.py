"""Measures of simulations in which everything happens: what is conserved, and what the simulator counted itself."""

from functools import cache

import numpy as np
import pytest

from cpalloc.sim.config import SimConfig
from cpalloc.sim.history import History
from cpalloc.sim.measures import Summary, View, summary, view
from cpalloc.sim.measures.capacity import capacity_bins
from cpalloc.sim.measures.delivery import delivery_hours
from cpalloc.sim.measures.steps import bin_edges
from cpalloc.sim.simulate import simulate
from sim.chaos import Chaos, random_workload

SEEDS = (*range(8), 17, 20, 46, 47, 74, 77)


@cache
def simulated(seed: int) -> History:
    config = SimConfig(sample_interval_s=97, until_s=None if seed % 3 else 1500, seed=seed)
    return simulate(random_workload(seed), Chaos(seed), config=config)


@cache
def measured(seed: int) -> tuple[View, Summary]:
    v = view(simulated(seed))
    return v, summary(v)


@pytest.mark.parametrize("seed", SEEDS)
def test_capacity_is_conserved_in_every_bin(seed):
    v, _ = measured(seed)
    bins = capacity_bins(v, bin_edges(v.history.start_s, v.history.end_s, 131))
    assert (bins.idle >= 0).all()
    assert np.array_equal(bins.allocated + bins.borrowed + bins.idle, bins.in_service)
    held = (v.runs.size * v.runs.length_s).sum()
    assert (bins.allocated + bins.borrowed + bins.off_service).sum() == held


@pytest.mark.parametrize("seed", SEEDS)
def test_the_simulators_own_samples_agree(seed):
    v, _ = measured(seed)
    s = v.history.samples
    for i in range(len(s.at_s) - 1):
        at = int(s.at_s[i])
        bins = capacity_bins(v, np.array([at, at + 1]))  # everything happens at whole seconds
        assert (bins.in_service[0], bins.allocated[0], bins.borrowed[0]) == (
            s.in_service[i],
            s.allocated[i],
            s.borrowed[i],
        )


@pytest.mark.parametrize("seed", SEEDS)
def test_held_is_useful_lost_or_restart(seed):
    v, s = measured(seed)
    p = s.progress
    assert p.held_gpu_hours == pytest.approx(p.useful_gpu_hours + p.lost_gpu_hours + p.restart_gpu_hours)
    by_cause = (
        p.lost_by_preemption_gpu_hours
        + p.lost_by_drain_gpu_hours
        + p.lost_by_failure_gpu_hours
        + p.lost_by_timeout_gpu_hours
    )
    assert p.lost_gpu_hours == pytest.approx(by_cause)
    assert (v.runs.reached_s >= v.runs.saved_s).all()
    assert s.jobs.work_done_gpu_hours <= p.useful_gpu_hours + 1e-9


@pytest.mark.parametrize("seed", SEEDS)
def test_delivered_is_what_was_allocated_and_never_beyond_demand(seed):
    v, s = measured(seed)
    hours = delivery_hours(v)
    allocated = (v.runs.size * v.runs.length_s)[v.runs.allocated].sum()
    assert hours.delivered.sum() == allocated
    assert (hours.delivered <= hours.demanded).all()
    assert (hours.owed <= hours.demanded).all()
    assert hours.entitled.sum() == pytest.approx(s.capacity.in_service_gpu_hours * 3600)


@pytest.mark.parametrize("seed", SEEDS)
def test_shares_are_shares_and_waits_are_waits(seed):
    v, s = measured(seed)
    shares = (s.capacity.availability, s.capacity.occupancy, s.delivery.hour_capped, s.delivery.worst_hour_capped)
    assert all(0 <= x <= 1 for x in shares if x is not None)
    assert (v.jobs.left_s >= v.jobs.submitted_s)[v.jobs.admitted].all()
    started = v.jobs.first_start_s >= 0
    assert (v.jobs.first_start_s >= v.jobs.submitted_s)[started].all()
    jobs = s.jobs
    assert jobs.submitted == jobs.waiting + jobs.running + jobs.done + jobs.timed_out + jobs.killed + jobs.never_fits


def test_the_seeds_cover_what_is_hard_to_count():
    seen = [measured(seed)[1] for seed in SEEDS]
    assert any(s.capacity.off_service_gpu_hours > 0 for s in seen)
    assert any(s.interruptions.drained for s in seen)
    assert any(s.interruptions.failed for s in seen)
    assert any(s.progress.restart_gpu_hours > 0 for s in seen)
    assert any(s.jobs.running for s in seen)
