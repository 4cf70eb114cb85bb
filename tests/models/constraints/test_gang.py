"""Whole gangs in one pool; actions and modes that suit the state of each job."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import DOWN, DRAINING, Budget, Node, Pending, Running, blamed, decide, job_at, problem
from cpalloc.models.constraints.gang import Gang
from cpalloc.models.constraints.protection import Protection
from cpalloc.problem.problem import Action, JobState, Mode, Problem, status_quo

RULE = Gang()


@pytest.fixture
def round_() -> Problem:
    """A job in every state."""
    return problem(
        nodes=[Node("n1"), Node("n2", state=DRAINING), Node("n3", state=DOWN)],
        jobs=[
            Pending("pending"),
            Pending("refused", refused=True),
            Running("fixed", at="n1", mode="allocated", protected_s=60),
            Running("evictable", at="n1"),
            Running("drained", at="n2"),
            Running("stopping", at="n1", stopping=True),
            Running("lost", at="n3"),
        ],
    )


def test_the_round_has_every_state(round_: Problem) -> None:
    assert [JobState(int(round_.jobs.state[job_at(round_, s.name.lower())])) for s in JobState] == list(JobState)


def test_accepts_the_status_quo(round_: Problem) -> None:
    assert blamed(RULE, round_, status_quo(round_)) == []


@pytest.mark.parametrize("job", [s.name.lower() for s in JobState])
@pytest.mark.parametrize("action", list(Action))
def test_actions_suit_states(round_: Problem, job: str, action: Action) -> None:
    """Preempting a fixed job is left to ``protection``, which says why it must stay; between them nothing passes."""
    allowed = {
        "pending": {Action.WAIT, Action.START},
        "refused": {Action.WAIT},
        "fixed": {Action.KEEP},
        "evictable": {Action.KEEP, Action.PREEMPT},
        "drained": {Action.PREEMPT},
        "stopping": {Action.PREEMPT},
        "lost": {Action.LOST},
    }
    j = job_at(round_, job)
    d = decide(round_, start={job: "n1"}) if action is Action.START else status_quo(round_)
    d.action[j] = action
    if action is not Action.START:
        d.mode[j] = round_.jobs.mode[j] if action is Action.KEEP else Mode.NONE
    found = blamed(RULE, round_, d) + blamed(Protection(), round_, d)
    assert bool(found) is (action not in allowed[job])
    assert {name for names in found for name in names} <= {job}


def test_accepts_a_whole_gang() -> None:
    p = problem(nodes=[Node("n1"), Node("n2")], jobs=[Pending("a", gpus=4, replicas=3)])
    assert blamed(RULE, p, decide(p, start={"a": {"n1": 2, "n2": 1}})) == []


@pytest.mark.parametrize(
    "places",
    [
        pytest.param([], id="nowhere"),
        pytest.param([("n1", [0, 1])], id="a replica short"),
        pytest.param([("n1", [0, 1]), ("n1", [2, 3]), ("n1", [4, 5])], id="a replica too many"),
        pytest.param([("n1", [0, 1]), ("n1", [2])], id="a GPU short"),
        pytest.param([("n1", [0, 1, 2]), ("n1", [3])], id="split unevenly"),
    ],
)
def test_rejects_part_of_a_gang(places: list[tuple[str, list[int]]]) -> None:
    p = problem(nodes=[Node("n1")], jobs=[Pending("a", gpus=2, replicas=2)])
    assert blamed(RULE, p, decide(p, start={"a": places})) == [("a",)]


def test_rejects_a_gang_in_two_pools() -> None:
    p = problem(nodes=[Node("n1", pool="a100"), Node("n2", pool="h100")], jobs=[Pending("a", replicas=2)])
    assert blamed(RULE, p, decide(p, start={"a": {"n1": 1, "n2": 1}})) == [("a",)]
    assert blamed(RULE, p, decide(p, start={"a": {"n2": 2}})) == []


@pytest.mark.parametrize("job", ["pending", "evictable"])
def test_rejects_a_place_for_what_does_not_start(round_: Problem, job: str) -> None:
    started = decide(round_, start={"pending": "n1"})
    placement = {job_at(round_, job): started.placement[job_at(round_, "pending")]}
    assert blamed(RULE, round_, replace(status_quo(round_), placement=placement)) == [(job,)]


@pytest.mark.parametrize(
    ("funding", "allocated", "borrowed"),
    [("allocated", True, False), ("borrowed", False, True), ("any", True, True)],
)
def test_starts_only_in_a_mode_the_job_may_have(funding: str, allocated: bool, borrowed: bool) -> None:
    p = problem(nodes=[Node("n1")], jobs=[Pending("a", funding=funding)])
    assert (blamed(RULE, p, decide(p, start={"a": "n1"})) == []) is allocated
    assert (blamed(RULE, p, decide(p, borrow={"a": "n1"})) == []) is borrowed


def test_rejects_a_start_without_a_mode() -> None:
    p = problem(nodes=[Node("n1")], jobs=[Pending("a", funding="any")])
    d = decide(p, start={"a": "n1"})
    d.mode[0] = Mode.NONE
    assert blamed(RULE, p, d) == [("a",)]


def promotable(funding: str) -> Problem:
    return problem(nodes=[Node("n1")], jobs=[Running("b", at="n1", funding=funding)], budgets=[Budget("x", claim=8)])


@pytest.mark.parametrize(("funding", "found"), [("any", []), ("borrowed", [("b",)])])
def test_promotes_those_who_may_be(funding: str, found: list[tuple[str, ...]]) -> None:
    p = promotable(funding)
    assert blamed(RULE, p, decide(p, promote=["b"])) == found


def test_rejects_a_promotion_of_what_does_not_stay() -> None:
    p = promotable("any")
    d = decide(p, preempt=["b"])
    d.promoted[0] = True
    assert blamed(RULE, p, d) == [("b",)]


def test_rejects_a_promotion_that_stays_borrowed() -> None:
    p = promotable("any")
    d = decide(p, promote=["b"])
    d.mode[0] = Mode.BORROWED
    assert blamed(RULE, p, d) == [("b",)]


def test_rejects_a_change_of_mode_without_promotion() -> None:
    p = promotable("any")
    d = status_quo(p)
    d.mode[0] = Mode.ALLOCATED
    assert blamed(RULE, p, d) == [("b",)]


@pytest.mark.parametrize("job", ["pending", "refused", "drained", "stopping", "lost"])
def test_rejects_a_mode_for_what_does_not_run(round_: Problem, job: str) -> None:
    d = status_quo(round_)
    d.mode[job_at(round_, job)] = Mode.ALLOCATED
    assert blamed(RULE, round_, d) == [(job,)]
