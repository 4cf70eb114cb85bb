from fractions import Fraction

import numpy as np
import pytest

from cpalloc.metrics.fairness import delivered_in_total, owed_in_hour
from cpalloc.problem.problem import Mode
from cpalloc.schema.types import NodeState
from cpalloc.sim.history import JobEnd
from cpalloc.sim.measures import view
from cpalloc.sim.measures.delivery import delivery, delivery_hours, ratios
from cpalloc.sim.workload import NodeEvent
from sim.measures.histories import HOUR, Lab, Sample, history, job, run

HUNDRED = Lab(nodes=5, gpus=20, shares={"x": 0.35, "y": 0.65})


def packed(gpus):
    """Places of so many GPUs, node after node."""
    return {f"n{n}": min(20, gpus - 20 * n) for n in range(5) if gpus > 20 * n}


def hourly(demanded, delivered):
    """Worked decision 15: leaf x asks for so many GPUs in each hour, and gets so many."""
    jobs, runs, ends, left = [], [], {}, {}
    for hour, (asked, got) in enumerate(zip(demanded, delivered, strict=True)):
        parts = [(f"got{hour}", got), (f"not{hour}", asked - got)]
        for name, gpus in parts:
            if gpus > 0:
                jobs.append(job(name, gpus=gpus, submitted_s=hour * HOUR))
                ends[name], left[name] = JobEnd.DONE, (hour + 1) * HOUR
        if got > 0:
            runs.append(run(f"got{hour}", hour * HOUR, (hour + 1) * HOUR, packed(got)))
    return history(jobs=jobs, runs=runs, end_s=len(demanded) * HOUR, lab=HUNDRED, ends=ends, finished_s=left)


def test_worked_decision_15_delivered_33_of_35():
    d = delivery(view(hourly([0, 20, 80], [0, 20, 33])))
    x = d.leaves[0]
    assert x.owed_gpu_hours == pytest.approx(55)  # 0 + 20 + min(35, 80)
    assert x.hour_capped == pytest.approx(53 / 55)  # 96.4 %
    assert round(x.hour_capped, 3) == 0.964


def test_worked_decision_15_hours_above_do_not_make_up_for_hours_below():
    x = delivery(view(hourly([0, 20, 80], [0, 10, 45]))).leaves[0]
    assert x.hour_capped == pytest.approx(45 / 55)  # 10 + min(45, 35): 81.8 %
    assert round(x.hour_capped, 3) == 0.818
    assert x.total_capped == 1  # 55 of 55


def test_demand_is_what_is_submitted_and_not_gone():
    # x: 8 GPUs from 0:30, running 1:00–2:00, then gone: demanded 4, 8, 0 GPU-h
    h = history(
        jobs=[job("a", gpus=8, submitted_s=HOUR // 2)], runs=[run("a", HOUR, 2 * HOUR, {"n0": 8})], end_s=3 * HOUR
    )
    hours = delivery_hours(view(h))
    assert (hours.demanded[0] / HOUR).tolist() == [4, 8, 0]
    assert hours.owed[0] / HOUR == pytest.approx([4, 8, 0])  # share 1/2 of 16
    assert (hours.delivered[0] / HOUR).tolist() == [0, 8, 0]
    assert delivery(view(h)).leaves[0].hour_capped == pytest.approx(8 / 12)


def test_borrowed_hours_are_neither_delivered_nor_demanded_by_borrowed_jobs():
    h = history(
        jobs=[job("b", gpus=4, borrowed=True), job("z", gpus=4, min_runtime_s=0), job("a", gpus=2)],
        runs=[
            run("b", 0, HOUR, {"n0": 4}, mode=Mode.BORROWED),
            run("z", 0, HOUR, {"n1": 4}, mode=Mode.BORROWED),
            run("a", 0, HOUR, {"n0": [4, 5]}, mode=Mode.BORROWED),
        ],
        end_s=HOUR,
    )
    x = delivery(view(h)).leaves[0]
    assert (x.demanded_gpu_hours, x.delivered_gpu_hours, x.borrowed_gpu_hours) == (2, 0, 10)
    assert x.hour_capped == 0


def test_jobs_that_never_fit_or_came_ask_for_nothing():
    h = history(
        jobs=[job("huge", gpus=99), job("late", submitted_s=5 * HOUR)],
        end_s=HOUR,
        ends={"huge": JobEnd.NEVER_FITS, "late": JobEnd.NOT_SUBMITTED},
    )
    d = delivery(view(h))
    assert d.owed_gpu_hours == 0
    assert (d.hour_capped, d.worst_leaf, d.worst_hour_capped) == (None, None, None)


def test_in_total_leaf_by_leaf_and_the_worst():
    # 16 GPUs, 8 owed to each for 1 h. x gets 12 (capped to 8), y 4 of 8: (8 + 4) / 16
    h = history(
        jobs=[job("a", gpus=12), job("b", "y", gpus=4), job("c", "y", gpus=8)],
        runs=[run("a", 0, HOUR, {"n0": 8, "n1": 4}), run("b", 0, HOUR, {"n1": [4, 5, 6, 7]})],
        end_s=HOUR,
    )
    d = delivery(view(h))
    assert d.hour_capped == d.total_capped == pytest.approx(12 / 16)
    assert (d.worst_leaf, d.worst_hour_capped) == ("y", pytest.approx(0.5))
    assert d.delivered_gpu_hours == 16


def test_owed_follows_capacity_and_shares():
    # 16 GPUs, 8 from 0:30 on; share of x 0.5, from 1:30 on 0.25: entitled 0.5·(8+4) = 6, 0.5·4 + 0.25·4 = 3 GPU-h
    h = history(
        jobs=[job("a", gpus=16)],
        events=[NodeEvent(HOUR // 2, "n0", NodeState.DOWN)],
        shares=[(0, (0.5, 0.5)), (HOUR * 3 // 2, (0.25, 0.75))],
        end_s=2 * HOUR,
    )
    assert delivery_hours(view(h)).entitled[0] / HOUR == pytest.approx([6, 3])


def test_agrees_with_the_exact_fractions():
    rng = np.random.default_rng(11)
    asked = rng.integers(0, 80, 24)
    got = [int(rng.integers(0, a + 1)) for a in asked]
    d = delivery(view(hourly(asked.tolist(), got)))
    owed = [owed_in_hour(Fraction(35, 100), 100, int(a)) for a in asked]
    want = delivered_in_total([(got, owed)])
    assert d.hour_capped == pytest.approx(float(want.hour_capped))
    assert d.total_capped == pytest.approx(float(want.total_capped))


def test_ratio_over_time_is_nan_where_nothing_is_owed():
    h = history(
        jobs=[], end_s=HOUR, samples=[Sample(0, charged=(5, 7), owed=(0, 14)), Sample(60, charged=(3, 7), owed=(2, 7))]
    )
    found = ratios(view(h))
    assert np.isnan(found[0, 0])
    assert found[0, 1] == 0.5
    assert [leaf.last_ratio for leaf in delivery(view(h)).leaves] == [1.5, 1.0]
