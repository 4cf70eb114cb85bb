"""The worked decisions of the policy (section 10), with numbers of our own; every answer must also pass every rule."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import cpalloc
from cpalloc.schema import Allocation, Round, parse_round

Doc = dict[str, Any]

NOW = datetime(2026, 3, 2, 9, tzinfo=UTC)
MINUTE, HOUR = 60, 3600


def ago(seconds: int) -> str:
    return (NOW - timedelta(seconds=seconds)).isoformat()


def later(seconds: int) -> datetime:
    return NOW + timedelta(seconds=seconds)


def host(name: str, gpus: int = 4, **fields: Any) -> Doc:
    return {"name": name, "gpu_type": "gh200", "gpus": gpus, **fields}


def leaf(name: str, ratio: float = 0.5, *, owed_gpu_h: int = 2_000, weight: int = 1, **fields: Any) -> Doc:
    owed = owed_gpu_h * HOUR
    return {
        "name": name,
        "weight": weight,
        "owed_gpu_seconds": owed,
        "charged_gpu_seconds": round(owed * ratio),
        **fields,
    }


def job(name: str, budget: str, gpus: int, *, replicas: int = 1, min_runtime: int = HOUR, **fields: Any) -> Doc:
    return {
        "id": name,
        "budget": budget,
        "replicas": replicas,
        "gpus_per_replica": gpus,
        "submitted_at": ago(10 * MINUTE),
        "min_runtime": min_runtime,
        "resumable": True,
        **fields,
    }


def runs(
    name: str, budget: str, *places: tuple[str, int, int], mode: str = "allocated", age: int, **fields: Any
) -> Doc:
    """A running job; places are (node, first GPU, GPUs)."""
    run_fields = {k: fields.pop(k) for k in ("checkpointed_at", "stopping", "allocated_since") if k in fields}
    fields.setdefault("min_runtime", 0 if mode == "borrowed" else HOUR)
    base = job(name, budget, places[0][2], replicas=len(places), **fields)
    run = {
        "mode": mode,
        "started_at": ago(age),
        "placement": [{"node": n, "gpus": list(range(first, first + count))} for n, first, count in places],
        **run_fields,
    }
    return {**base, "submitted_at": ago(age + MINUTE), "running": run}


def wire(
    nodes: list[Doc], budgets: list[Doc], jobs: list[Doc], *, levels: tuple[str, ...] = (), **policy: Any
) -> Round:
    return parse_round(
        {
            "schema_version": 1,
            "now": ago(0),
            "cluster": {"name": "c", "levels": list(levels), "nodes": nodes},
            "budgets": budgets,
            "jobs": jobs,
            "policy": policy,
            "options": {"time_limit": 20, "workers": 1},
        }
    )


def solved(round_: Round) -> Allocation:
    answer = cpalloc.solve(round_)
    assert not cpalloc.check(round_, answer).violations
    assert answer.stop_reason != "guard_failed"
    return answer


def decide(*args: Any, **kwargs: Any) -> Allocation:
    return solved(wire(*args, **kwargs))


def actions(answer: Allocation) -> dict[str, str]:
    return {d.job: str(d.action) for d in answer.decisions}


def those(answer: Allocation, action: str) -> set[str]:
    return {name for name, what in actions(answer).items() if what == action}


def one(answer: Allocation, name: str) -> Any:
    return next(d for d in answer.decisions if d.job == name)


def nodes_of(answer: Allocation, name: str) -> Counter[str]:
    return Counter(p.node for p in one(answer, name).placement)


def applied(round_: Round, answer: Allocation) -> Round:
    """The round after the answer was carried out at the same instant."""
    doc = round_.model_dump(mode="json", exclude_none=True)
    by = {d.job: d for d in answer.decisions}
    for entry in doc["jobs"]:
        decision = by[entry["id"]]
        if decision.action == "start":
            places = [p.model_dump(mode="json") for p in decision.placement or ()]
            entry["running"] = {"mode": decision.mode, "started_at": doc["now"], "placement": places}
        elif decision.action == "preempt":
            entry["running"]["stopping"] = True
        elif decision.promoted:
            entry["running"] |= {"mode": "allocated", "allocated_since": doc["now"]}
    doc["previous"] = {"reservations": [r.model_dump(mode="json") for r in answer.reservations]}
    return parse_round(doc)


# -- 1-6: who is served -----------------------------------------------------------------------------------------------


def test_01_the_budget_with_the_lower_ratio_goes_first_whatever_the_priority() -> None:
    answer = decide(
        [host("a"), host("b")],
        [leaf("big", 0.60, weight=3), leaf("small", 0.70)],
        [
            runs("held", "big", ("a", 0, 4), age=10 * MINUTE),
            job("calm", "big", 4, priority="normal"),
            job("loud", "small", 4, priority="urgent"),
        ],
    )
    assert those(answer, "start") == {"calm"}


def test_02_idle_days_leave_a_budget_under_its_share_and_its_work_alone() -> None:
    answer = decide(
        [host("a"), host("b")],
        [leaf("long", 1.14, weight=3), leaf("fresh", 0.571)],
        [
            runs("f1", "fresh", ("a", 0, 4), age=20 * HOUR),
            runs("f2", "fresh", ("b", 0, 4), age=20 * HOUR),
            job("more", "fresh", 4),
            job("back", "long", 4),
        ],
    )
    assert those(answer, "keep") == {"f1", "f2"}
    assert one(answer, "more").position < one(answer, "back").position


@pytest.mark.parametrize(("age", "preempted"), [(4 * HOUR - 1, False), (4 * HOUR, True)])
def test_03_protection_ends_on_the_second(age: int, preempted: bool) -> None:
    round_ = wire(
        [host("a")],
        [leaf("fat", 3.0), leaf("thin", 0.0)],
        [runs("old", "fat", ("a", 0, 4), age=age, min_runtime=4 * HOUR), job("new", "thin", 4)],
    )
    answer = solved(round_)
    if not preempted:
        assert actions(answer) == {"old": "keep", "new": "wait"}
        assert one(answer, "new").starts_by == later(1)
        return
    assert actions(answer) == {"old": "preempt", "new": "start"}
    assert one(answer, "old").beneficiaries == ("new",)


def test_03_a_restart_opens_a_new_window() -> None:
    answer = decide([host("a")], [leaf("fat", 3.0)], [job("old", "fat", 4, min_runtime=4 * HOUR)])
    assert one(answer, "old").protected_until == later(4 * HOUR)


@pytest.mark.parametrize(
    ("ratio", "lifted", "preempted"),
    [(0.60, False, False), (0.60, True, True), (1.05, False, True), (1.05, True, True), (1.0, False, False)],
)
def test_04_work_of_a_budget_within_its_share_stays(ratio: float, lifted: bool, preempted: bool) -> None:
    answer = decide(
        [host("a")],
        [leaf("had", ratio), leaf("wants", 0.10)],
        [runs("old", "had", ("a", 0, 4), age=15 * HOUR), job("new", "wants", 4)],
        preempt_under_share=lifted,
    )
    assert those(answer, "preempt") == ({"old"} if preempted else set())


def test_05_borrowed_work_gives_way_at_any_age_and_is_not_charged() -> None:
    answer = decide(
        [host("a")],
        [leaf("lends", 1.4), leaf("borrows", 0.1)],
        [runs("guest", "borrows", ("a", 0, 4), mode="borrowed", age=90), job("owner", "lends", 4)],
    )
    assert actions(answer) == {"guest": "preempt", "owner": "start"}
    assert next(b for b in answer.budgets if b.name == "borrows").granted_gpus == 0


def test_05_a_cap_on_borrowing_is_the_reason_not_capacity() -> None:
    answer = decide(
        [host("a"), host("b"), host("c")],
        [leaf("capped", max_borrowed_gpus=4)],
        [runs("guest", "capped", ("a", 0, 4), mode="borrowed", age=90), job("more", "capped", 2, min_runtime=0)],
    )
    assert one(answer, "more").reason.code == "budget_limit"


def test_06_one_charge_step_splits_what_is_free() -> None:
    """40 free GPUs, 16 GPU-hours between the budgets: 28 and 12."""
    queue = [job(f"x{i:02}", "x", 4) for i in range(30)] + [job(f"y{i}", "y", 4) for i in range(8)]
    answer = decide([host(f"n{i}") for i in range(10)], [leaf("x", 0.5), leaf("y", 0.508)], queue)
    assert Counter(name[0] for name in those(answer, "start")) == {"x": 7, "y": 3}


# -- 7-12: how room is made -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout", [20 * MINUTE, None])
def test_07_backfill_only_by_what_surely_leaves_in_time(timeout: int | None) -> None:
    fields = {} if timeout is None else {"timeout": timeout}
    answer = decide(
        [host("a", 6)],
        [leaf("first", 0.2), leaf("second", 0.5), leaf("over", 2.0)],
        [
            runs("held", "over", ("a", 0, 5), age=HOUR, min_runtime=3 * HOUR),
            job("whole", "first", 6),
            job("short", "second", 1, min_runtime=20 * MINUTE, **fields),
            job("long", "second", 1, min_runtime=6 * HOUR, submitted_at=ago(MINUTE)),
        ],
    )
    assert those(answer, "start") == ({"short"} if timeout else set())
    assert one(answer, "long").reason.code == "reserved"
    assert one(answer, "whole").starts_by == later(2 * HOUR)


def test_08_small_work_goes_into_the_hole() -> None:
    answer = decide(
        [host("a", 6), host("b", 6)],
        [leaf("x")],
        [runs("held", "x", ("a", 0, 4), age=MINUTE), job("small", "x", 2, min_runtime=8 * HOUR)],
        shape_mix=[{"replicas": 1, "gpus_per_replica": 6}],
    )
    assert set(nodes_of(answer, "small")) == {"a"}


def test_09_the_gang_that_fits_the_need_goes() -> None:
    def guests(name: str, first: int, count: int) -> Doc:
        places = [(f"n{i}", 0, 4) for i in range(first, first + count)]
        return runs(name, "guests", *places, mode="borrowed", age=HOUR)

    answer = decide(
        [host(f"n{i}") for i in range(9)],
        [leaf("guests", 0.2), leaf("owner", 0.4)],
        [
            guests("one", 0, 1),
            guests("two", 1, 2),
            guests("two-more", 3, 2),
            guests("four", 5, 4),
            job("gang", "owner", 4, replicas=4),
        ],
    )
    assert those(answer, "preempt") == {"four"}


def test_10_one_scattered_gang_makes_room_for_another() -> None:
    flat = [(f"n{i // 8}", i % 8, 1) for i in range(48)]
    gangs = [runs(f"g{k}", "guests", *flat[k * 6 : k * 6 + 6], mode="borrowed", age=HOUR) for k in range(8)]
    answer = decide(
        [host(f"n{i}", 8) for i in range(6)],
        [leaf("guests", 0.2), leaf("owner", 0.4)],
        [*gangs, job("gang", "owner", 1, replicas=6)],
    )
    assert len(those(answer, "preempt")) == 1
    assert "gang" in those(answer, "start")


def test_11_nothing_is_taken_back_for_nothing() -> None:
    answer = decide(
        [host("a", 6), host("b", 6)],
        [leaf("guests", 0.2), leaf("over", 1.5), leaf("owner", 0.4)],
        [
            runs("guest", "guests", ("a", 0, 6), mode="borrowed", age=HOUR),
            runs("held", "over", ("b", 0, 3), age=HOUR, min_runtime=6 * HOUR),
            job("gang", "owner", 6, replicas=2),
        ],
    )
    assert those(answer, "preempt") == set()
    assert one(answer, "gang").starts_by == later(5 * HOUR)


def test_11_what_one_domain_needs_is_taken_back_there() -> None:
    nodes = [host(f"w{i}", domains={"rack": "west"}) for i in range(2)]
    nodes += [host(f"e{i}", domains={"rack": "east"}, state="down") for i in range(2)]
    answer = decide(
        nodes,
        [leaf("guests", 0.2), leaf("owner", 0.4)],
        [
            runs("g0", "guests", ("w0", 0, 4), mode="borrowed", age=HOUR),
            runs("g1", "guests", ("w1", 0, 4), mode="borrowed", age=HOUR),
            job("gang", "owner", 4, replicas=2, topology={"required": "rack"}),
        ],
        levels=("rack",),
    )
    assert those(answer, "preempt") == {"g0", "g1"}
    assert those(answer, "start") == {"gang"}


def test_12_an_answer_applied_changes_nothing_any_more() -> None:
    flat = [(f"n{i // 4}", i % 4, 1) for i in range(20)]
    round_ = wire(
        [host(f"n{i}") for i in range(5)],
        [leaf("a", 0.9), leaf("b", 0.2)],
        [
            runs("held", "a", *flat[:15], age=5 * MINUTE),
            runs("guest", "b", *flat[15:], mode="borrowed", age=HOUR),
            job("more", "a", 1, replicas=5),
        ],
    )
    answer = solved(round_)
    assert actions(answer) == {"held": "keep", "guest": "preempt", "more": "start"}
    again = solved(applied(round_, answer))
    assert actions(again) == {"held": "keep", "guest": "preempt", "more": "keep"}
    assert one(again, "guest").forced == "stopping"


# -- 13-18: what is lost, what never is -------------------------------------------------------------------------------


def test_13_a_job_that_cannot_resume_is_ended_for_good() -> None:
    answer = decide(
        [host("a"), host("b")],
        [leaf("over", 2.0), leaf("wants", 0.1)],
        [
            runs("frail", "over", ("a", 0, 4), ("b", 0, 4), age=6 * HOUR, min_runtime=6 * HOUR, resumable=False),
            job("new", "wants", 4, replicas=2),
        ],
    )
    gone = one(answer, "frail")
    assert (gone.action, gone.requeue, gone.lost_gpu_seconds) == ("preempt", False, 48 * HOUR)


def test_13_an_equal_job_that_can_resume_goes_instead() -> None:
    answer = decide(
        [host("a"), host("b")],
        [leaf("over", 2.0), leaf("wants", 0.1)],
        [
            runs("frail", "over", ("a", 0, 4), age=6 * HOUR, min_runtime=6 * HOUR, resumable=False),
            runs("tough", "over", ("b", 0, 4), age=6 * HOUR, min_runtime=6 * HOUR, checkpointed_at=ago(5 * MINUTE)),
            job("new", "wants", 4),
        ],
    )
    assert those(answer, "preempt") == {"tough"}
    assert one(answer, "tough").requeue is True


@pytest.mark.parametrize("min_runtime", [4 * HOUR, 2 * HOUR])
def test_14_a_draining_node_takes_nothing_and_lets_protection_end(min_runtime: int) -> None:
    answer = decide(
        [host("a", state="draining", gpus=6), host("b")],
        [leaf("x", 0.3)],
        [
            runs("old", "x", ("a", 0, 4), age=2 * HOUR, min_runtime=min_runtime),
            job("fits-beside", "x", 2),
            job("elsewhere", "x", 4, priority="high"),
        ],
    )
    assert set(nodes_of(answer, "elsewhere")) == {"b"}
    assert one(answer, "fits-beside").action == "wait"
    old = one(answer, "old")
    if min_runtime == 4 * HOUR:
        assert (old.action, old.protected_until) == ("keep", later(2 * HOUR))
    else:
        assert (old.action, old.forced, old.requeue) == ("preempt", "drain", True)


@pytest.mark.parametrize(("replicas", "preempted"), [(5, 0), (3, 12)])
def test_16_no_budget_is_pushed_below_its_claim(replicas: int, preempted: int) -> None:
    """20 GPUs, 8 GPU-hours between the budgets: q0 may claim 6, q1 14 of them."""
    singles = [runs(f"s{i:02}", "q0", (f"n{i // 4}", i % 4, 1), age=9 * HOUR) for i in range(20)]
    answer = decide(
        [host(f"n{i}") for i in range(5)],
        [leaf("q0", 1.100), leaf("q1", 1.096)],
        [*singles, job("gang", "q1", 4, replicas=replicas)],
    )
    assert len(those(answer, "preempt")) == preempted
    if preempted:
        assert len({n for name in those(answer, "preempt") for n in [f"n{int(name[1:]) // 4}"]}) == 3


def test_17_a_gang_that_prefers_one_rack_leaves_the_large_one_whole() -> None:
    racks = {"r0": 11, "r1": 6, "r2": 6}
    nodes = [host(f"{r}-{i:02}", domains={"rack": r}) for r, count in racks.items() for i in range(count)]
    answer = decide(
        nodes,
        [leaf("x")],
        [job("gang", "x", 4, replicas=12, topology={"preferred": "rack"})],
        levels=("rack",),
        shape_mix=[{"replicas": 11, "gpus_per_replica": 4, "level": "rack"}],
    )
    assert Counter(n.split("-")[0] for n in nodes_of(answer, "gang").elements()) == {"r1": 6, "r2": 6}


def test_18_what_never_fits_waits_and_everyone_else_is_served() -> None:
    answer = decide(
        [host("a"), host("b", labels={"zone": "west"})],
        [leaf("x")],
        [
            job("huge", "x", 4, replicas=3),
            job("nowhere", "x", 1, node_selector={"zone": "north"}),
            job("fine", "x", 4, replicas=2),
        ],
    )
    assert those(answer, "start") == {"fine"}
    assert one(answer, "huge").reason.code == one(answer, "nowhere").reason.code == "never_fits"
    assert "zone=north" in one(answer, "nowhere").reason.message


# -- further kinds ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tree", [True, False])
def test_a_programme_under_its_share_shields_its_busy_leaf(tree: bool) -> None:
    under = {"parent": "p"} if tree else {}
    budgets = [leaf("busy", 1.5, owed_gpu_h=1_000, **under), leaf("idle", 0.0, owed_gpu_h=1_000, **under)]
    budgets += [leaf("other", 0.9)] + ([{"name": "p", "weight": 1}] if tree else [])
    answer = decide(
        [host("a"), host("b")],
        budgets,
        [
            runs("b0", "busy", ("a", 0, 4), age=9 * HOUR),
            runs("b1", "busy", ("b", 0, 4), age=9 * HOUR),
            job("new", "other", 4),
        ],
    )
    assert len(those(answer, "preempt")) == (0 if tree else 1)


def test_a_node_that_is_down_loses_its_jobs_and_gives_nothing() -> None:
    answer = decide(
        [host("a", state="down"), host("b")],
        [leaf("x")],
        [runs("gone", "x", ("a", 0, 2), ("b", 0, 2), age=10 * MINUTE), job("new", "x", 4), job("late", "x", 4)],
    )
    assert actions(answer)["gone"] == "lost"
    assert one(answer, "gone").requeue is True
    assert len(those(answer, "start")) == 1


def test_gpus_of_stopping_jobs_are_given_to_nobody() -> None:
    answer = decide(
        [host("a"), host("b")],
        [leaf("x"), leaf("y", 0.1)],
        [
            runs("leaves", "x", ("a", 0, 4), mode="borrowed", age=HOUR, stopping=True),
            job("new", "y", 4),
            job("next", "y", 4, submitted_at=ago(MINUTE)),
        ],
    )
    assert actions(answer) == {"leaves": "preempt", "new": "start", "next": "wait"}
    assert one(answer, "leaves").forced == "stopping"
    assert set(nodes_of(answer, "new")) == {"b"}


def test_a_job_that_takes_either_is_promoted_where_the_claim_reaches() -> None:
    answer = decide(
        [host("a"), host("b")],
        [leaf("x", 0.2), leaf("broke", 0.0, owed_gpu_h=0)],
        [
            runs("guest", "x", ("a", 0, 4), mode="borrowed", age=HOUR, funding="any", min_runtime=2 * HOUR),
            runs("poor", "broke", ("b", 0, 4), mode="borrowed", age=HOUR, funding="any", min_runtime=2 * HOUR),
        ],
    )
    guest = one(answer, "guest")
    assert (guest.action, guest.mode, guest.promoted) == ("keep", "allocated", True)
    assert guest.protected_until == later(2 * HOUR)
    assert (one(answer, "poor").mode, one(answer, "poor").promoted) == ("borrowed", False)


def test_a_cap_of_a_programme_binds_all_its_leaves_and_preempts_nobody() -> None:
    answer = decide(
        [host("a"), host("b"), host("c")],
        [{"name": "p", "weight": 1, "max_gpus": 6}, leaf("x", 0.1, parent="p"), leaf("y", 0.2, parent="p")],
        [
            runs("held", "x", ("a", 0, 4), age=5 * MINUTE),
            job("two", "y", 2),
            job("three", "x", 3),
            job("any", "x", 3, funding="any"),
        ],
    )
    assert actions(answer) == {"held": "keep", "two": "start", "three": "wait", "any": "start"}
    assert one(answer, "any").mode == "borrowed"


def test_cpus_can_bind_before_gpus() -> None:
    answer = decide(
        [host("a", resources={"cpu": 20}), host("b", resources={"cpu": 40})],
        [leaf("x")],
        [
            job("hungry", "x", 1, replicas=3, resources_per_replica={"cpu": 16}),
            job("more", "x", 1, resources_per_replica={"cpu": 16}, submitted_at=ago(MINUTE)),
        ],
    )
    assert actions(answer) == {"hungry": "start", "more": "wait"}
    assert nodes_of(answer, "hungry") == Counter(a=1, b=2)


def test_gangs_lie_in_one_rack_or_one_block_as_they_ask() -> None:
    """Two blocks of two racks of two nodes; b0 has a node in use, so the pair must not split over the racks of b1."""
    names = [(b, r, i) for b in "01" for r in "01" for i in "01"]
    nodes = [host(f"{b}{r}{i}", domains={"block": f"b{b}", "rack": f"b{b}r{r}"}) for b, r, i in names]
    answer = decide(
        nodes,
        [leaf("x")],
        [
            runs("held", "x", ("000", 0, 4), age=MINUTE),
            runs("held-too", "x", ("110", 0, 4), age=MINUTE),
            job("pair", "x", 4, replicas=2, topology={"required": "rack"}),
            job("three", "x", 4, replicas=3, topology={"required": "block"}),
        ],
        levels=("block", "rack"),
    )
    assert those(answer, "start") == {"pair", "three"}
    assert len({n[:2] for n in nodes_of(answer, "pair")}) == 1
    assert len({n[:1] for n in nodes_of(answer, "three")}) == 1
