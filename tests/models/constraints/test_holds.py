"""GPUs promised to a blocked gang stay clear of new work that may not leave in time."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from builders import HOUR, MINUTE, Budget, Node, Pending, Running, blamed, decide, hold, job_at, problem
from cpalloc.metrics.reservations import reserve
from cpalloc.models.constraints.holds import Holds, intrusions, room_beside
from cpalloc.models.partition import Partition
from cpalloc.problem.compile import compile_round
from cpalloc.problem.problem import US, Action, Decision, Hold, JobState, Problem, status_quo
from cpalloc.problem.releases import NEVER, release_us, start_release_us
from cpalloc.schema import parse_round
from cpalloc.solver.greedy import greedy
from cpalloc.solver.values import violations
from models.fixing import any_decision, counted, in_turn
from reference.tiny_rounds import tiny_doc

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


# -- room at once -----------------------------------------------------------------------------------------------------


def possible(p: Problem, d: Decision, *, ready: str = "gang", fresh: tuple[Hold, ...] = ()) -> bool:
    """Whether the model has a decision in which a job starts or finds room at once."""
    assert violations(p, d) == []
    told = Partition(
        holds=p.holds + fresh,
        hard=len(p.holds),
        ready=frozenset({job_at(p, ready)} if ready else ()),
        instants=(p.now_us,),
    )
    return counted(p, told, d, "shortfall") is not None


def waiting(
    *jobs: Pending, nodes: int = 1, charged: int = 0, claim: int = 0, yields: bool = False, **gang: Any
) -> Problem:
    """A gang of 8 GPUs a replica, and some jobs, of its budget or of y."""
    return problem(
        nodes=[Node(f"n{i + 1}", within=f"r{i // 2}") for i in range(nodes)],
        jobs=[Pending("gang", gpus=8, **gang), *jobs],
        budgets=[Budget("x", entitled=16, claim=16), Budget("y", charged=charged, claim=claim)],
        levels=["rack"],
        preempt_under_share=yields,
    )


def test_a_job_that_is_ready_starts_or_could_at_once() -> None:
    p = waiting(Pending("a"), nodes=2)
    for d in (status_quo(p), decide(p, start={"gang": "n1"}), decide(p, start={"gang": "n1", "a": "n2"})):
        assert possible(p, d)
    assert possible(p, decide(p, start={"a": "n1"}))  # n2 is free
    p = waiting(Pending("a"))
    assert possible(p, status_quo(p))
    assert not possible(p, decide(p, start={"a": "n1"}))
    assert possible(p, decide(p, start={"a": "n1"}), ready="")


def test_borrowed_work_is_no_obstacle_to_who_is_ready() -> None:
    p = waiting(Pending("a", funding="any"), Running("lent", at="n1", gpus=4))
    assert possible(p, status_quo(p))
    assert possible(p, decide(p, borrow={"a": "n1"}))
    assert not possible(p, decide(p, start={"a": "n1"}))


@pytest.mark.parametrize(("charged", "protected_s", "room"), [(2000, HOUR, False), (2000, 0, True), (500, 0, False)])
def test_allocated_work_is_an_obstacle_unless_it_yields(charged: int, protected_s: int, room: bool) -> None:
    # Over its share and protected no longer it is in nobody's way.
    p = waiting(Running("old", budget="y", at="n1", mode="allocated", protected_s=protected_s), charged=charged)
    assert possible(p, status_quo(p)) == room


def test_what_its_budget_needs_is_an_obstacle_until_it_has_more() -> None:
    # y, with a claim of 8, has old alone, and can spare it once more has started.
    p = waiting(
        Running("old", budget="y", at="n1", gpus=8, mode="allocated"),
        Pending("more", budget="y", gpus=8, nodes=["n2"]),
        Pending("a", gpus=8, nodes=["n2"]),
        nodes=2,
        charged=2000,
        claim=8,
    )
    assert possible(p, status_quo(p))  # on n2
    assert possible(p, decide(p, start={"more": "n2"}))
    assert not possible(p, decide(p, start={"a": "n2"}))


def test_who_is_preempted_is_no_obstacle() -> None:
    # a takes one of the two nodes of old.
    old = Running("old", budget="y", at={"n1": 1, "n2": 1}, gpus=8, replicas=2, mode="allocated")
    p = waiting(old, Pending("a", gpus=8), Pending("b", gpus=8, replicas=2), nodes=2, yields=True)
    assert not possible(p, status_quo(p))
    assert possible(p, decide(p, preempt=["old"], start={"a": "n2"}))
    assert not possible(p, decide(p, preempt=["old"], start={"b": {"n1": 1, "n2": 1}}))


def test_a_promotion_is_an_obstacle() -> None:
    p = waiting(Running("up", at="n1", gpus=2, funding="any"))
    assert possible(p, status_quo(p))
    assert not possible(p, decide(p, promote=["up"]))


def test_room_at_once_is_room_in_one_domain() -> None:
    # Racks of two nodes; a takes some of the first: two nodes are left, in one rack with n2 or n4, else apart.
    p = waiting(Pending("a"), Pending("b"), nodes=4, replicas=2, required="rack")
    assert possible(p, decide(p, start={"a": "n1", "b": "n2"}))
    assert not possible(p, decide(p, start={"a": "n1", "b": "n3"}))
    p = waiting(Pending("a"), Pending("b"), nodes=4, replicas=2)
    assert possible(p, decide(p, start={"a": "n1", "b": "n3"}))


def test_what_this_round_promises_others_is_no_room_and_ones_own_promise_is() -> None:
    # What was promised before may have moved elsewhere, and takes no room here.
    p = waiting(Pending("other", gpus=8), Pending("a"), nodes=2)
    to_other, to_gang = hold(p, "other", {"n1": 8}, in_s=HOUR), hold(p, "gang", {"n1": 8}, in_s=HOUR)
    for kept in (False, True):
        told, fresh = (replace(p, holds=(to_other,)), ()) if kept else (p, (to_other,))
        assert possible(told, status_quo(told), fresh=fresh)  # n2 is free
        assert possible(told, decide(told, start={"a": "n2"}), fresh=fresh) is kept
        # Once other starts nothing is promised to it: on n1 its start is in the way, on n2 the gang has n1.
        assert possible(told, decide(told, start={"other": "n2"}), fresh=fresh)
        assert not possible(told, decide(told, start={"other": "n2", "a": "n1"}), fresh=fresh)
        told, fresh = (replace(p, holds=(to_gang,)), ()) if kept else (p, (to_gang,))
        assert possible(told, decide(told, start={"a": "n2"}), fresh=fresh)


def test_no_decision_that_left_room_at_once_is_taken_away() -> None:
    rng, seen, full = Random("ready"), 0, 0
    for seed in range(150):
        p = compile_round(parse_round(tiny_doc(seed, reservations=True))).problem
        first = in_turn(p, greedy(p))
        drawn = [any_decision(p, rng) for _ in range(3)]
        jobs = reserve(p, first, kept=p.holds)[1]
        for d in [first, *(d for d in drawn if d is not None)] if jobs else []:
            holds, still = reserve(p, d, kept=p.holds, jobs=jobs)
            before = {h.job for h in p.holds}
            told = Partition(
                holds=p.holds + tuple(h for h in holds if h.job not in before),
                hard=len(p.holds),
                served=frozenset(j for j in jobs if d.action[j] == Action.START),
                ready=frozenset(j for j in jobs if d.action[j] == Action.WAIT) - frozenset(still),
                instants=(p.now_us,),
                split=True,
            )
            if told.ready and not list(intrusions(p, d, told.holds[told.hard :], bind_all=True)):
                seen += 1
                assert counted(p, told, d, "shortfall") is not None, (seed, told)
            blocked = replace(told, ready=frozenset(still))
            full += bool(still) and counted(p, blocked, d, "shortfall") is None
    assert min(seen, full) >= 20
