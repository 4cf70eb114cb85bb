import numpy as np
import pytest

from cpalloc.metrics.fairness import JobClass, nearest_rank
from cpalloc.sim.history import JobEnd, RunEnd
from cpalloc.sim.measures import view
from cpalloc.sim.measures.quantiles import Quantile, quantiles, rank, spread
from cpalloc.sim.measures.view import CLASSES
from cpalloc.sim.measures.waits import first_waits, queued, slowdowns, waits
from sim.measures.histories import HOUR, Lab, history, job, run


def classes(h):
    return [CLASSES[i] for i in view(h).jobs.job_class]


def test_classes_of_policy_section_1():
    h = history(
        jobs=[
            job("debug", gpus=8, min_runtime_s=900),
            job("not debug", gpus=8, min_runtime_s=901),
            job("shell", gpus=1, min_runtime_s=60, interactive=True),
            job("two", gpus=8, replicas=2),
            job("large", gpus=8, replicas=8),
        ],
        end_s=HOUR,
        lab=Lab(nodes=64),
    )
    assert classes(h) == [
        JobClass.DEBUG,
        JobClass.SINGLE_NODE,
        JobClass.INTERACTIVE,
        JobClass.MULTI_NODE,
        JobClass.LARGE,  # 64 of 512
    ]


def test_class_is_of_the_largest_pool_accepted():
    # a: 4 nodes = 32 GPUs, b: 4 nodes; with both of a size ties go to the later name, either way 1/8 is 4
    lab = Lab(nodes=12, gpu_type=("a", "b", "b"))  # a 32 GPUs, b 64
    h = history(
        jobs=[job("any", gpus=4), job("small", gpus=4, gpu_types=("a",)), job("both", gpus=4, gpu_types=("a", "b"))],
        end_s=HOUR,
        lab=lab,
    )
    assert classes(h) == [JobClass.SINGLE_NODE, JobClass.LARGE, JobClass.SINGLE_NODE]


def test_wait_is_until_the_first_start_and_queued_counts_requeues():
    # a: submitted 100, runs [400, 1000) preempted, again [1500, 2000): first 300, queued 300 + 500
    h = history(
        jobs=[job("a", submitted_s=100, work_s=1100)],
        runs=[
            run("a", 400, 1000, {"n0": 1}, end=RunEnd.PREEMPTED, saved_s=600),
            run("a", 1500, 2000, {"n0": 1}, before_s=600),
        ],
        end_s=5000,
    )
    v = view(h)
    assert first_waits(v).tolist() == [300]
    assert queued(v).tolist() == [800]
    # (2000 − 100) / max(1100, 600)
    assert slowdowns(v) == pytest.approx([1900 / 1100])


def test_what_never_started_waits_until_the_end_and_is_counted():
    h = history(
        jobs=[job("a"), job("b", submitted_s=1000), job("no", gpus=99), job("later", submitted_s=9000)],
        runs=[run("a", 60, 600, {"n0": 1})],
        end_s=5000,
        ends={"no": JobEnd.NEVER_FITS, "later": JobEnd.NOT_SUBMITTED},
    )
    w = waits(view(h)).all.first
    assert (w.count, w.censored) == (2, 1)
    assert w.p50 == Quantile(60, lower_bound=False)
    assert w.p90 == Quantile(4000, lower_bound=True)
    assert w.mean == Quantile(2030, lower_bound=True)


def test_short_jobs_count_as_ten_minutes_and_slowdown_is_at_least_one():
    # a: 1 s of work after 299 s: 300 / 600 → 1. b: waits 1199 s for 1 s: 1200 / 600
    h = history(
        jobs=[job("a", work_s=1), job("b", work_s=1)],
        runs=[run("a", 299, 300, {"n0": 1}), run("b", 1199, 1200, {"n0": 1})],
        end_s=5000,
    )
    assert slowdowns(view(h)).tolist() == [1, 2]


def test_slowdown_leaves_killed_jobs_out_and_cuts_work_at_the_timeout():
    h = history(
        jobs=[job("killed"), job("long", work_s=9999, timeout_s=1000)],
        runs=[
            run("killed", 0, 100, {"n0": 1}, end=RunEnd.PREEMPTED),
            run("long", 1000, 2000, {"n0": 1}, end=RunEnd.TIMED_OUT),
        ],
        end_s=5000,
        ends={"killed": JobEnd.KILLED},
        finished_s={"killed": 100},
    )
    w = waits(view(h))
    assert (w.slowdown.count, w.slowdown.p50) == (1, Quantile(2.0))


def test_largest_gangs_have_at_least_half_of_the_largest_one():
    jobs = [job("s", gpus=7), job("m", gpus=8), job("l", gpus=8, replicas=2)]
    h = history(jobs=jobs, runs=[run("m", 30, 60, {"n0": 8}), run("l", 90, 120, {"n0": 8, "n1": 8})], end_s=HOUR)
    w = waits(view(h))
    assert w.largest_gpus == 8
    assert (w.largest.first.count, w.largest.first.p50, w.largest.first.p90) == (2, Quantile(30), Quantile(90))


def test_no_jobs_have_no_quantiles():
    w = waits(view(history(jobs=[], end_s=HOUR)))
    assert w.largest_gpus == 0
    assert (w.all.first.count, w.all.first.p50, w.all.first.mean, w.slowdown.p99) == (0, None, None, None)


def test_quantiles_are_exact_below_the_first_unknown_value():
    # known 1, 5; one job waits since 3: the 1st is 1; the 2nd is 3 or more, the 3rd 5 or more
    values, open_ = np.array([5, 3, 1]), np.array([False, True, False])
    q = quantiles(values, open_, np.ones(3, dtype=bool))
    assert (q.p50, q.p90) == (Quantile(3, lower_bound=True), Quantile(5, lower_bound=True))
    values = np.array([1, 2, 3, 9])
    q = quantiles(values, values == 9, np.ones(4, dtype=bool))
    assert (q.p50, q.p90) == (Quantile(2), Quantile(9, lower_bound=True))


def test_a_known_value_equal_to_the_unknown_one_is_still_exact():
    q = quantiles(np.array([4, 4]), np.array([True, False]), np.ones(2, dtype=bool))
    assert (q.p50, q.p90) == (Quantile(4), Quantile(4, lower_bound=True))


@pytest.mark.parametrize("n", [1, 2, 9, 10, 11, 100, 101])
def test_rank_is_that_of_the_fairness_metrics(n):
    for percent in (50, 90, 99):
        assert nearest_rank(range(1, n + 1), percent) == rank(percent, n)


def test_spread_leaves_out_what_is_not_known():
    s = spread(np.array([np.nan, 4.0, 1.0, np.inf, 1.0]))
    assert (s.mean, s.low, s.p50, s.p90, s.high) == (2.0, 1.0, 1.0, 4.0, 4.0)
    assert spread(np.array([np.nan])) is None
