"""GPUs, devices and resources of every node."""

from __future__ import annotations

from dataclasses import replace

from builders import DRAINING, Budget, Node, Pending, Running, blamed, decide, job_at, problem
from cpalloc.models.constraints.capacity import Capacity
from cpalloc.problem.problem import Decision, Problem, Replica

RULE = Capacity()
TWO = [Budget("x"), Budget("y")]


def test_always_applies() -> None:
    assert RULE.applies(problem(nodes=[]))


def test_accepts_starts_that_fill_what_is_free() -> None:
    # 8 - 3 kept = 5 = 2 + 3
    p = problem(nodes=[Node("n1")], jobs=[Running("old", at="n1", gpus=3), Pending("a", gpus=2), Pending("b", gpus=3)])
    assert blamed(RULE, p, decide(p, start={"a": "n1", "b": "n1"})) == []


def test_accepts_the_gpus_of_those_preempted() -> None:
    p = problem(nodes=[Node("n1")], jobs=[Running("v", budget="y", at="n1", gpus=8), Pending("a", gpus=8)], budgets=TWO)
    assert blamed(RULE, p, decide(p, start={"a": "n1"}, preempt=["v"])) == []


def test_rejects_gpus_of_those_kept() -> None:
    # 8 - 3 kept = 5 < 6; GPUs 0-2 are not free.
    p = problem(nodes=[Node("n1")], jobs=[Running("old", at="n1", gpus=3), Pending("a", gpus=6)])
    assert blamed(RULE, p, decide(p, start={"a": "n1"})) == [("a",), ("a",)]


def test_rejects_a_gpu_given_twice() -> None:
    # 1 + 1 of 8 GPUs, but both get GPU 4.
    p = problem(nodes=[Node("n1")], jobs=[Pending("a"), Pending("b")])
    d = decide(p, start={"a": [("n1", [4])], "b": [("n1", [4])]})
    assert blamed(RULE, p, d) == [("b",)]


def test_rejects_a_gpu_given_twice_inside_a_gang() -> None:
    p = problem(nodes=[Node("n1")], jobs=[Pending("a", replicas=2)])
    assert blamed(RULE, p, decide(p, start={"a": [("n1", [4]), ("n1", [4])]})) == [("a",)]


def test_rejects_gpus_that_do_not_exist() -> None:
    p = problem(nodes=[Node("n1")], jobs=[Pending("a")])
    assert blamed(RULE, p, decide(p, start={"a": [("n1", [8])]})) == [("a",)]


def test_rejects_unhealthy_gpus() -> None:
    p = problem(nodes=[Node("n1", unhealthy=[3])], jobs=[Pending("a"), Pending("seven", gpus=7)])
    assert blamed(RULE, p, decide(p, start={"a": [("n1", [3])]})) == [("a",)]
    assert blamed(RULE, p, decide(p, start={"seven": "n1"})) == []


def test_rejects_an_unhealthy_gpu_that_a_victim_leaves() -> None:
    # v ran on GPU 3 before it broke: preempting v frees nothing.
    p = problem(
        nodes=[Node("n1", unhealthy=[3])],
        jobs=[Running("v", budget="y", at=[("n1", [3])]), Pending("a")],
        budgets=TWO,
    )
    assert blamed(RULE, p, decide(p, start={"a": [("n1", [3])]}, preempt=["v"])) == [("a",)]


def test_rejects_gpus_of_stopping_jobs() -> None:
    p = problem(nodes=[Node("n1")], jobs=[Running("stops", at="n1", gpus=2, stopping=True), Pending("a")])
    assert blamed(RULE, p, decide(p, start={"a": [("n1", [1])]})) == [("a",)]
    assert blamed(RULE, p, decide(p, start={"a": [("n1", [2])]})) == []


def test_rejects_gpus_that_a_victim_shares_with_a_stopping_job() -> None:
    p = problem(
        nodes=[Node("n1")],
        jobs=[
            Running("stops", at=[("n1", [0])], stopping=True),
            Running("v", budget="y", at=[("n1", [0, 1])], gpus=2),
            Pending("a"),
        ],
        budgets=TWO,
    )
    assert blamed(RULE, p, decide(p, start={"a": [("n1", [0])]}, preempt=["v"])) == [("a",)]
    assert blamed(RULE, p, decide(p, start={"a": [("n1", [1])]}, preempt=["v"])) == []


def test_rejects_draining_nodes() -> None:
    p = problem(nodes=[Node("n1", state=DRAINING)], jobs=[Pending("a")])
    assert blamed(RULE, p, decide(p, start={"a": "n1"})) == [("a",)]


def test_rejects_nodes_that_are_not_listed() -> None:
    p = problem(nodes=[Node("n1")], jobs=[Pending("a")])
    assert blamed(RULE, p, decide(p, start={"a": "n9"})) == [("a",)]


def with_replica(p: Problem, job: str, replica: Replica) -> Decision:
    """The job started in that very place."""
    d = decide(p, start={job: "n1"})
    return replace(d, placement={job_at(p, job): (replica,)})


def test_rejects_gpus_without_names_where_devices_are_known() -> None:
    p = problem(nodes=[Node("n1")], jobs=[Pending("a", gpus=2)])
    assert blamed(RULE, p, with_replica(p, "a", Replica(0, 2, -1))) == [("a",)]
    assert blamed(RULE, p, with_replica(p, "a", Replica(0, 2, 0b1))) == [("a",)]
    assert blamed(RULE, p, with_replica(p, "a", Replica(0, 2, 0b11))) == []


def test_counts_where_devices_are_unknown() -> None:
    # 8 - 5 = 3 GPUs are free, whichever they are.
    p = problem(
        nodes=[Node("n1", unknown=True)], jobs=[Running("old", at="n1", gpus=5), Pending("a", gpus=3), Pending("b")]
    )
    assert blamed(RULE, p, decide(p, start={"a": "n1"})) == []
    assert blamed(RULE, p, decide(p, start={"a": "n1", "b": "n1"})) == [("a", "b")]


def test_named_devices_where_those_of_others_are_unknown() -> None:
    # Nobody knows what old holds, but GPU 7 is broken, GPU 8 does not exist and GPU 6 is one GPU.
    p = problem(
        nodes=[Node("n1", unknown=True, unhealthy=[7])],
        jobs=[Running("old", at="n1", gpus=5), Pending("a"), Pending("b")],
    )
    assert blamed(RULE, p, decide(p, start={"a": [("n1", [6])]})) == []
    for device in (7, 8):
        assert blamed(RULE, p, decide(p, start={"a": [("n1", [device])]})) == [("a",)]
    assert blamed(RULE, p, decide(p, start={"a": [("n1", [6])], "b": [("n1", [6])]})) == [("b",)]


def test_resources() -> None:
    # cpu: 10 - 4 kept = 6 = 2 · 3, with v gone 10 = 3 · 3 + 1.
    p = problem(
        nodes=[Node("n1", resources={"cpu": 10})],
        jobs=[
            Running("v", budget="y", at="n1", resources={"cpu": 4}),
            Pending("two", replicas=2, resources={"cpu": 3}),
            Pending("three", replicas=3, resources={"cpu": 3}),
        ],
        budgets=TWO,
    )
    assert blamed(RULE, p, decide(p, start={"two": "n1"})) == []
    assert blamed(RULE, p, decide(p, start={"three": "n1"})) == [("three",)]
    assert blamed(RULE, p, decide(p, start={"three": "n1"}, preempt=["v"])) == []


def test_overbooked_resources_bind_only_those_who_want_some() -> None:
    # Kept jobs hold 6 of 4 cpu: no reason to refuse a start that needs none.
    p = problem(
        nodes=[Node("n1", resources={"cpu": 4})],
        jobs=[
            Running("old", at="n1", replicas=2, resources={"cpu": 3}),
            Pending("a"),
            Pending("b", resources={"cpu": 1}),
        ],
    )
    assert blamed(RULE, p, decide(p, start={"a": "n1"})) == []
    assert blamed(RULE, p, decide(p, start={"b": "n1"})) == [("b",)]
