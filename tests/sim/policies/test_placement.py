"""Where placements put gangs, by hand."""

from __future__ import annotations

import pytest

from cpalloc.schema import Node
from cpalloc.sim.config import SimConfig
from cpalloc.sim.policies.best_fit import BestFit
from cpalloc.sim.policies.consolidate import Consolidate
from cpalloc.sim.policies.fgd import Fgd
from cpalloc.sim.policies.placement import Placement, place
from cpalloc.sim.policies.room import Area, Room
from cpalloc.sim.state import State
from sim.worlds import job, nodes, world


def packed(placement: Placement, free: list[int], replicas: int, gpus: int, shapes: list[int] | None = None) -> object:
    """Where a gang goes on nodes of 8 with so many free GPUs; ``shapes``: GPUs of the workload's jobs."""
    jobs = [job(f"j{i}", 0, g, 1) for i, g in enumerate(shapes or [1])]
    state = State(world(jobs, len(free)), SimConfig())
    placement.prepare(state)
    room = Room(state)
    for node, gpus_free in enumerate(free):
        room.take(((node, 0xFF >> gpus_free),))
    return placement.pack(room, replicas, gpus, range(len(free)))


def test_consolidate_takes_the_fullest_node_that_fits() -> None:
    assert packed(Consolidate(), [8, 3, 5, 3], 1, 2) == [(1, 2)]
    assert packed(Consolidate(), [8, 3, 5, 3], 1, 4) == [(2, 4)]
    assert packed(Consolidate(), [8, 3, 5, 3], 2, 2) == [(2, 4)]


def test_consolidate_would_rather_wait_than_spread() -> None:
    assert packed(Consolidate(), [4, 4], 4, 2) is None


def test_consolidate_takes_whole_nodes_for_large_gangs() -> None:
    assert packed(Consolidate(), [8, 7, 8, 8], 2, 8) == [(0, 8), (2, 8)]
    assert packed(Consolidate(), [8, 7, 7, 7], 2, 8) is None


def test_consolidate_puts_what_is_left_where_most_room_is() -> None:
    assert packed(Consolidate(), [5, 8, 6, 7], 7, 2) == [(1, 8), (3, 6)]
    assert packed(Consolidate(), [5, 8, 5, 3], 7, 2) == [(1, 8), (0, 4), (2, 2)]
    assert packed(Consolidate(), [7, 7, 7, 7], 7, 2) is None


def test_best_fit_fills_the_fullest_nodes_one_after_the_other() -> None:
    assert packed(BestFit(), [8, 3, 5, 3], 3, 2) == [(1, 2), (3, 2), (2, 2)]
    assert packed(BestFit(), [8, 3, 5, 3], 2, 4) == [(2, 4), (0, 4)]
    assert packed(BestFit(), [3, 3], 1, 4) is None


def test_fgd_breaks_up_what_nobody_else_can_use() -> None:
    """Jobs of 4 and 8: in a node with 6 free, 6 · P(8) are fragments, with 5 free 5 · P(8), with 3 free all 3.

    Placing 1: 6 → 5 lowers it by 1/2 a GPU, 4 → 3 turns 4 · 1/2 into 3, 8 → 7 turns 0 into 7/2.
    """
    assert packed(Fgd(), [8, 4, 6], 1, 1, [4, 8]) == [(2, 1)]


def test_fgd_and_best_fit_differ() -> None:
    """Jobs of 2 only: 3 → 2 free leaves no fragment (0 → 0), 2 → 1 leaves one; best-fit takes the fullest."""
    assert packed(Fgd(), [3, 2], 1, 1, [2]) == [(0, 1)]
    assert packed(BestFit(), [3, 2], 1, 1, [2]) == [(1, 1)]


def test_fgd_places_replica_by_replica() -> None:
    """Jobs of 2: into 2 and 8 free nothing is lost, into 3 one GPU is."""
    assert packed(Fgd(), [3, 2, 8], 3, 2, [2]) == [(1, 2), (2, 4)]
    assert packed(Fgd(), [3, 2], 3, 2, [2]) is None


def racks() -> list[Node]:
    """Two racks of two nodes."""
    return [n.model_copy(update={"domains": {"rack": f"r{i // 2}"}}) for i, n in enumerate(nodes(4))]


@pytest.mark.parametrize("placement", [BestFit(), Consolidate(), Fgd()])
def test_a_required_domain_is_kept_to_and_the_fullest_is_taken(placement: Placement) -> None:
    w = world([job("j", 0, 4, 1, replicas=3, required_level="rack")], racks(), levels=("rack",))
    state = State(w, SimConfig())
    placement.prepare(state)
    room = Room(state)
    room.take(((3, 0b1),))
    places = place(placement, state, room, Area(state, range(4)), 0)
    assert places is not None
    assert {node for node, _ in places} == {2, 3}
    room.take(((2, 0b1),))  # 7 and 7 hold a replica each
    places = place(placement, state, room, Area(state, range(4)), 0)
    assert places is not None
    assert {node for node, _ in places} == {0, 1}


def test_a_preferred_domain_is_tried_first_and_not_insisted_on() -> None:
    w = world([job("j", 0, 8, 1, replicas=2, preferred_level="rack")], racks(), levels=("rack",))
    state = State(w, SimConfig())
    room, area = Room(state), Area(state, range(4))
    room.take(((0, 0b1),))
    assert place(BestFit(), state, room, area, 0) == ((2, 0xFF), (3, 0xFF))
    room.take(((3, 0b1),))
    assert place(BestFit(), state, room, area, 0) == ((1, 0xFF), (2, 0xFF))


def test_a_gang_stays_in_one_pool_it_accepts() -> None:
    cluster = [*nodes(2), Node(name="x", gpu_type="a100", gpus=8)]
    w = world([job("j", 0, 8, 1, replicas=2), job("k", 0, 8, 1, gpu_types=("a100",))], cluster)
    state = State(w, SimConfig())
    room, area = Room(state), Area(state, range(3))
    assert place(BestFit(), state, room, area, 1) == ((2, 0xFF),)
    room.take(((0, 0b1),))
    assert place(BestFit(), state, room, area, 0) is None


def test_devices_are_taken_from_the_first_free_one() -> None:
    state = State(world([job("j", 0, 3, 1)]), SimConfig())
    room = Room(state)
    room.take(((0, 0b101),))
    assert place(BestFit(), state, room, Area(state, [0]), 0) == ((0, 0b11010),)


def test_what_is_given_back_is_free_again_unless_it_is_out_of_service() -> None:
    state = State(world([job("j", 0, 3, 1)], nodes(1, unhealthy_gpus=(1,))), SimConfig())
    room = Room(state)
    room.take(((0, 0b1101),))
    room.give(((0, 0b0111),))
    assert room.devices == [0b11110101]
    assert room.gpus == [6]
