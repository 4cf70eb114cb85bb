"""What kept reservations leave to allocated starts, against the definition."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from builders import HOUR, Budget, Node, Pending, Running, hold, job_at, node_at, problem
from cpalloc.problem.problem import Mode, Problem, Replica, status_quo
from cpalloc.solver.beside import Beside
from cpalloc.solver.greedy import start
from cpalloc.solver.placing import GreedyState


def promised(*, in_s: int = 6 * HOUR) -> Problem:
    """``gang`` is promised both nodes, 8 and 4 GPUs; n2 has 3 GPUs of work that stays for ever."""
    told = problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[
            Running("stays", gpus=3, at="n2", mode="allocated", protected_s=HOUR),
            Pending("gang", gpus=4, replicas=3, priority=3),
            Pending("long", gpus=2),
            Pending("short", gpus=2, timeout_s=HOUR),
            Pending("better", gpus=2, priority=4),
        ],
        budgets=[Budget("x", claim=99, entitled=99)],
    )
    return replace(told, holds=(hold(told, "gang", {"n1": 8, "n2": 4}, in_s=in_s),))


def beside(told: Problem) -> Beside:
    return Beside(told, status_quo(told), {})


def most(told: Problem, job: str) -> list[int | None]:
    return [beside(told).most_on(job_at(told, job), node_at(told, n)) for n in ("n1", "n2")]


def test_worse_ranked_work_that_stays_longer_is_bound() -> None:
    told = promised()
    # 8 - 8 held, and 8 - 4 held - 3 that stays
    assert most(told, "long") == [0, 1]


def test_who_leaves_in_time_ranks_higher_or_holds_it_is_not_bound() -> None:
    told = promised()
    assert most(told, "short") == [None, None]
    assert most(told, "better") == [None, None]
    assert most(told, "gang") == [None, None]
    assert most(promised(in_s=HOUR // 2), "short") == [0, 1]


def test_the_limit_is_the_same_for_all_nodes_at_once() -> None:
    told = promised()
    slots = np.array([4, 2])
    beside(told).limit(job_at(told, "long"), slots)
    assert slots.tolist() == [0, 0]
    slots = np.array([4, 2])
    beside(told).limit(job_at(told, "short"), slots)
    assert slots.tolist() == [4, 2]


def test_starts_that_stay_longer_take_from_what_is_left() -> None:
    told = promised()
    long, short, n2 = job_at(told, "long"), job_at(told, "short"), node_at(told, "n2")
    for asked_first in (True, False):
        room = beside(told)
        if asked_first:
            assert room.most_on(long, n2) == 1
        room.started(short, [Replica(n2, 2, 0b11000)])
        assert room.most_on(long, n2) == 1
        room.started(job_at(told, "better"), [Replica(n2, 1, 0b100000)])
        assert room.most_on(long, n2) == 0


def test_a_wish_in_vain_is_not_tried_again_until_something_changes() -> None:
    told = problem(
        nodes=[Node("n1")],
        jobs=[Pending("a", gpus=8, replicas=2), Pending("b", gpus=8, replicas=2), Pending("c")],
        budgets=[Budget("x", claim=99, entitled=99)],
    )
    told = replace(told, jobs=replace(told.jobs, eligibility=np.zeros_like(told.jobs.eligibility)))
    state = GreedyState.after(told, status_quo(told))
    assert not start(state, job_at(told, "a"), Mode.ALLOCATED, may_preempt=False)
    assert len(state.in_vain) == 1
    assert not start(state, job_at(told, "b"), Mode.ALLOCATED, may_preempt=False)
    assert len(state.in_vain) == 1
    assert start(state, job_at(told, "c"), Mode.ALLOCATED, may_preempt=False)
    assert not state.in_vain
