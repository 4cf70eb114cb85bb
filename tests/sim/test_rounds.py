"""Rounds of a simulation: what stays the same from one to the next is the same object, what does not is told anew."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from cpalloc.problem.problem import Mode, NodeState
from cpalloc.schema import Round, snapshot_issues
from cpalloc.schema import request as wire
from cpalloc.sim.config import SimConfig
from cpalloc.sim.rounds import RoundMaker
from cpalloc.sim.state import State

from .worlds import EPOCH, HOUR, job, world


def state_of(*, every_s: int = HOUR) -> State:
    """``run`` (2 replicas of 2 GPUs, borrowed) runs on n0 from the start, ``wait`` waits."""
    run = job("run", 0, 2, 9 * HOUR, replicas=2, resumable=True, min_runtime_s=HOUR, checkpoint_interval_s=every_s)
    state = State(world([run, replace(run, id="wait", order=1)], 2), SimConfig())
    state.submit(0)
    state.submit(1)
    state.start(0, Mode.BORROWED, ((0, 0b1111),), -1)
    return state


def made(maker: RoundMaker, state: State, at_s: int) -> Round:
    state.now_s = at_s
    round_, index = maker.make(state, state.pending, ())
    fresh, _ = RoundMaker(wire.Options()).make(state, state.pending, ())
    assert round_ == fresh
    assert snapshot_issues(round_) == []
    assert index == {name: ["run", "wait"].index(name) for name in (j.id for j in round_.jobs)}
    return round_


def row(round_: Round, name: str) -> wire.Job:
    return next(j for j in round_.jobs if j.id == name)


def running(round_: Round) -> wire.Running:
    told = row(round_, "run").running
    assert told is not None
    return told


def test_what_has_not_changed_is_the_same_object() -> None:
    state, maker = state_of(), RoundMaker(wire.Options())
    first, second = made(maker, state, 60), made(maker, state, 120)
    assert first.cluster is second.cluster
    assert all(a is b for a, b in zip(first.jobs, second.jobs, strict=True))
    assert [p.gpus for p in running(first).placement] == [(0, 1), (2, 3)]


def test_a_checkpoint_is_told_and_the_places_stay() -> None:
    state, maker = state_of(), RoundMaker(wire.Options())
    first, second = made(maker, state, HOUR - 1), made(maker, state, HOUR)
    assert running(first).checkpointed_at is None
    assert running(second).checkpointed_at == EPOCH + timedelta(seconds=HOUR)
    assert running(first).placement is running(second).placement


def test_a_promotion_is_told() -> None:
    state, maker = state_of(), RoundMaker(wire.Options())
    made(maker, state, 60)
    state.now_s = 120
    state.promote(0, 120 + HOUR)
    told = running(made(maker, state, 180))
    assert told.mode == "allocated"
    assert told.allocated_since == EPOCH + timedelta(seconds=120)


def test_a_restart_elsewhere_is_told_and_a_stop_forgotten() -> None:
    state, maker = state_of(), RoundMaker(wire.Options())
    made(maker, state, 60)
    state.stop(0, 0)
    state.submit(0)
    assert row(made(maker, state, 60), "run").running is None
    state.start(0, Mode.BORROWED, ((1, 0b1111),), -1)
    assert {p.node for p in running(made(maker, state, 60)).placement} == {"n1"}


def test_another_state_of_a_node_is_another_cluster() -> None:
    state, maker = state_of(), RoundMaker(wire.Options())
    first = made(maker, state, 60)
    state.set_node_state(1, NodeState.DRAINING)
    second = made(maker, state, 120)
    assert second.cluster is not first.cluster
    assert [node.state for node in second.cluster.nodes] == ["ready", "draining"]
