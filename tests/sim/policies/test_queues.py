"""FIFO, SJF, SRTF and partitions on traces small enough to be simulated on paper."""

from __future__ import annotations

from fractions import Fraction

import pytest

from cpalloc.schema import Budget
from cpalloc.schema.types import NodeState, Priority
from cpalloc.sim.config import SimConfig
from cpalloc.sim.history import JobEnd, RunEnd
from cpalloc.sim.policies.areas import largest_remainder, nodes_by_share
from cpalloc.sim.policies.fifo import fifo
from cpalloc.sim.policies.partition import partition
from cpalloc.sim.policies.sjf import sjf
from cpalloc.sim.policies.srtf import Srtf
from cpalloc.sim.simulate import simulate
from cpalloc.sim.state import State
from cpalloc.sim.workload import BudgetChange, NodeEvent, Workload
from sim.worlds import first_starts, job, nodes, runs_of, waits, world


def three() -> Workload:
    """A holds the node; B wants all of it, C a quarter."""
    return world([job("A", 0, 8, 10), job("B", 1, 8, 5), job("C", 2, 2, 3)])


def test_fifo_blocks_behind_the_first_that_does_not_fit() -> None:
    """A 0-10, B 10-15, C 15-18, though C would have fitted nowhere earlier than B."""
    assert waits(simulate(three(), fifo())) == {"A": 0, "B": 9, "C": 13}


def test_fifo_does_not_fill_gaps() -> None:
    w = world([job("A", 0, 4, 10), job("B", 1, 8, 5), job("C", 2, 2, 3)])
    assert waits(simulate(w, fifo())) == {"A": 0, "B": 9, "C": 13}


def test_sjf_serves_the_shortest_and_blocks_behind_it() -> None:
    """At 10 C (3 s) goes before B (5 s), and B waits for it: C 10-13, B 13-18."""
    assert waits(simulate(three(), sjf())) == {"A": 0, "B": 12, "C": 8}


def test_srtf_preempts_for_whoever_needs_less() -> None:
    """B preempts A at 1; C (3 s left) preempts B (4 s left) at 2; C 2-5, B 5-9, A 9-18."""
    h = simulate(three(), Srtf())
    assert waits(h) == {"A": 8, "B": 3, "C": 0}
    assert runs_of(h, 0) == [(0, 1, RunEnd.PREEMPTED), (9, 18, RunEnd.FINISHED)]
    assert runs_of(h, 1) == [(1, 2, RunEnd.PREEMPTED), (5, 9, RunEnd.FINISHED)]


def test_srtf_counts_what_a_restart_costs() -> None:
    """A needs 7 s at 3; preempted it would need 7 + 4. B at 3 needs 6 s: A is preempted and comes after it, 9-20."""
    w = world([job("A", 0, 8, 10, restart_cost_s=4), job("B", 3, 8, 6)])
    assert runs_of(simulate(w, Srtf()), 0) == [(0, 3, RunEnd.PREEMPTED), (9, 20, RunEnd.FINISHED)]


def test_srtf_keeps_gpus_for_what_cannot_be_placed() -> None:
    """D needs a whole node in 4 s and gets the 8 GPUs counted free, which lie on two nodes: nobody takes them."""
    w = world(
        [job("A", 0, 4, 6), job("B", 0, 5, 6), job("D", 1, 7, 4), job("E", 1, 4, 9)],
        2,
    )
    h = simulate(w, Srtf())
    assert first_starts(h) == {"A": 0, "B": 0, "D": 6, "E": 6}


def test_ties_of_submission_go_by_order() -> None:
    w = world([job("A", 0, 8, 5, order=2), job("B", 0, 8, 5, order=1)])
    assert first_starts(simulate(w, fifo())) == {"B": 0, "A": 5}


def test_a_job_that_is_lost_goes_back_to_its_place_in_the_queue() -> None:
    """A restarts before B though it came back after B had been submitted."""
    down, up = NodeEvent(5, "n0", NodeState.DOWN), NodeEvent(6, "n0", NodeState.READY)
    w = world([job("A", 0, 8, 10, resumable=True), job("B", 1, 8, 5)], node_events=(down, up))
    assert runs_of(simulate(w, fifo()), 0) == [(0, 5, RunEnd.LOST), (6, 11, RunEnd.FINISHED)]


@pytest.mark.parametrize("policy", [fifo(partitioned=True), sjf(partitioned=True), Srtf(partitioned=True)])
def test_partitions_do_not_share(policy: object) -> None:
    w = world(
        [job("A", 0, 8, 10, "a"), job("B", 0, 8, 10, "a"), job("C", 0, 8, 3, "b")],
        3,
        team_nodes={"a": ("n1",), "b": ("n0", "n2")},
    )
    h = simulate(w, policy)  # type: ignore[arg-type]
    assert first_starts(h) == {"A": 0, "B": 10, "C": 0}
    assert h.places.node.tolist() == [1, 0, 1]


def test_what_a_partition_can_never_hold_waits_for_ever_and_blocks_nobody() -> None:
    w = world([job("A", 0, 8, 10, "a", replicas=2), job("B", 1, 8, 10, "a")], 2, team_nodes={"a": ("n0",)})
    h = simulate(w, fifo(partitioned=True))
    assert h.job_end.tolist() == [JobEnd.WAITING, JobEnd.DONE]


def test_partition_goes_by_class_and_fills_gaps() -> None:
    """At 0 L takes half of the node; H wants all of it and waits; N, a class lower, overtakes it in the free half."""
    jobs = [
        job("L", 0, 4, 10, priority=Priority.LOW),
        job("H", 1, 8, 5, priority=Priority.HIGH),
        job("N", 1, 4, 20),
        job("M", 2, 8, 5, priority=Priority.HIGH),
    ]
    assert first_starts(simulate(world(jobs), partition())) == {"L": 0, "N": 1, "H": 21, "M": 26}
    assert first_starts(simulate(world(jobs), partition(backfill=False))) == {"L": 0, "H": 10, "M": 15, "N": 20}


def test_nodes_are_dealt_by_share_in_every_pool() -> None:
    mixed = [*nodes(4), *(n.model_copy(update={"name": f"z{n.name}", "gpu_type": "a100"}) for n in nodes(3))]
    w = world([], mixed, teams={"a": 2, "b": 1, "c": 1})
    assert nodes_by_share(State(w, SimConfig())) == [[4, 0, 1], [5, 2], [6, 3]]


def test_largest_remainder_adds_up_and_goes_to_the_largest_first() -> None:
    assert largest_remainder([Fraction(1, 3)] * 3, 4) == [2, 1, 1]
    assert largest_remainder([Fraction(1, 10), Fraction(3, 10), Fraction(6, 10)], 4) == [1, 1, 2]
    assert largest_remainder([Fraction(0), Fraction(0)], 4) == [0, 0]


def test_nodes_are_dealt_anew_when_budgets_change() -> None:
    """From 5 on all four nodes belong to b."""
    w = world(
        [job("A", 0, 8, 20, "a"), job("B", 0, 8, 20, "b"), job("C", 0, 8, 20, "b"), job("D", 0, 8, 20, "b")],
        4,
        teams={"a": 3, "b": 1},
        budget_changes=(BudgetChange(5, (Budget(name="a", weight=0), Budget(name="b", weight=1))),),
    )
    assert first_starts(simulate(w, partition())) == {"A": 0, "B": 0, "C": 5, "D": 5}
