"""GPUs promised to a blocked gang stay clear of new work that may not leave in time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import HOUR, MINUTE, Budget, Node, Pending, Running, blamed, decide, hold, job_at, problem
from cpalloc.models.constraints.holds import Holds, intrusions, room_beside
from cpalloc.problem.problem import US, JobState, Problem, status_quo
from cpalloc.problem.releases import NEVER, release_us, start_release_us

RULE = Holds()


def promised(kept: int, *jobs: Pending, held_by: str = "over", charged: int = 500, claim: int = 8) -> Problem:
    """Worked decision 7: a node whose ``kept`` GPUs are protected for 3 h, and all 8 promised to ``gang`` at +3 h.

    Budget x (ratio 0.2) has the gang, y (0.5 unless said otherwise) the ``jobs``; ``over`` is over its share.
    """
    p = problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[
            Running("old", budget=held_by, at="n1", gpus=kept, mode="allocated", protected_s=3 * HOUR),
            Pending("gang", budget="x", gpus=8),
            *jobs,
        ],
        budgets=[
            Budget("x", charged=200, claim=8),
            Budget("y", charged=charged, claim=claim),
            Budget("over", charged=2000),
        ],
    )
    return replace(p, holds=(hold(p, "gang", {"n1": 8}, in_s=3 * HOUR),))


def short(name: str = "d", *, timeout_s: int = 15 * MINUTE, min_runtime_s: int = 15 * MINUTE) -> Pending:
    return Pending(name, budget="y", funding="any", min_runtime_s=min_runtime_s, timeout_s=timeout_s)


def test_always_applies() -> None:
    assert RULE.applies(problem(nodes=[]))


def test_accepts_starts_that_leave_in_time() -> None:
    p = promised(7, short())
    assert blamed(RULE, p, decide(p, start={"d": "n1"})) == []


@pytest.mark.parametrize(("timeout_s", "found"), [(3 * HOUR, []), (3 * HOUR + 1, [("d",)]), (-1, [("d",)])])
def test_a_timeout_may_end_with_the_promise_and_no_later(timeout_s: int, found: list[tuple[str, ...]]) -> None:
    p = promised(7, short(timeout_s=timeout_s))
    assert blamed(RULE, p, decide(p, start={"d": "n1"})) == found


@pytest.mark.parametrize(("charged", "claim", "found"), [(1000, 0, [("d",)]), (1001, 0, []), (1001, 8, [("d",)])])
def test_the_protection_of_a_start_ends_it_only_over_its_share_and_without_a_claim(
    charged: int, claim: int, found: list[tuple[str, ...]]
) -> None:
    p = promised(7, short(timeout_s=-1), charged=charged, claim=claim)
    assert blamed(RULE, p, decide(p, start={"d": "n1"})) == found


def test_borrowed_starts_are_free_to_use_it() -> None:
    p = promised(7, short(timeout_s=-1))
    assert blamed(RULE, p, decide(p, borrow={"d": "n1"})) == []


def test_other_nodes_are_free_to_use() -> None:
    p = promised(7, short(timeout_s=-1))
    assert blamed(RULE, p, decide(p, start={"d": "n2"})) == []


def test_better_ranked_jobs_are_not_bound() -> None:
    # y's ratio is 0.1 and the gang's 0.2.
    p = promised(7, short(timeout_s=-1), charged=100)
    assert p.jobs.rank[job_at(p, "d")] < p.jobs.rank[job_at(p, "gang")]
    assert blamed(RULE, p, decide(p, start={"d": "n1"})) == []


def test_promises_of_this_round_bind_whatever_the_rank() -> None:
    # Later tiers may not take away what the delay tier has settled, not even for a better-ranked job.
    p = promised(7, short(timeout_s=-1), charged=100)
    taken = list(intrusions(p, decide(p, start={"d": "n1"}), p.holds, bind_all=True))
    assert [v.jobs for v in taken] == [("d",)]
    assert list(intrusions(p, decide(p, start={"d": "n2"}), p.holds, bind_all=True)) == []


def test_a_promise_kept_binds_no_longer() -> None:
    # The gang starts on n2: d may have n1.
    p = promised(7, short(timeout_s=-1))
    assert blamed(RULE, p, decide(p, start={"gang": "n2", "d": "n1"})) == []


def test_room_beside_what_is_promised() -> None:
    # n1 has 8 healthy GPUs, 4 promised; old (2) has no known release, so it stays: 8 - 2 - 4 = 2 for bound starts.
    p = promised(2, *(short(f"d{i}", timeout_s=-1) for i in range(3)), held_by="x")
    p = replace(p, holds=(hold(p, "gang", {"n1": 4}, in_s=3 * HOUR),))
    assert list(room_beside(p, p.holds[0], status_quo(p)).values()) == [2]
    assert blamed(RULE, p, decide(p, start={"d0": "n1", "d1": "n1"})) == []
    assert blamed(RULE, p, decide(p, start={"d0": "n1", "d1": "n1", "d2": "n1"})) == [("d0", "d1", "d2")]


@pytest.mark.parametrize(("early_s", "room"), [(0, 4), (1, 0)])
def test_what_leaves_in_time_makes_room(early_s: int, room: int) -> None:
    # old (4) is protected for exactly 3 h by a budget over its share. Promised for then: 8 - 0 - 4; earlier: 8 - 4 - 4.
    p = promised(4)
    late = hold(p, "gang", {"n1": 4}, in_s=3 * HOUR - early_s)
    assert list(room_beside(p, late, status_quo(p)).values()) == [room]


def test_only_allocated_work_that_stays_takes_room() -> None:
    # 8 - 4 promised, less 1 of mine, which its budget needs for its claim; lent and stopping work is out of the way.
    p = problem(
        nodes=[Node("n1")],
        jobs=[
            Running("mine", at="n1", mode="allocated"),
            Running("lent", at="n1"),
            Running("stops", at="n1", mode="allocated", stopping=True),
            Pending("gang", gpus=4),
        ],
        budgets=[Budget("x", charged=2000, claim=8)],
    )
    assert p.jobs.state[job_at(p, "mine")] == JobState.EVICTABLE
    assert list(room_beside(p, hold(p, "gang", {"n1": 4}, in_s=60), status_quo(p)).values()) == [3]


def test_what_stays_too_long_already_is_no_reason_to_complain() -> None:
    # old stays on 7 of 8 GPUs although all 8 are promised: nobody new is to blame.
    p = promised(7, short(), held_by="x")
    assert list(room_beside(p, p.holds[0], status_quo(p)).values()) == [0]
    assert blamed(RULE, p, status_quo(p)) == []
    assert blamed(RULE, p, decide(p, start={"d": "n1"})) == []


def test_unhealthy_gpus_are_no_room() -> None:
    # 8 - 2 unhealthy = 6 healthy, 5 promised: 1 is left.
    p = problem(nodes=[Node("n1", unhealthy=[0, 1])], jobs=[Pending("gang", gpus=5), Pending("a"), Pending("b")])
    p = replace(p, holds=(hold(p, "gang", {"n1": 5}, in_s=60),))
    assert blamed(RULE, p, decide(p, start={"a": "n1"})) == []
    assert blamed(RULE, p, decide(p, start={"a": "n1", "b": "n1"})) == [("a", "b")]


def test_every_promise_binds() -> None:
    # late is ranked between the two gangs: the second promise does not bind it, the first does.
    p = problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[Pending("first", gpus=8), Pending("late", gpus=8), Pending("second", gpus=8)],
    )
    p = replace(p, holds=(hold(p, "first", {"n1": 8}, in_s=60), hold(p, "second", {"n2": 8}, in_s=60)))
    assert blamed(RULE, p, decide(p, start={"late": "n1"})) == [("late",)]
    assert blamed(RULE, p, decide(p, start={"late": "n2"})) == []


# -- when jobs leave ------------------------------------------------------------------------------------------------


def running(*, charged: int = 0, claim: int = 0, owner: Running, beside: int = 0) -> Problem:
    """One job of a budget with so much charged and claimed, and ``beside`` further allocated GPUs of the budget."""
    others = [Running("beside", at="n2", gpus=beside, mode="allocated")] if beside else []
    return problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[owner, *others],
        budgets=[Budget("x", charged=charged, claim=claim)],
    )


def after_s(p: Problem, job: str = "j") -> int | None:
    """Seconds until the job leaves in the status quo; None for never."""
    at = release_us(p, status_quo(p), job_at(p, job))
    return None if at == NEVER else (at - p.now_us) // US


def allocated(**spec: int) -> Running:
    """A job of 2 GPUs, 10 h old."""
    return Running("j", at="n1", gpus=2, mode="allocated", **spec)


def test_borrowed_work_is_out_of_the_way_at_once() -> None:
    assert after_s(running(owner=Running("j", at="n1", timeout_s=20 * HOUR))) == 0


@pytest.mark.parametrize(("timeout_s", "left_s"), [(-1, None), (12 * HOUR, 2 * HOUR), (5 * HOUR, 0), (0, 0)])
def test_a_budget_within_its_share_yields_by_timeout_only(timeout_s: int, left_s: int | None) -> None:
    # Started 10 h ago.
    for protected_s in (0, HOUR):
        assert after_s(running(owner=allocated(timeout_s=timeout_s, protected_s=protected_s))) == left_s


def test_a_job_that_is_not_up_counts_from_its_placement() -> None:
    owner = Running("j", at="n1", mode="allocated", up=False, age_s=60, timeout_s=HOUR, protected_s=60)
    assert after_s(running(owner=owner)) == HOUR - 60


@pytest.mark.parametrize(("protected_s", "left_s"), [(HOUR, HOUR), (0, 0)])
def test_a_budget_over_its_share_yields_when_protection_ends(protected_s: int, left_s: int) -> None:
    assert after_s(running(owner=allocated(protected_s=protected_s), charged=2000)) == left_s


@pytest.mark.parametrize(("claim", "left_s"), [(3, HOUR), (4, None)])
def test_only_as_far_as_it_keeps_its_claim(claim: int, left_s: int | None) -> None:
    # 2 + 3 granted, 3 without the job.
    assert after_s(running(owner=allocated(protected_s=HOUR), charged=2000, claim=claim, beside=3)) == left_s


def test_the_claim_is_kept_by_what_the_round_decides() -> None:
    p = problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[allocated(protected_s=HOUR), Pending("more", gpus=2)],
        budgets=[Budget("x", charged=2000, claim=2)],
    )
    assert after_s(p) is None
    started = decide(p, start={"more": "n2"})
    assert release_us(p, started, job_at(p, "j")) == p.now_us + HOUR * US


def test_the_timeout_may_come_before_the_protection_ends() -> None:
    # 10 h old, timeout 10 h 30 min: half an hour, although protected for an hour.
    owner = allocated(protected_s=HOUR, timeout_s=10 * HOUR + 30 * MINUTE)
    assert after_s(running(owner=owner, charged=2000)) == 30 * MINUTE


@pytest.mark.parametrize(
    ("charged", "timeout_s", "left_s"),
    [
        pytest.param(0, -1, None, id="no known end"),
        pytest.param(0, 2 * HOUR, 2 * HOUR, id="timeout"),
        pytest.param(0, 0, 0, id="timeout at once"),
        pytest.param(2000, -1, HOUR, id="protection"),
        pytest.param(2000, 2 * HOUR, HOUR, id="the earlier of both"),
        pytest.param(2000, 60, 60, id="the earlier of both again"),
    ],
)
def test_starts(charged: int, timeout_s: int, left_s: int | None) -> None:
    p = problem(
        nodes=[Node("n1")],
        jobs=[Pending("j", timeout_s=timeout_s, min_runtime_s=HOUR)],
        budgets=[Budget("x", charged=charged)],
    )
    at = start_release_us(p, 0)
    assert at == (NEVER if left_s is None else p.now_us + left_s * US)
    assert release_us(p, decide(p, start={"j": "n1"}), 0) == at
    assert release_us(p, status_quo(p), 0) == p.now_us  # it waits


def test_promotions_are_protected_from_now_and_time_out_from_their_start() -> None:
    # 10 h old; min_runtime 1 h, timeout 12 h.
    for charged, left_s in ((0, 2 * HOUR), (2000, HOUR)):
        p = running(owner=Running("j", at="n1", funding="any", timeout_s=12 * HOUR), charged=charged)
        assert release_us(p, decide(p, promote=["j"]), 0) == p.now_us + left_s * US
