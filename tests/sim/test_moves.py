"""Illegal moves are refused, naming the policy, the instant and what is wrong."""

from __future__ import annotations

import pytest

from cpalloc.problem.problem import Mode
from cpalloc.schema import Node
from cpalloc.schema.types import Funding, NodeState
from cpalloc.sim.moves import IllegalMove
from cpalloc.sim.policies.base import Moves, Start
from cpalloc.sim.simulate import simulate
from cpalloc.sim.workload import NodeEvent, Workload
from sim.worlds import Scripted, allocated, borrowed, job, nodes, world


def refused(w: Workload, script: dict[int, Moves], *, protects: bool = True) -> str:
    with pytest.raises(IllegalMove) as error:
        simulate(w, Scripted(script, protects=protects))
    return str(error.value)


FULL = (0, 0xFF)
PAIR = [job("j", 0, 8, 50, min_runtime_s=20), job("k", 10, 8, 50)]


@pytest.mark.parametrize(
    ("start", "why"),
    [
        (borrowed(0, (0, 0x1FF)), "are not free"),
        (borrowed(0, (1, 0xFF)), "are not free"),
        (borrowed(0, (-1, 0xFF)), "are not free"),
        (borrowed(0, (0, 0)), "are not free"),
        (borrowed(0, (0, 0x7F)), "no whole replicas of 8"),
        (borrowed(0), "0 GPUs are not the 8"),
        (borrowed(1, FULL), "not pending"),
        (borrowed(9, FULL), "not pending"),
        (Start(0, Mode.NONE, (FULL,)), "no mode"),
    ],
)
def test_starts_that_cannot_be(start: Start, why: str) -> None:
    message = refused(world([job("j", 0, 8, 50), job("k", 10, 8, 50)]), {0: Moves(starts=[start])}, protects=False)
    assert message.startswith("policy `scripted` at 0 s: ")
    assert why in message


def test_a_gpu_is_not_given_twice() -> None:
    w = world([job("j", 0, 4, 50), job("k", 0, 4, 50)])
    assert "not free" in refused(w, {0: Moves(starts=[borrowed(0, (0, 0xF)), borrowed(1, (0, 0x78))])})


def test_a_gang_is_not_started_in_part_and_lists_a_node_once() -> None:
    w = world([job("j", 0, 4, 50, replicas=2)], 2)
    assert "4 GPUs are not the 8" in refused(w, {0: Moves(starts=[borrowed(0, (0, 0xF))])})
    assert "twice" in refused(w, {0: Moves(starts=[borrowed(0, (0, 0xF), (0, 0xF0))])})


def test_a_gang_keeps_to_its_pool_type_and_domain() -> None:
    mixed = [*nodes(1), Node(name="x", gpu_type="a100", gpus=8)]
    both = {0: Moves(starts=[borrowed(0, (0, 0xFF), (1, 0xFF))])}
    w = world([job("j", 0, 8, 50, replicas=2)], [*mixed, *(n.model_copy(update={"name": "y"}) for n in nodes(1))])
    assert "GPU types" in refused(w, both)
    w = world([job("j", 0, 8, 50, gpu_types=("a100",))], mixed)
    assert "GPU type" in refused(w, {0: Moves(starts=[borrowed(0, (0, 0xFF))])})
    racks = [n.model_copy(update={"domains": {"rack": f"r{i // 2}"}}) for i, n in enumerate(nodes(4))]
    w = world([job("j", 0, 8, 50, replicas=2, required_level="rack")], racks, levels=("rack",))
    assert "domains of level `rack`" in refused(w, {0: Moves(starts=[borrowed(0, (1, 0xFF), (2, 0xFF))])})


def test_nothing_starts_on_a_node_that_is_not_ready() -> None:
    w = world([job("j", 5, 8, 50)], 2, node_events=(NodeEvent(1, "n0", NodeState.DRAINING),))
    assert "not free" in refused(w, {5: Moves(starts=[borrowed(0, FULL)])})


def test_protected_work_is_not_preempted() -> None:
    script = {0: Moves(starts=[allocated(0, FULL)]), 10: Moves(preempts=[0])}
    assert "protected until 20 s" in refused(world(PAIR), script)
    simulate(world(PAIR), Scripted(script, protects=False))  # promised by nobody


def test_what_does_not_run_is_not_preempted() -> None:
    assert "does not run" in refused(world(PAIR), {0: Moves(preempts=[0])})
    assert "does not run" in refused(world(PAIR), {0: Moves(preempts=[-1])})


def test_what_is_preempted_does_not_start_in_the_same_round() -> None:
    w = world([job("j", 0, 8, 50, resumable=True), job("k", 10, 8, 50)])
    script = {0: Moves(starts=[borrowed(0, FULL)]), 10: Moves(preempts=[0], starts=[borrowed(0, FULL)])}
    assert "preempted in this round" in refused(w, script)


@pytest.mark.parametrize(
    ("funding", "minimum", "start"),
    [
        (None, 0, allocated(0, FULL)),
        (None, 10, borrowed(0, FULL)),
        (Funding.BORROWED, 10, allocated(0, FULL)),
        (Funding.ALLOCATED, 10, borrowed(0, FULL)),
    ],
)
def test_modes_follow_funding_where_they_mean_something(funding: Funding | None, minimum: int, start: Start) -> None:
    w = world([job("j", 0, 8, 50, funding=funding, min_runtime_s=minimum)])
    assert "funding" in refused(w, {0: Moves(starts=[start])})
    simulate(w, Scripted({0: Moves(starts=[start])}, protects=False))


def test_only_borrowed_work_that_may_be_allocated_is_promoted() -> None:
    assert "not run borrowed" in refused(world(PAIR), {0: Moves(promotes=[0])})
    script = {0: Moves(starts=[borrowed(0, FULL)]), 10: Moves(promotes=[0])}
    assert "funding" in refused(world([job("j", 0, 8, 50), job("k", 10, 8, 50)]), script)
