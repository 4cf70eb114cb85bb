"""What nodes can hold later, node by node and instant by instant."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from builders import HOUR, Budget, Node, Pending, Running, hold, job_at, problem
from cpalloc.generate import GeneratorConfig, generate
from cpalloc.metrics.outlook import Fit, Nearby, Outlook
from cpalloc.metrics.reservations import renew
from cpalloc.problem.compile import compile_round
from cpalloc.problem.problem import US, Hold, JobState, Mode, Problem, status_quo
from cpalloc.problem.releases import NEVER, release_us
from cpalloc.solver.greedy import greedy

OVER = Budget("over", charged=2000)


def everywhere(told: Problem, spared: frozenset[int] = frozenset()) -> Nearby:
    return Outlook(told, status_quo(told)).over(np.arange(len(told.nodes.names)), spared)


def earliest_us(nearby: Nearby, job: int) -> int | None:
    fit = nearby.earliest(job)
    return None if fit is None else fit.at_us


def relied_on(told: Problem, promised: Hold) -> set[str]:
    """Names of the jobs that a promise relies on, renewed on its nodes by its instant; it is earlier if it can be."""
    outlook = Outlook(told, status_quo(told))
    kept = renew(outlook, promised)
    assert kept is not None
    assert outlook.relied == kept.relies_on
    return {told.jobs.ids[j] for j in outlook.relied}


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
    hopefully = [nearby.slots(gang, t, hopefully=True).tolist() for t in nearby.instants.tolist()]
    assert hopefully == [[0, 0, 0], [2, 0, 0], [2, 2, 0]]
    assert [nearby.slots(gang, t).tolist() for t in nearby.instants.tolist()] == [[0, 0, 0], [0, 0, 0], [0, 2, 0]]
    assert nearby.in_doubt(told.now_us) == []
    assert nearby.in_doubt(told.now_us + HOUR * US) == [(job_at(told, "ends"), 0, 6)]
    fit = nearby.earliest(gang)
    assert fit == Fit(told.now_us + 2 * HOUR * US, frozenset([job_at(told, "ends")]))
    ready_us = everywhere(told, fit.spared).ready_us(gang, np.array([2, 2, 0]), told.now_us + 2 * HOUR * US)
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
    assert in_s(told, nearby.instants) == [0, HOUR, 2 * HOUR]
    assert nearby.earliest(job_at(told, "next")) == Fit(told.now_us + HOUR * US, frozenset([job_at(told, "n2")]))
    assert nearby.earliest(job_at(told, "both")) is None  # each would be spared, but not both
    assert nearby.slots(job_at(told, "both"), told.now_us + 2 * HOUR * US, hopefully=True).tolist() == [1, 1]


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
    assert earliest_us(outlook.over(second), b) == told.now_us + HOUR * US
    promised = renew(outlook, hold(told, "a", {"n1": 5}, in_s=HOUR))
    assert promised is not None
    assert outlook.relied == promised.relies_on == {job_at(told, "r1")}
    assert earliest_us(outlook.over(second), b) == told.now_us + 9 * HOUR * US
    outlook.unbook(promised)
    assert outlook.relied == frozenset()
    assert earliest_us(outlook.over(second), b) == told.now_us + HOUR * US


@pytest.mark.parametrize(("free", "in_s", "relied"), [(3, HOUR, {"r1"}), (5, HOUR, set()), (3, 9 * HOUR, {"r1"})])
def test_a_promise_relies_on_no_more_than_it_needs(free: int, in_s: int, relied: set[str]) -> None:
    # With 5 GPUs free beside it nothing has to be spared.
    told = two_to_spare(free)
    assert relied_on(told, hold(told, "a", {"n1": 5}, in_s=in_s)) == relied


def test_what_cannot_be_spared_is_not_promised_before_its_timeout() -> None:
    told = two_to_spare()
    told = replace(told, budgets=replace(told.budgets, claim=told.budgets.claim + 1))  # 7 to spare, of 8
    assert renew(Outlook(told, status_quo(told)), hold(told, "a", {"n1": 5}, in_s=HOUR)) is None
    assert relied_on(told, hold(told, "a", {"n1": 5}, in_s=9 * HOUR)) == set()


@pytest.mark.parametrize(
    ("claim", "gpus", "relied"),
    [
        (2, {"n1": 4, "n2": 4}, {"a", "b"}),
        (4, {"n1": 4, "n2": 4}, {"a", "c"}),  # 6 GPUs to spare: a takes 4 of them, and then only c can go
        (8, {"n2": 4}, {"c"}),  # 2 to spare, beside 2 that are free
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
            Pending("gang", budget="x", gpus=2, replicas=sum(gpus.values()) // 2),
        ],
        budgets=[Budget("x", claim=8), Budget("y", charged=2000, claim=claim)],
    )
    assert relied_on(told, hold(told, "gang", gpus, in_s=2 * HOUR)) == relied


def test_who_leaves_by_its_timeout_is_relied_on_by_nobody() -> None:
    # y can spare 6 GPUs, which its first job of 4 does not need to use up: it is gone by its timeout when the gang
    # begins, and the other two are spared.
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
    kept = renew(outlook, hold(told, "a", {"n1": 8}, in_s=9 * HOUR))
    assert kept is not None
    assert kept.starts_us == told.now_us + 3 * HOUR * US
    assert {told.jobs.ids[j] for j in kept.relies_on} == {"last", "old"}


def test_of_a_domain_those_leave_who_are_where_the_gang_goes() -> None:
    # y can spare one of its jobs. The first whose protection ends is on a node with somebody who stays.
    run = Running("", budget="y", gpus=4, mode="allocated")
    told = problem(
        nodes=[Node("n1"), Node("n2"), Node("n3")],
        jobs=[
            replace(run, name="beside", at="n1"),
            Running("stays", budget="x", at="n1", gpus=4, mode="allocated"),
            replace(run, name="alone", at="n2", protected_s=HOUR),
            replace(run, name="later", at="n3", protected_s=2 * HOUR),
            Pending("gang", budget="x", gpus=8),
        ],
        budgets=[Budget("x", claim=12), Budget("y", charged=2000, claim=8)],
    )
    fit = everywhere(told).earliest(job_at(told, "gang"))
    assert fit == Fit(told.now_us + HOUR * US, frozenset([job_at(told, "alone")]))


def test_who_wants_nodes_to_itself_needs_all_who_are_on_them_gone() -> None:
    run = Running("", budget="y", gpus=4, mode="allocated", protected_s=HOUR)
    told = problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[
            replace(run, name="half", at="n1"),
            *(replace(run, name=f"other{i}", at="n2", protected_s=0) for i in (1, 2)),
            Pending("gang", budget="x", gpus=4, exclusive=True),
        ],
        budgets=[Budget("x", claim=8), Budget("y", charged=2000, claim=8)],
    )
    # 4 GPUs to spare: enough for n1, of which half is free, and not for n2.
    fit = everywhere(told).earliest(job_at(told, "gang"))
    assert fit == Fit(told.now_us + HOUR * US, frozenset([job_at(told, "half")]))


def test_what_only_gpus_would_allow_is_not_promised() -> None:
    # 2 GPUs to spare: by number whoever goes makes room for 4 beside 2 that are free, in one group only high does.
    run = Running("", budget="y", gpus=2, mode="allocated", age_s=0, timeout_s=9 * HOUR)
    told = problem(
        nodes=[Node("n1", groups=(range(4), range(4, 8)))],
        jobs=[
            replace(run, name="low", at=[("n1", [0, 1])]),
            replace(run, name="mid", at=[("n1", [2, 3])], protected_s=HOUR),
            replace(run, name="high", at=[("n1", [5, 6])], protected_s=2 * HOUR),
            Pending("gang", budget="x", gpus=4, same_gpu_group=True),
        ],
        budgets=[Budget("x", claim=8), Budget("y", charged=2000, claim=4)],
    )
    assert earliest_us(everywhere(told), job_at(told, "gang")) == told.now_us + 9 * HOUR * US


@pytest.mark.parametrize("grouped", [False, True])
def test_where_more_than_gpus_counts_a_promise_may_rely_on_all_that_is_spared(grouped: bool) -> None:
    # The job on the second group would have to stay for a free group of two GPUs, were they in one group.
    run = Running("", budget="y", gpus=2, mode="allocated")
    told = problem(
        nodes=[Node("n1", gpus=8, groups=(range(4), range(4, 8)))],
        jobs=[
            replace(run, name="low", at=[("n1", [1, 2])]),
            replace(run, name="high", at=[("n1", [5, 6])]),
            Pending("gang", budget="x", gpus=4, same_gpu_group=grouped),
        ],
        budgets=[Budget("x", claim=8), Budget("y", charged=2000)],
    )
    relied = {"low", "high"} if grouped else set()
    assert relied_on(told, hold(told, "gang", {"n1": 4}, in_s=HOUR)) == relied


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
    assert relied_on(told, hold(told, "a", {"n1": 6}, in_s=5 * HOUR)) == {"r1", "r2"}  # two GPUs are free


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
        fit = nearby.earliest(job)
        hoped = np.array([nearby.slots(job, t, hopefully=True).sum() for t in instants]) >= told.jobs.replicas[job]
        assert fit is not None or not hoped.any()  # here budgets over their share claim nothing, and may spare all
        if fit is None:
            continue
        assert fit.at_us == instants[int(np.flatnonzero(hoped)[0])]
        spared = everywhere(told, fit.spared)
        slots = np.array([spared.slots(job, t) for t in instants])
        able = np.flatnonzero(slots.sum(axis=1) >= told.jobs.replicas[job])
        assert fit.at_us == instants[able[0]]
        count = slots[able[0]]
        first = [instants[int(np.flatnonzero(slots[:, n] >= count[n])[0])] for n in range(len(count))]
        assert spared.ready_us(job, count, fit.at_us).tolist() == first


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
            assert outlook.work.spared_us(np.array([job])).tolist() == [min(NEVER, release_us(told, decision, job))]
