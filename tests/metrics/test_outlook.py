"""What nodes can hold later, node by node and instant by instant."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from builders import HOUR, Budget, Node, Pending, Running, hold, job_at, problem
from cpalloc.generate import GeneratorConfig, generate
from cpalloc.metrics.outlook import Nearby, Outlook
from cpalloc.problem.compile import compile_round
from cpalloc.problem.problem import US, JobState, Mode, Problem, status_quo
from cpalloc.problem.releases import NEVER, release_us
from cpalloc.solver.greedy import greedy

OVER = Budget("over", charged=2000)


def everywhere(told: Problem) -> Nearby:
    return Outlook(told, status_quo(told)).over(np.arange(len(told.nodes.names)))


def in_s(told: Problem, instants_us: np.ndarray) -> list[float]:
    return [(int(t) - told.now_us) / US for t in instants_us]


def test_protections_end_and_timeouts_come() -> None:
    told = problem(
        nodes=[Node("n1"), Node("n2"), Node("n3")],
        jobs=[
            Running("ends", budget="over", gpus=6, at="n1", mode="allocated", protected_s=HOUR),
            Running("times-out", gpus=8, at="n2", mode="allocated", age_s=HOUR, timeout_s=3 * HOUR),
            Running("stays", gpus=5, at="n3", mode="allocated"),
            Running("borrows", gpus=2, at="n1"),
            Pending("gang", gpus=4, replicas=3),
        ],
        budgets=[OVER, Budget("x")],
    )
    nearby, gang = everywhere(told), job_at(told, "gang")
    assert in_s(told, nearby.instants) == [0, HOUR, 2 * HOUR]
    assert [nearby.slots(gang, t).tolist() for t in nearby.instants.tolist()] == [[0, 0, 0], [2, 0, 0], [2, 2, 0]]
    assert nearby.earliest_us(gang) == told.now_us + 2 * HOUR * US
    ready_us = nearby.ready_us(gang, np.array([2, 2, 0]), told.now_us + 2 * HOUR * US)
    assert in_s(told, ready_us) == [HOUR, 2 * HOUR, 0]


def test_a_budget_gives_back_only_what_is_over_its_claim() -> None:
    jobs = [
        Running(name, budget="over", gpus=4, at=name, mode="allocated", protected_s=left)
        for name, left in (("n1", 2 * HOUR), ("n2", HOUR))
    ]
    told = problem(
        nodes=[Node("n1", gpus=4), Node("n2", gpus=4)],
        jobs=[*jobs, Pending("next", gpus=4), Pending("both", gpus=4, replicas=2)],
        budgets=[Budget("over", charged=2000, claim=4), Budget("x")],
    )
    nearby = everywhere(told)
    assert in_s(told, nearby.instants) == [0, HOUR]  # n2's comes first, and then nothing is left to give
    assert nearby.earliest_us(job_at(told, "next")) == told.now_us + HOUR * US
    assert nearby.earliest_us(job_at(told, "both")) is None


def two_to_spare(free: int = 0) -> Problem:
    """y could spare half of what it has from 1 h on, on n1 or on n2; its jobs there time out after 9 h."""
    over = Running("", budget="y", gpus=8 - free, mode="allocated", protected_s=HOUR, timeout_s=19 * HOUR)
    return problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[
            replace(over, name="r1", at="n1"),
            replace(over, name="r2", at="n2"),
            Pending("a", budget="x", gpus=5),
            Pending("b", budget="z", gpus=5),
        ],
        budgets=[Budget("x", claim=8), Budget("y", charged=2000, claim=8 - free), Budget("z", claim=8)],
    )


def test_a_budget_spares_nothing_twice() -> None:
    told = two_to_spare()
    outlook, second = Outlook(told, status_quo(told)), np.array([1])
    b = job_at(told, "b")
    promised = hold(told, "a", {"n1": 5}, in_s=HOUR)
    assert outlook.over(second).earliest_us(b) == told.now_us + HOUR * US
    outlook.book(promised)
    assert outlook.relied == {job_at(told, "r1")}
    assert outlook.over(second).earliest_us(b) == told.now_us + 9 * HOUR * US
    outlook.unbook(promised)
    assert outlook.relied == frozenset()
    assert outlook.over(second).earliest_us(b) == told.now_us + HOUR * US


@pytest.mark.parametrize(
    ("free", "in_s", "relied"), [(3, HOUR, {"r1"}), (5, HOUR, set()), (0, 9 * HOUR, set()), (0, HOUR // 2, set())]
)
def test_a_promise_relies_on_no_more_than_it_needs(free: int, in_s: int, relied: set[str]) -> None:
    # With 5 GPUs free beside it, or once it is gone by its timeout, nothing has to be spared; nor can it be protected.
    told = two_to_spare(free)
    outlook = Outlook(told, status_quo(told))
    outlook.book(hold(told, "a", {"n1": 5}, in_s=in_s))
    assert {told.jobs.ids[j] for j in outlook.relied} == relied


@pytest.mark.parametrize(
    ("claim", "gpus", "relied"),
    [
        (4, {"n1": 4, "n2": 4}, {"a", "c"}),  # 6 GPUs to spare: 4 for n1, and b does not fit beside that
        (0, {"n1": 4, "n2": 4}, {"a", "b"}),
        (8, {"n2": 4}, {"c"}),  # 2 to spare
        (8, {"n2": 8}, {"b", "c"}),  # whoever was promised that relies on it, to spare or not
    ],
)
def test_a_promise_relies_on_what_can_be_spared_together(claim: int, gpus: dict[str, int], relied: set[str]) -> None:
    run = Running("", budget="y", gpus=4, mode="allocated")
    told = problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[
            replace(run, name="a", at="n1"),
            replace(run, name="b", at="n2"),
            replace(run, name="c", at="n2", gpus=2, protected_s=HOUR),
            Running("stays", budget="x", at="n1", gpus=4, mode="allocated"),
            Pending("gang", budget="x", gpus=4, replicas=2),
        ],
        budgets=[Budget("x", claim=8), Budget("y", charged=2000, claim=claim)],
    )
    outlook = Outlook(told, status_quo(told))
    outlook.book(hold(told, "gang", gpus, in_s=2 * HOUR))
    assert {told.jobs.ids[j] for j in outlook.relied} == relied


def test_who_leaves_by_its_timeout_is_relied_on_by_nobody() -> None:
    # y can spare 6 GPUs. By the order of its protections old and its first job of 4 would use them up; but that one is
    # gone by its timeout when the gang begins, which needs the other two gone as well.
    run = Running("", budget="y", at="n1", gpus=2, mode="allocated")
    told = problem(
        nodes=[Node("n1")],
        jobs=[
            replace(run, name="first", gpus=4, protected_s=2 * HOUR, timeout_s=13 * HOUR),
            replace(run, name="last", protected_s=2 * HOUR, timeout_s=16 * HOUR),
            replace(run, name="old"),
            Pending("a", budget="x", gpus=8),
        ],
        budgets=[Budget("x", claim=8), Budget("y", charged=2000, claim=2)],
    )
    outlook = Outlook(told, status_quo(told))
    outlook.book(hold(told, "a", {"n1": 8}, in_s=3 * HOUR))
    assert {told.jobs.ids[j] for j in outlook.relied} == {"last", "old"}


def test_where_more_than_gpus_counts_a_promise_may_rely_on_all_that_is_spared() -> None:
    told = two_to_spare(5)
    told = replace(told, jobs=replace(told.jobs, same_gpu_group=told.jobs.same_gpu_group | True))
    outlook = Outlook(told, status_quo(told))
    outlook.book(hold(told, "a", {"n1": 5}, in_s=HOUR))
    assert outlook.relied == {job_at(told, "r1")}


def test_of_several_jobs_on_a_node_those_are_relied_on_that_are_spared_first() -> None:
    small = Running("", budget="y", at="n1", gpus=2, mode="allocated", timeout_s=19 * HOUR)
    told = problem(
        nodes=[Node("n1")],
        jobs=[
            *(replace(small, name=f"r{i}", protected_s=i * HOUR) for i in (3, 2, 1)),
            Pending("a", budget="x", gpus=6),
        ],
        budgets=[Budget("x", claim=8), Budget("y", charged=2000)],
    )
    outlook = Outlook(told, status_quo(told))
    outlook.book(hold(told, "a", {"n1": 6}, in_s=5 * HOUR))
    assert {told.jobs.ids[j] for j in outlook.relied} == {"r1", "r2"}  # two GPUs are free


def test_groups_promises_and_exclusive_nodes_narrow_it() -> None:
    told = problem(
        nodes=[Node("n1", groups=(range(4), range(4, 8)))],
        jobs=[
            Running("stays", gpus=2, at=[("n1", [3, 4])], mode="allocated"),
            Pending("any", gpus=2),
            Pending("grouped", gpus=2, same_gpu_group=True),
            Pending("alone", gpus=2, exclusive=True),
        ],
    )
    outlook = Outlook(told, status_quo(told))

    def slots(name: str) -> int:
        return int(outlook.over(np.array([0])).slots(job_at(told, name), told.now_us)[0])

    assert [slots(name) for name in ("any", "grouped", "alone")] == [3, 2, 0]
    outlook.promised[0] = 4
    assert [slots(name) for name in ("any", "grouped", "alone")] == [1, 1, 0]


@pytest.mark.parametrize("seed", range(3))
def test_earliest_and_ready_are_the_first_instants_of_all(seed: int) -> None:
    config = GeneratorConfig(nodes=16, seed=seed, family="gang-heavy", nodes_per_rack=4, protected=0.6, timeouts=0.6)
    told = compile_round(generate(config)).problem
    nearby = everywhere(told)
    instants = nearby.instants.tolist()
    assert len(instants) > 3
    for job in np.flatnonzero(told.jobs.state == JobState.PENDING).tolist():
        slots = np.array([nearby.slots(job, t) for t in instants])
        able = np.flatnonzero(slots.sum(axis=1) >= told.jobs.replicas[job])
        assert nearby.earliest_us(job) == (instants[able[0]] if len(able) else None)
        if len(able):
            count = slots[able[0]]
            first = [instants[int(np.flatnonzero(slots[:, n] >= count[n])[0])] for n in range(len(count))]
            assert nearby.ready_us(job, count, instants[able[0]]).tolist() == first


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_job_looked_at_alone_leaves_when_its_release_says(seed: int) -> None:
    told, rng = compile_round(generate(GeneratorConfig(nodes=64, seed=seed))).problem, np.random.default_rng(seed)
    timeout_s = rng.choice([-1, 0, HOUR, 30 * HOUR, NEVER // US, NEVER // US - 2 * 10**9, 10**15], len(told.jobs))
    claim = told.budgets.claim // rng.choice([1, 2, 10**9], len(told.budgets.claim))
    told = replace(
        told, jobs=replace(told.jobs, timeout_s=timeout_s), budgets=replace(told.budgets, claim=claim.astype(np.int64))
    )
    for decision in (status_quo(told), greedy(told)):
        outlook = Outlook(told, decision)
        for job in np.flatnonzero(decision.mode == Mode.ALLOCATED).tolist():
            (at_us,) = outlook.work.releases(np.array([job])).tolist()
            assert at_us == min(NEVER, release_us(told, decision, job))
