"""What happens to jobs, by hand: starts, checkpoints, interruptions, protection, time limits, rounds."""

from __future__ import annotations

import numpy as np
import pytest

from cpalloc.errors import InputError
from cpalloc.problem.problem import Mode
from cpalloc.schema import Budget
from cpalloc.schema import Policy as SitePolicy
from cpalloc.schema.types import Funding, NodeState
from cpalloc.sim.config import Progress, SimConfig
from cpalloc.sim.history import History, JobEnd, RunEnd
from cpalloc.sim.policies.base import Moves
from cpalloc.sim.policies.fifo import fifo
from cpalloc.sim.simulate import simulate
from cpalloc.sim.workload import BudgetChange, NodeEvent, Workload
from sim.worlds import Scripted, allocated, borrowed, first_starts, job, nodes, runs_of, same, world

ALL = (0, 0xFF)
WAITER = job("~", 0, 8, 1)
"""Waits for ever, as no script starts it: rounds are only held while something could be done."""


def run(workload: Workload, script: dict[int, Moves], *, protects: bool = True, **config: object) -> History:
    return simulate(workload, Scripted(script, protects=protects), config=SimConfig(**config))  # type: ignore[arg-type]


def column(history: History, name: str) -> list[int]:
    return list(getattr(history.runs, name).tolist())


def resumable(every: int = 0, restart: int = 0, **more: object) -> dict[str, object]:
    return {"resumable": True, "checkpoint_interval_s": every, "restart_cost_s": restart, **more}


def test_a_job_runs_for_its_work_and_leaves() -> None:
    h = run(world([job("j", 5, 4, 100, min_runtime_s=60)]), {5: Moves(starts=[allocated(0, (0, 0b1111))])})
    assert runs_of(h, 0) == [(5, 105, RunEnd.FINISHED)]
    assert (column(h, "work_before_s"), column(h, "work_saved_s")) == ([0], [100])
    assert column(h, "protected_until_s") == [65]
    assert h.job_end.tolist() == [JobEnd.DONE]
    assert h.finished_s.tolist() == [105]
    assert h.end_s == 105
    assert (h.places.node.tolist(), h.places.gpus.tolist(), h.places.devices.tolist()) == ([0], [4], [0b1111])


def test_a_preempted_job_goes_on_from_its_last_checkpoint_after_restarting() -> None:
    w = world([job("j", 0, 8, 100, **resumable(every=30, restart=7)), WAITER])
    h = run(w, {0: Moves(starts=[borrowed(0, ALL)]), 70: Moves(preempts=[0]), 80: Moves(starts=[borrowed(0, ALL)])})
    assert runs_of(h, 0) == [(0, 70, RunEnd.PREEMPTED), (80, 80 + 7 + 40, RunEnd.FINISHED)]
    assert column(h, "work_saved_s") == [60, 100]
    assert column(h, "work_before_s") == [0, 60]
    assert column(h, "restart_s") == [0, 7]


def test_checkpoints_count_progress_of_the_run_not_time_spent_on_restarting() -> None:
    """Second run: 7 s of restarting, then 29 s of work, one short of a checkpoint: nothing is saved."""
    w = world([job("j", 0, 8, 1000, **resumable(every=30, restart=7)), WAITER])
    script = {
        0: Moves(starts=[borrowed(0, ALL)]),
        31: Moves(preempts=[0]),
        32: Moves(starts=[borrowed(0, ALL)]),
        68: Moves(preempts=[0]),
        69: Moves(starts=[borrowed(0, ALL)]),
        72: Moves(preempts=[0]),
    }
    h = run(w, script, until_s=80)
    assert column(h, "work_saved_s") == [30, 30, 30]
    assert column(h, "restart_s") == [0, 7, 3]  # the third was preempted while restarting


def test_continuous_checkpoints_lose_nothing() -> None:
    w = world([job("j", 0, 8, 100, **resumable()), WAITER])
    h = run(w, {0: Moves(starts=[borrowed(0, ALL)]), 33: Moves(preempts=[0])})
    assert column(h, "work_saved_s") == [33]
    assert h.job_end.tolist() == [JobEnd.WAITING, JobEnd.WAITING]


def test_what_cannot_resume_is_killed_with_all_its_work() -> None:
    w = world([job("j", 0, 8, 100), job("k", 40, 8, 10)])
    h = run(w, {0: Moves(starts=[borrowed(0, ALL)]), 40: Moves(preempts=[0], starts=[borrowed(1, ALL)])})
    assert runs_of(h, 0) == [(0, 40, RunEnd.PREEMPTED)]
    assert column(h, "work_saved_s") == [0, 10]
    assert h.job_end.tolist() == [JobEnd.KILLED, JobEnd.DONE]
    assert h.finished_s.tolist() == [40, 50]


def test_an_oracle_loses_nothing_and_owes_the_rest_of_a_restart() -> None:
    w = world([job("j", 0, 8, 100, restart_cost_s=10), WAITER])
    script = {
        0: Moves(starts=[allocated(0, ALL)]),
        40: Moves(preempts=[0]),
        50: Moves(starts=[allocated(0, ALL)]),
        55: Moves(preempts=[0]),
        60: Moves(starts=[allocated(0, ALL)]),
    }
    policy = Scripted(script, protects=False, suspends=True)
    h = simulate(w, policy)
    assert runs_of(h, 0)[-1] == (60, 60 + 5 + 10 + 60, RunEnd.FINISHED)
    assert column(h, "restart_s") == [0, 5, 15]


def test_a_restart_opens_a_new_window_of_protection() -> None:
    w = world([job("j", 0, 8, 100, min_runtime_s=20, **resumable()), WAITER])
    script = {
        0: Moves(starts=[allocated(0, ALL)]),
        20: Moves(preempts=[0]),
        30: Moves(starts=[allocated(0, ALL)]),
    }
    h = run(w, script)
    assert column(h, "protected_until_s") == [20, 50]


def test_a_draining_node_keeps_protected_work_until_its_window_ends_and_takes_nothing_new() -> None:
    w = world(
        [job("j", 0, 8, 100, min_runtime_s=40, **resumable()), job("b", 0, 4, 50, **resumable())],
        2,
        node_events=(NodeEvent(10, "n0", NodeState.DRAINING), NodeEvent(10, "n1", NodeState.DRAINING)),
    )
    b, j = 0, 1
    h = run(w, {0: Moves(starts=[allocated(j, (0, 0xFF)), borrowed(b, (1, 0xF))])})
    assert runs_of(h, j) == [(0, 40, RunEnd.DRAINED)]
    assert runs_of(h, b) == [(0, 10, RunEnd.DRAINED)]
    assert h.job_end.tolist() == [JobEnd.WAITING, JobEnd.WAITING]
    assert (h.capacity_s.tolist(), h.capacity_gpus.tolist()) == ([0, 10], [16, 0])


def test_work_past_its_protection_leaves_a_draining_node_at_once_and_gangs_go_whole() -> None:
    w = world(
        [job("j", 0, 8, 100, replicas=2, min_runtime_s=5)], 2, node_events=(NodeEvent(10, "n1", NodeState.DRAINING),)
    )
    h = run(w, {0: Moves(starts=[allocated(0, (0, 0xFF), (1, 0xFF))])})
    assert runs_of(h, 0) == [(0, 10, RunEnd.DRAINED)]
    assert h.job_end.tolist() == [JobEnd.KILLED]


def test_a_node_that_is_back_before_the_window_ends_keeps_its_job() -> None:
    w = world(
        [job("j", 0, 8, 100, min_runtime_s=40)],
        node_events=(NodeEvent(10, "n0", NodeState.DRAINING), NodeEvent(20, "n0", NodeState.READY)),
    )
    h = run(w, {0: Moves(starts=[allocated(0, ALL)])})
    assert runs_of(h, 0) == [(0, 100, RunEnd.FINISHED)]


def test_a_node_that_goes_down_takes_even_protected_gangs_with_it() -> None:
    w = world(
        [job("j", 0, 8, 100, replicas=2, min_runtime_s=40, **resumable(every=4))],
        2,
        node_events=(NodeEvent(10, "n1", NodeState.DOWN), NodeEvent(30, "n1", NodeState.READY)),
    )
    both = allocated(0, (0, 0xFF), (1, 0xFF))
    h = run(w, {0: Moves(starts=[both]), 30: Moves(starts=[both])})
    assert runs_of(h, 0) == [(0, 10, RunEnd.LOST), (30, 30 + 92, RunEnd.FINISHED)]
    assert column(h, "work_saved_s") == [8, 100]


def test_what_ends_as_its_node_goes_down_has_ended() -> None:
    w = world([job("j", 0, 8, 10)], node_events=(NodeEvent(10, "n0", NodeState.DOWN),))
    assert runs_of(run(w, {0: Moves(starts=[borrowed(0, ALL)])}), 0) == [(0, 10, RunEnd.FINISHED)]


def test_the_time_limit_counts_from_the_start_of_each_run() -> None:
    w = world([job("j", 0, 8, 100, timeout_s=60, **resumable()), WAITER])
    script = {0: Moves(starts=[borrowed(0, ALL)]), 30: Moves(preempts=[0]), 40: Moves(starts=[borrowed(0, ALL)])}
    h = run(w, script)
    assert runs_of(h, 0) == [(0, 30, RunEnd.PREEMPTED), (40, 100, RunEnd.TIMED_OUT)]
    assert h.job_end.tolist() == [JobEnd.TIMED_OUT, JobEnd.WAITING]
    assert column(h, "work_saved_s") == [30, 90]


def test_work_that_is_done_at_its_time_limit_is_done() -> None:
    h = run(world([job("j", 0, 8, 60, timeout_s=60)]), {0: Moves(starts=[borrowed(0, ALL)])})
    assert h.job_end.tolist() == [JobEnd.DONE]


def test_a_promotion_starts_a_row_and_a_window_but_not_the_run() -> None:
    w = world(
        [job("j", 0, 8, 100, min_runtime_s=50, timeout_s=90, funding=Funding.ANY, **resumable(every=30)),
         job("k", 20, 8, 1)]
    )  # fmt: skip
    policy = Scripted({0: Moves(starts=[borrowed(0, ALL)]), 20: Moves(promotes=[0])})
    h = simulate(w, policy, config=SimConfig(until_s=95))
    assert runs_of(h, 0) == [(0, 20, RunEnd.PROMOTED), (20, 90, RunEnd.TIMED_OUT)]
    assert column(h, "mode") == [Mode.BORROWED, Mode.ALLOCATED]
    assert column(h, "protected_until_s") == [-1, 70]
    assert column(h, "work_before_s") == [0, 20]
    assert h.places.node.tolist() == [0, 0]
    assert policy.asked[2][0] == 70
    assert policy.asked[2][1].expired == [0]


def test_a_promoted_job_that_is_preempted_falls_back_to_the_checkpoint_before_its_promotion() -> None:
    w = world([job("j", 0, 8, 100, min_runtime_s=5, funding=Funding.ANY, **resumable(every=20)), WAITER])
    script = {0: Moves(starts=[borrowed(0, ALL)]), 25: Moves(promotes=[0]), 35: Moves(preempts=[0])}
    h = run(w, script, until_s=40)
    assert column(h, "work_before_s") == [0, 25]
    assert column(h, "work_saved_s") == [25, 20]  # as a sum: 20 saved of 35 run


def test_modes_are_recorded_as_given_where_nothing_is_protected() -> None:
    w = world([job("j", 0, 8, 10, min_runtime_s=100, funding=Funding.BORROWED)])
    h = run(w, {0: Moves(starts=[allocated(0, ALL)])}, protects=False)
    assert column(h, "mode") == [Mode.ALLOCATED]
    assert column(h, "protected_until_s") == [-1]


def test_rounds_happen_at_every_event_and_see_all_of_one_instant() -> None:
    again = NodeEvent(10, "n0", NodeState.READY)
    w = world([job("j", 0, 8, 10), job("k", 10, 8, 5), job("l", 10, 8, 5)], node_events=(again,))
    policy = Scripted({0: Moves(starts=[borrowed(0, ALL)])})
    simulate(w, policy)
    assert [at for at, _ in policy.asked] == [0, 10]
    news = policy.asked[1][1]
    assert (news.arrived, news.left, news.capacity_changed) == ([1, 2], [0], True)


def test_with_an_interval_jobs_leave_when_they_end_and_start_at_rounds() -> None:
    w = world([job("j", 1, 8, 10), job("k", 2, 8, 10)])
    h = simulate(w, fifo(), config=SimConfig(round_interval_s=7))
    assert first_starts(h) == {"j": 7, "k": 21}  # j is gone at 17
    assert h.rounds.at_s.tolist() == [7, 21]


def test_a_heartbeat_asks_again_while_something_is_pending() -> None:
    policy = Scripted({})
    simulate(world([job("j", 3, 8, 10)]), policy, config=SimConfig(heartbeat_s=20, until_s=60))
    assert [at for at, _ in policy.asked] == [3, 23, 43]
    assert policy.asked[1][1].arrived == []


def test_it_is_over_when_nothing_is_to_come_and_a_round_moves_nothing() -> None:
    policy = Scripted({})
    h = simulate(world([job("j", 3, 8, 10)]), policy, config=SimConfig(heartbeat_s=20))
    assert [at for at, _ in policy.asked] == [3]
    assert h.end_s == 3


def test_a_heartbeat_does_not_cut_off_long_runs() -> None:
    w = world([job("j", 0, 8, 500), job("k", 0, 8, 10)])
    h = simulate(w, fifo(), config=SimConfig(heartbeat_s=20))
    assert h.job_end.tolist() == [JobEnd.DONE, JobEnd.DONE]


def test_nobody_is_asked_when_nothing_can_be_done() -> None:
    w = world([job("j", 0, 4, 100, min_runtime_s=10)], node_events=(NodeEvent(50, "n0", NodeState.READY),))
    policy = Scripted({0: Moves(starts=[allocated(0, (0, 0xF))])})
    h = simulate(w, policy)
    assert [at for at, _ in policy.asked] == [0]
    assert h.rounds.at_s.tolist() == [0]


def test_what_a_policy_preempts_is_news_only_at_the_next_round() -> None:
    w = world([job("j", 0, 8, 100, **resumable()), job("k", 10, 8, 5)])
    policy = Scripted({0: Moves(starts=[borrowed(0, ALL)]), 10: Moves(preempts=[0], starts=[borrowed(1, ALL)])})
    simulate(w, policy)
    assert [(at, list(news.arrived), list(news.left)) for at, news in policy.asked] == [
        (0, [0], []),
        (10, [1], []),
        (15, [0], [1]),
    ]


def test_at_the_horizon_runs_stay_open_with_all_they_reached() -> None:
    w = world([job("j", 0, 8, 100), job("k", 10, 8, 5), job("l", 90, 8, 5)])
    h = simulate(w, fifo(), config=SimConfig(until_s=30))
    assert runs_of(h, 0) == [(0, 30, RunEnd.OPEN)]
    assert column(h, "work_saved_s") == [30]
    assert h.job_end.tolist() == [JobEnd.RUNNING, JobEnd.WAITING, JobEnd.NOT_SUBMITTED]
    assert h.end_s == 30


def test_jobs_without_work_end_at_once() -> None:
    h = simulate(world([job(f"j{i}", 5, 8, 0) for i in range(3)]), fifo())
    assert [runs_of(h, i) for i in range(3)] == [[(5, 5, RunEnd.FINISHED)]] * 3


def test_what_no_node_could_ever_hold_is_refused() -> None:
    racks = [n.model_copy(update={"domains": {"rack": f"r{i // 2}"}}) for i, n in enumerate(nodes(4))]
    w = world(
        [
            job("a-wide", 0, 9, 5),
            job("b-many", 0, 8, 5, replicas=5),
            job("c-type", 0, 1, 5, gpu_types=("a100",)),
            job("d-rack", 0, 8, 5, replicas=3, required_level="rack"),
            job("e-fits", 0, 8, 5, replicas=2, required_level="rack"),
        ],
        racks,
        levels=("rack",),
    )
    h = simulate(w, fifo())
    assert h.job_end.tolist() == [JobEnd.NEVER_FITS] * 4 + [JobEnd.DONE]


def test_a_longer_min_runtime_than_the_site_allows_is_asked_for_as_the_maximum_and_noted() -> None:
    w = world([job("j", 0, 8, 100, min_runtime_s=90)])
    h = run(w, {0: Moves(starts=[allocated(0, ALL)])}, site=SitePolicy(max_min_runtime=60))
    assert column(h, "protected_until_s") == [60]
    assert h.notes == ("1 jobs ask for the maximum of 60 s as min_runtime instead of more",)


def test_budgets_that_change_are_news_and_in_the_history() -> None:
    w = world(
        [job("j", 0, 8, 100), job("k", 0, 8, 1, team="b")],
        budget_changes=(BudgetChange(40, (Budget(name="b", weight=1), Budget(name="c", weight=3))),),
    )
    policy = Scripted({0: Moves(starts=[borrowed(0, ALL)])})
    h = simulate(w, policy)
    assert [(at, n.budgets_changed) for at, n in policy.asked] == [(0, False), (40, True), (100, False)]
    assert h.leaf_names == ("a", "b", "c")
    assert h.share_s.tolist() == [0, 40]
    assert h.share.tolist() == [[0.5, 0.5, 0.0], [0.0, 0.25, 0.75]]


def test_samples_show_the_state_after_the_round_of_their_instant() -> None:
    w = world(
        [job("j", 0, 4, 100, min_runtime_s=50), job("k", 50, 4, 100), job("l", 50, 8, 100)],
        node_events=(NodeEvent(120, "n0", NodeState.DRAINING),),
    )
    script = {0: Moves(starts=[allocated(0, (0, 0xF))]), 50: Moves(starts=[borrowed(1, (0, 0xF0))])}
    h = run(w, script, sample_interval_s=50, site=SitePolicy(window=100))
    s = h.samples
    assert s.at_s.tolist() == [0, 50, 100]
    assert s.allocated.tolist() == [4, 4, 0]
    assert s.borrowed.tolist() == [0, 4, 4]
    assert s.pending.tolist() == [0, 8, 8]
    assert s.charged.tolist() == [[0], [200], [400]]
    assert s.owed.tolist() == [[800]] * 3


def test_work_held_on_a_draining_node_is_not_counted_as_in_service() -> None:
    w = world([job("j", 0, 4, 100, min_runtime_s=90)], 2, node_events=(NodeEvent(10, "n0", NodeState.DRAINING),))
    h = run(w, {0: Moves(starts=[allocated(0, (0, 0xF))])}, sample_interval_s=20)
    assert h.samples.in_service.tolist() == [16, 8, 8, 8, 8]
    assert h.samples.allocated.tolist() == [4, 0, 0, 0, 0]


def test_unhealthy_gpus_are_not_in_service() -> None:
    w = world([job("j", 0, 7, 10)], nodes(1, unhealthy_gpus=(0,)))
    h = simulate(w, fifo())
    assert h.capacity_gpus.tolist() == [7]
    assert h.installed_gpus == 8
    assert h.places.devices.tolist() == [0xFE]


def test_nodes_are_counted_by_name() -> None:
    w = world([job("j", 0, 4, 10)], [*reversed(nodes(2))], node_events=(NodeEvent(0, "n0", NodeState.DOWN),))
    h = simulate(w, fifo())
    assert h.node_names == ("n0", "n1")
    assert h.places.node.tolist() == [1]


def test_a_simulation_is_the_same_when_run_again() -> None:
    w = world([job(f"j{i}", i, 1 + i % 8, 10 + i) for i in range(40)])
    assert same(simulate(w, fifo()), simulate(w, fifo()))


def test_progress_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cpalloc.sim.simulate.REPORT_EVERY_S", -1.0)
    told: list[Progress] = []
    simulate(world([job("j", 0, 8, 10), job("k", 0, 8, 10)]), fifo(), progress=told.append)
    assert told == [Progress(0.0, 0, 1, 1), Progress(0.5, 10, 2, 0), Progress(1.0, 20, 2, 0)]
    told.clear()
    simulate(world([job("j", 0, 8, 10)]), fifo(), progress=told.append, config=SimConfig(until_s=40))
    assert [p.fraction for p in told] == [0.0, 0.25]


def test_an_empty_workload_is_over_at_once() -> None:
    h = simulate(world([]), fifo())
    assert (h.end_s, len(h.runs.job), len(h.rounds.at_s)) == (0, 0, 0)
    assert h.runs.first_place.tolist() == [0]
    assert np.isfinite(h.samples.stranded).all()


def test_a_configuration_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(InputError) as error:
        SimConfig(round_interval_s=-1, until_s=5, start_s=6)
    assert [i.path for i in error.value.issues] == ["round_interval_s", "until_s"]
