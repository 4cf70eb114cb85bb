import pytest

from cpalloc.problem.problem import Mode
from cpalloc.sim.history import JobEnd, RoundPath, RunEnd
from cpalloc.sim.measures import summary, view
from cpalloc.sim.measures.fragmentation import fragmentation
from cpalloc.sim.measures.progress import interruptions, job_counts, progress
from cpalloc.sim.measures.rounds import round_costs
from sim.measures.histories import HOUR, Sample, Turn, history, job, run


def test_lost_since_the_checkpoint_and_restart_apart():
    # 2 GPUs. First run 3 h, 2 h saved: lost 1 h. Second run 2 h, 0.5 h of it restarting: finishes with 3.5 h of work
    h = history(
        jobs=[job("a", gpus=2, work_s=12600)],
        runs=[
            run("a", 0, 3 * HOUR, {"n0": 2}, end=RunEnd.PREEMPTED, saved_s=2 * HOUR),
            run("a", 4 * HOUR, 6 * HOUR, {"n0": 2}, before_s=2 * HOUR, restart_s=HOUR // 2),
        ],
        end_s=8 * HOUR,
    )
    p = progress(view(h))
    assert (p.held_gpu_hours, p.lost_gpu_hours, p.restart_gpu_hours, p.useful_gpu_hours) == (10, 2, 1, 7)
    assert (p.lost_by_preemption_gpu_hours, p.lost_by_failure_gpu_hours) == (2, 0)
    assert p.useful_share == pytest.approx(0.7)


def test_a_killed_job_takes_its_earlier_progress_with_it():
    # borrowed 1 h, promoted, 1 h more, then preempted for good with nothing saved: 2 GPU-h lost, none useful
    h = history(
        jobs=[job("a")],
        runs=[
            run("a", 0, HOUR, {"n0": 1}, mode=Mode.BORROWED, end=RunEnd.PROMOTED),
            run("a", HOUR, 2 * HOUR, {"n0": 1}, before_s=HOUR, saved_s=0, end=RunEnd.PREEMPTED),
        ],
        end_s=8 * HOUR,
        ends={"a": JobEnd.KILLED},
        finished_s={"a": 2 * HOUR},
    )
    p = progress(view(h))
    assert (p.held_gpu_hours, p.lost_gpu_hours, p.useful_gpu_hours) == (2, 2, 0)


@pytest.mark.parametrize(
    ("end", "field"),
    [
        (RunEnd.PREEMPTED, "lost_by_preemption_gpu_hours"),
        (RunEnd.DRAINED, "lost_by_drain_gpu_hours"),
        (RunEnd.LOST, "lost_by_failure_gpu_hours"),
        (RunEnd.TIMED_OUT, "lost_by_timeout_gpu_hours"),
    ],
)
def test_losses_by_what_ended_the_run(end, field):
    h = history(jobs=[job("a")], runs=[run("a", 0, HOUR, {"n0": 1}, end=end, saved_s=0)], end_s=HOUR)
    p = progress(view(h))
    parts = [
        p.lost_by_preemption_gpu_hours,
        p.lost_by_drain_gpu_hours,
        p.lost_by_failure_gpu_hours,
        p.lost_by_timeout_gpu_hours,
    ]
    assert getattr(p, field) == 1
    assert sum(parts) == p.lost_gpu_hours == 1


def test_a_run_preempted_while_restarting_loses_only_that():
    h = history(
        jobs=[job("a")],
        runs=[
            run("a", 0, HOUR, {"n0": 1}, end=RunEnd.PREEMPTED, saved_s=HOUR),
            run("a", HOUR, HOUR + 60, {"n0": 1}, before_s=HOUR, saved_s=HOUR, restart_s=600, end=RunEnd.PREEMPTED),
        ],
        end_s=2 * HOUR,
    )
    p = progress(view(h))
    assert p.lost_gpu_hours == 0
    assert p.restart_gpu_hours == pytest.approx(60 / 3600)


def test_progress_of_an_open_run_counts_up_to_the_end():
    h = history(
        jobs=[job("a", gpus=4, work_s=99 * HOUR)], runs=[run("a", 0, -1, {"n0": 4}, end=RunEnd.OPEN)], end_s=2 * HOUR
    )
    p = progress(view(h))
    assert (p.useful_gpu_hours, p.lost_gpu_hours, p.useful_share) == (8, 0, 1)


def test_interruptions_and_rounds_with_them():
    h = history(
        jobs=[job("a", gpus=2), job("b", gpus=3), job("c"), job("d")],
        runs=[
            run("a", 0, 60, {"n0": 2}, end=RunEnd.PREEMPTED),
            run("b", 0, 60, {"n1": 3}, end=RunEnd.PREEMPTED),
            run("c", 0, 90, {"n0": [2]}, end=RunEnd.DRAINED),
            run("d", 0, 90, {"n0": [3]}, end=RunEnd.LOST),
        ],
        rounds=[Turn(0), Turn(60, preempted=2), Turn(120)],
        end_s=HOUR,
    )
    i = interruptions(view(h))
    assert (i.preemptions, i.preempted_gpus, i.rounds_with_preemptions, i.drained, i.failed) == (2, 5, 1, 1, 1)


def test_jobs_by_how_they_stand():
    h = history(
        jobs=[
            job("done", gpus=2, work_s=2 * HOUR),
            job("run"),
            job("wait"),
            job("huge"),
            job("later", submitted_s=99999),
        ],
        runs=[run("done", 0, 2 * HOUR, {"n0": 2}), run("run", 0, -1, {"n0": [2]}, end=RunEnd.OPEN)],
        end_s=3 * HOUR,
        ends={"huge": JobEnd.NEVER_FITS, "later": JobEnd.NOT_SUBMITTED},
    )
    c = job_counts(view(h))
    assert (c.submitted, c.done, c.running, c.waiting, c.never_fits, c.not_submitted) == (4, 1, 1, 1, 1, 1)
    assert (c.killed, c.timed_out, c.work_done_gpu_hours) == (0, 0, 4)


def test_rounds_by_path_and_what_is_proven():
    h = history(
        jobs=[],
        end_s=HOUR,
        rounds=[
            Turn(0, path=RoundPath.NOTHING),
            Turn(1, path=RoundPath.QUICK, seconds=0.25),
            Turn(2, seconds=1.0),
            Turn(3, seconds=3.0, unproved=2),
        ],
    )
    r = round_costs(view(h))
    assert (r.rounds, r.nothing, r.quick, r.solved) == (4, 1, 1, 2)
    assert (r.proved_share, r.solved_proved_share, r.unproved_tiers) == (0.75, 0.5, 1.0)
    assert (r.seconds.p50, r.seconds.p90, r.seconds.mean, r.total_s) == (1.0, 3.0, 2.0, 4.25)
    assert round_costs(view(history(jobs=[], end_s=1))).proved_share is None


def test_fragmentation_over_the_samples():
    h = history(
        jobs=[],
        end_s=HOUR,
        samples=[Sample(0, stranded=2, time_to_place_s=60, largest_gang=16), Sample(60, stranded=4, largest_gang=8)],
    )
    f = fragmentation(view(h))
    assert (f.stranded_gpus.mean, f.time_to_place_s.mean, f.largest_gang_gpus.mean) == (3, 30, 12)
    assert f.largest_gang_gpus.low == 8
    assert summary(history(jobs=[], end_s=1)).fragmentation.stranded_gpus is None
