"""The policies that go through the allocator: their rounds, their quick path, and what they decide."""

from __future__ import annotations

from collections import Counter

import pytest

from cpalloc.engine import check, solve
from cpalloc.problem.compile import CompileCache
from cpalloc.problem.problem import Mode
from cpalloc.schema import Policy as SitePolicy
from cpalloc.schema import snapshot_issues
from cpalloc.sim.config import SimConfig
from cpalloc.sim.history import JobEnd, RoundPath, RunEnd
from cpalloc.sim.policies import allocator
from cpalloc.sim.policies.allocator import AllocatorPolicy, cpalloc_policy, fair_share
from cpalloc.sim.policies.base import Moves, News
from cpalloc.sim.policies.quick import nothing_can_change
from cpalloc.sim.policies.window import QueueWindow
from cpalloc.sim.simulate import simulate
from cpalloc.sim.state import State
from sim.chaos import random_workload
from sim.worlds import job, runs_of, world

HOUR = 3600
MAKERS = {"cpalloc": lambda: cpalloc_policy(deterministic_limit=0.05), "fair-share": fair_share}


class Doubting:
    """Asks the full solver wherever the policy takes the quick path, and keeps what differs."""

    def __init__(self, policy: AllocatorPolicy) -> None:
        self.policy, self.paths, self.differ = policy, Counter[RoundPath](), list[tuple[int, Moves]]()
        self.name, self.traits = policy.name, policy.traits

    def begin(self, state: State) -> None:
        self.policy.begin(state)

    def decide(self, state: State, news: News) -> Moves:
        moves = self.policy.decide(state, news)
        shown = self.policy.shown(state)
        if nothing_can_change(state, shown):
            assert moves.path is RoundPath.QUICK
            round_, jobs = self.policy.round_of(state, shown)
            full = allocator.moves_of(allocator.solve_fully(round_, CompileCache()), jobs)
            if full.starts or full.preempts or full.promotes:
                self.differ.append((state.now_s, full))
        self.paths[moves.path] += 1
        return moves


@pytest.mark.parametrize("seed", range(12))
def test_where_nothing_can_change_the_full_solver_changes_nothing(seed: int) -> None:
    policy = Doubting(cpalloc_policy(deterministic_limit=0.05))
    simulate(random_workload(seed, jobs=25), policy, config=SimConfig(round_interval_s=20, heartbeat_s=60))
    assert policy.differ == []


def test_the_quick_path_is_taken_and_not_always() -> None:
    paths = Counter[RoundPath]()
    for seed in range(12):
        policy = Doubting(cpalloc_policy(deterministic_limit=0.05))
        simulate(random_workload(seed, jobs=25), policy, config=SimConfig(round_interval_s=20, heartbeat_s=60))
        paths += policy.paths
    assert paths[RoundPath.QUICK] > 20
    assert paths[RoundPath.SOLVED] > 50


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("seed", range(4))
def test_rounds_are_what_a_scheduler_could_send_and_decisions_pass_the_check(name: str, seed: int) -> None:
    policy, seen = MAKERS[name](), []
    decide = policy.decide_round

    def watched(round_, cache):
        decided = decide(round_, cache)
        assert snapshot_issues(round_) == []
        seen.append(round_)
        return decided

    policy.decide_round = watched
    simulate(random_workload(seed, jobs=25), policy, config=SimConfig(round_interval_s=20))
    assert seen
    for round_ in seen[:: max(1, len(seen) // 5)]:
        again = type(round_).model_validate(round_.model_dump(mode="json"))
        assert check(again, solve(again)).violations == ()


@pytest.mark.parametrize("name", MAKERS)
def test_three_teams_rotate_every_half_hour_where_preemption_under_share_is_allowed(name: str) -> None:
    # 8 GPUs, a third each, 8-GPU jobs for ever, min_runtime 30 min. With a charge horizon of a minute whoever has run
    # for 30 min claims nothing any more (rule 4) one minute later at the latest: when all are level each claims a third
    jobs = [job(f"{t}0", 0, 8, 10 * HOUR, t, min_runtime_s=1800, resumable=True) for t in "abc"]
    site = SitePolicy(preempt_under_share=True, charge_horizon=60)
    h = simulate(world(jobs, 1), MAKERS[name](), config=SimConfig(until_s=6 * HOUR, site=site, heartbeat_s=60))
    stints = sorted((start, end, j) for j in range(3) for start, end, _ in runs_of(h, j))
    assert len(stints) == 12
    assert all(1800 <= end - start <= 1860 for start, end, _ in stints[:-1])
    assert [s for s, _, _ in stints[1:]] == [e for _, e, _ in stints[:-1]]
    order = [j for _, _, j in stints]
    assert all(set(order[k : k + 3]) == {0, 1, 2} for k in range(0, 12, 3))


@pytest.mark.parametrize("name", MAKERS)
def test_with_the_usual_horizon_they_rotate_as_rule_4_lets_them(name: str) -> None:
    # Claims look an hour ahead: 8 = (L - a) + (L - b) + (L - c); whoever runs claims a GPU until it is well ahead
    jobs = [job(f"{t}0", 0, 8, 30 * HOUR, t, min_runtime_s=1800, resumable=True) for t in "abc"]
    site = SitePolicy(preempt_under_share=True)
    h = simulate(world(jobs, 1), MAKERS[name](), config=SimConfig(until_s=24 * HOUR, site=site, heartbeat_s=600))
    ran = [sum(end - start for start, end, _ in runs_of(h, j)) for j in range(3)]
    assert sum(ran) == 24 * HOUR
    assert max(ran) - min(ran) <= 2 * HOUR


@pytest.mark.parametrize("name", MAKERS)
def test_without_it_whoever_runs_keeps_its_gpus_until_its_ratio_is_over_one(name: str) -> None:
    # A window of an hour served, 8 GPUs x 1 h x 1/3 owed: the first is over 1 after 30 min (its ratio then is 1.0) …
    jobs = [job(f"{t}0", 0, 8, 10 * HOUR, t, min_runtime_s=1800, resumable=True) for t in "abc"]
    h = simulate(world(jobs, 1), MAKERS[name](), config=SimConfig(until_s=2 * HOUR, heartbeat_s=300))
    first = min(runs_of(h, j) for j in range(3))[0]
    # owed at t: (1 h + t)·8/3, charged 8 t: over 1 once t > 30 min, seen at the next round
    assert first[:2] == (0, 2100)


@pytest.mark.parametrize("name", MAKERS)
def test_a_borrowed_job_gives_way_at_once_and_an_any_job_is_promoted(name: str) -> None:
    jobs = [
        job("sweep", 0, 8, 10 * HOUR, "a", resumable=True, checkpoint_interval_s=60),
        job("paid", 600, 8, HOUR, "b", min_runtime_s=1800),
    ]
    h = simulate(world(jobs, 1), MAKERS[name](), config=SimConfig())
    assert runs_of(h, 0)[0] == (0, 600, RunEnd.PREEMPTED)
    assert runs_of(h, 1) == [(600, 600 + HOUR, RunEnd.FINISHED)]
    assert [JobEnd(e) for e in h.job_end] == [JobEnd.DONE, JobEnd.DONE]
    assert h.runs.mode.tolist() == [Mode.BORROWED, Mode.ALLOCATED, Mode.BORROWED]


def test_the_window_shows_the_first_of_every_size() -> None:
    jobs = [job(f"big{i}", i, 8, 60, replicas=4) for i in range(9)] + [job("small", 20, 1, 60)]
    state = State(world(jobs, 1), SimConfig())
    window = QueueWindow(depth=3)
    for j in range(len(jobs)):
        state.submit(j)
    window.add(state, range(len(jobs)))
    ids = [state.workload.jobs[j].id for j in window.shown(state)]
    assert ids == ["big0", "big1", "big2", "small"]
