"""The conventional priority scheduler: classes, preemption, opt-outs, limits, inflation, backfill."""

from __future__ import annotations

from typing import Any

from cpalloc.schema.types import NodeState, Priority
from cpalloc.sim.history import JobEnd, RunEnd
from cpalloc.sim.policies.priority import Priority as PriorityPolicy
from cpalloc.sim.simulate import simulate
from cpalloc.sim.workload import NodeEvent, WorkJob
from sim.worlds import first_starts, job, runs_of, world

NO_LIMITS: Any = {"limit_factor": None}


def low(id: str, at: int, gpus: int, work: int, team: str = "a", **more: Any) -> WorkJob:
    return job(id, at, gpus, work, team, priority=Priority.LOW, **more)


def high(id: str, at: int, gpus: int, work: int, team: str = "a", **more: Any) -> WorkJob:
    return job(id, at, gpus, work, team, priority=Priority.HIGH, **more)


def test_a_higher_class_preempts_the_cheapest_of_lower_ones() -> None:
    """At 10 the old job has lost 4 × 10 GPU-seconds, the young one 4 × 2."""
    old = low("old", 0, 4, 100, resumable=True, checkpoint_interval_s=50)
    w = world([old, low("young", 8, 4, 100), high("h", 10, 4, 5)])
    h = simulate(w, PriorityPolicy(**NO_LIMITS))
    assert runs_of(h, 1) == [(8, 10, RunEnd.PREEMPTED)]
    assert h.job_end.tolist() == [JobEnd.DONE, JobEnd.KILLED, JobEnd.DONE]


def test_no_more_than_needed_is_preempted() -> None:
    """n0 holds A and B, n1 C and D; B, C and D, the cheapest, make room, and B is not needed for it."""
    jobs = [low("A", 0, 6, 100), low("B", 5, 2, 100), low("C", 6, 2, 100), low("D", 6, 6, 100)]
    h = simulate(world([*jobs, high("h", 10, 8, 5)], 2), PriorityPolicy(**NO_LIMITS))
    killed = {w.id for w, end in zip(h.workload.jobs, h.job_end, strict=True) if end == JobEnd.KILLED}
    assert killed == {"C", "D"}
    assert first_starts(h)["h"] == 10


def test_equal_classes_and_opted_out_jobs_are_not_preempted() -> None:
    w = world([high("same", 0, 4, 50), low("out", 0, 4, 50, wants_opt_out=True), high("h", 10, 4, 5)])
    assert first_starts(simulate(w, PriorityPolicy(**NO_LIMITS)))["h"] == 50


def test_inflation_lifts_one_class_and_not_over_urgent() -> None:
    """The normal job that shouts preempts the other; an urgent one that shouts is no more than urgent."""
    w = world([job("n", 0, 8, 50), job("loud", 10, 8, 5, inflates=True)])
    assert first_starts(simulate(w, PriorityPolicy(**NO_LIMITS)))["loud"] == 10
    urgent = [
        job("u", 0, 8, 50, priority=Priority.URGENT),
        job("loud", 10, 8, 5, priority=Priority.URGENT, inflates=True),
    ]
    assert first_starts(simulate(world(urgent), PriorityPolicy(**NO_LIMITS)))["loud"] == 50


def test_jobs_overtake_what_does_not_fit() -> None:
    w = world([job("A", 0, 4, 30), job("big", 1, 8, 5), job("small", 2, 4, 40)])
    assert first_starts(simulate(w, PriorityPolicy(**NO_LIMITS))) == {"A": 0, "small": 2, "big": 42}


def test_a_team_holds_no_more_than_its_limit() -> None:
    """Limit 1 × 1/2 × 16: team a's second job waits though a node is free; b's starts."""
    w = world([job("A", 0, 8, 30), job("A2", 1, 8, 5), job("B", 2, 8, 5, "b")], 2, teams={"a": 1, "b": 1})
    assert first_starts(simulate(w, PriorityPolicy(limit_factor=1))) == {"A": 0, "B": 2, "A2": 30}


def test_a_job_over_the_limit_runs_alone() -> None:
    w = world([job("A", 0, 8, 30), job("big", 1, 8, 5, replicas=2)], 2, teams={"a": 1, "b": 1})
    assert first_starts(simulate(w, PriorityPolicy(limit_factor=1))) == {"A": 0, "big": 30}


def test_a_class_stops_preempting_at_the_first_that_cannot_be_helped() -> None:
    """The pair needs both nodes, of which an opted-out job keeps one: the single behind it must not preempt either."""
    jobs = [
        low("out", 0, 8, 30, wants_opt_out=True),
        low("low", 0, 8, 99),
        high("pair", 5, 8, 5, replicas=2),
        high("single", 6, 8, 5),
    ]
    starts = first_starts(simulate(world(jobs, 2), PriorityPolicy(**NO_LIMITS)))
    assert starts == {"out": 0, "low": 0, "pair": 30, "single": 35}


def test_the_preempted_go_on_where_there_is_room() -> None:
    """h needs a whole node and preempts the 2-GPU job there, which fits next to the other one a second later."""
    w = world([low("L", 0, 6, 50), low("M", 1, 3, 50, resumable=True), low("N", 2, 5, 9), high("h", 20, 8, 100)], 2)
    h = simulate(w, PriorityPolicy(**NO_LIMITS))
    assert runs_of(h, 1) == [(1, 20, RunEnd.PREEMPTED), (50, 81, RunEnd.FINISHED)]
    w = world([low("L", 0, 6, 50), low("M", 1, 2, 7), low("N", 2, 2, 50, resumable=True), high("h", 20, 8, 100)], 2)
    h = simulate(w, PriorityPolicy(**NO_LIMITS))
    assert runs_of(h, 2) == [(2, 20, RunEnd.PREEMPTED), (21, 53, RunEnd.FINISHED)]


def test_no_victim_is_taken_for_gpus_out_of_service() -> None:
    """Preempting what is left on a draining node would free nothing: but nothing is left there."""
    w = world([low("L", 0, 8, 50), high("h", 10, 8, 5)], 2, node_events=(NodeEvent(5, "n1", NodeState.DOWN),))
    h = simulate(w, PriorityPolicy(**NO_LIMITS))
    assert first_starts(h) == {"L": 0, "h": 10}
    assert h.job_end.tolist() == [JobEnd.KILLED, JobEnd.DONE]
