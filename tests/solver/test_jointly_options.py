"""What promises given all together choose from: nothing that would not be chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from builders import Budget, Node, Pending, decide, hold, job_at, problem
from cpalloc.metrics.outlook import Outlook
from cpalloc.metrics.reservations import reserve
from cpalloc.problem.problem import US, Decision, Hold, Problem, Tier, status_quo
from cpalloc.solver import incumbent, jointly
from cpalloc.solver.incumbent import Incumbent
from cpalloc.solver.jointly import promised_jointly
from gangs import delay, gangs, mostly_held, until


def in_turn(p: Problem, jobs: Sequence[int]) -> Decision:
    """The status quo with its promises, given one after the other."""
    holds, blocked = reserve(p, status_quo(p), jobs=jobs)
    return replace(status_quo(p), reservations=holds, blocked=blocked)


def wide(rng: Random) -> Problem:
    """Eight to twelve nodes of four GPUs in three racks, mostly held for some hours; two to four gangs wait."""
    nodes = [Node(f"n{i}", gpus=4, within=f"r{i % 3}") for i in range(rng.randint(8, 12))]
    jobs: list[Pending] = [*mostly_held(nodes, [0, 2, 2, 4, 4], rng)]
    for i in range(rng.randint(2, 4)):
        required = rng.choice(["cluster", "cluster", "rack"])
        new = Pending(f"g{i}", gpus=rng.choice([1, 2, 4, 4]), replicas=rng.choice([1, 2, 3]), required=required)
        jobs.append(replace(new, max_per_node=rng.choice([0, 0, 1]), exclusive=rng.random() < 0.1))
    return problem(nodes=nodes, jobs=jobs, budgets=[Budget("x", claim=64), Budget("z", claim=64)], levels=["rack"])


def test_what_is_left_out_is_of_no_use(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, add, sizes, better, fewer, times = Random("options"), jointly._Model.add, list[int](), 0, 0, [1]

    def noted(self: jointly._Model, job: int, most: int, among: Sequence[int]) -> int | None:
        least = add(self, job, most, [*among] * times[0])
        sizes.append(self.size)
        return least

    monkeypatch.setattr(jointly._Model, "add", noted)
    for _ in range(400):
        p = wide(rng)
        jobs = gangs(p)
        rng.shuffle(jobs)
        before, worth, stated = in_turn(p, jobs), list[int](), list[int]()
        for times[0] in (100, 1):  # beside a hundred of each there is never room, and nothing is left out
            sizes.clear()
            worth.append(delay(p, promised_jointly(p, before, (), jobs)))
            stated.append(sizes[-1] if sizes else 0)
        assert worth[0] == worth[1]
        assert stated[1] <= stated[0]
        better += worth[1] < delay(p, before)
        fewer += stated[1] < stated[0]
    assert better >= 20
    assert fewer >= 40


def crowded() -> Problem:
    """big, which wants four nodes, is held at 5 h on the only node that is free, and one and two wait for that."""
    hours = {2: 5, 3: 5, 4: 5, 5: 7, 6: 8, 7: 20, 8: 30, 9: 40}
    p = problem(
        nodes=[Node(f"n{i}") for i in range(1, 10)],
        jobs=[
            *(until(f"n{i}", h) for i, h in hours.items()),
            Pending("gbig", budget="x", gpus=8, replicas=4),
            Pending("gone", budget="x", gpus=8),
            Pending("gtwo", budget="y", gpus=8),
        ],
        budgets=[Budget("x", claim=48), Budget("y", claim=48), Budget("z", claim=64)],
    )
    return replace(p, policy=replace(p.policy, tiers=tuple(map(Tier, ("preemption", "delay", "idle"))), reservations=4))


def test_the_first_instant_with_room_beside_all_the_others_is_the_last_that_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Nodes with room for big: 4 at 5 h, 5 at 7 h, 6 at 8 h; for each of the others 1 now, and 4, 5 and 6 then. At 8 h
    # there is room for all six, so that nobody waits for n7, n8 and n9, and 47 counts are enough: 15 + 2·16.
    p, sizes, add = crowded(), list[int](), jointly._Model.add

    def noted(self: jointly._Model, job: int, most: int, among: Sequence[int]) -> int | None:
        least = add(self, job, most, among)
        sizes.append(self.size)
        return least

    monkeypatch.setattr(jointly._Model, "add", noted)
    jobs = [job_at(p, name) for name in ("gbig", "gone", "gtwo")]
    before = in_turn(p, jobs)
    assert delay(p, promised_jointly(p, before, (), jobs)) < delay(p, before)
    assert sizes == [15, 31, 47]


@pytest.mark.parametrize("in_us", [0, US, 3 * US // 2, 7 * US // 4])
def test_an_option_costs_what_its_promise_delays(in_us: int) -> None:
    p = crowded()
    quo, big = status_quo(p), job_at(p, "gbig")
    at = replace(hold(p, "gbig", {f"n{i}": 8 for i in range(1, 5)}, in_s=0), starts_us=p.now_us + in_us)
    promised = replace(quo, reservations=(at,), blocked=(big,))
    assert jointly._Model(p, Outlook(p, quo))._cost(big, at.starts_us) == delay(p, promised)


def test_what_does_the_same_is_promised_the_same_without_another_search(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Decision] = []

    def noted(p: Problem, d: Decision, kept: Sequence[Hold], jobs: Sequence[int]) -> Decision:
        asked.append(d)
        return promised_jointly(p, d, kept, jobs)

    monkeypatch.setattr(incumbent, "promised_jointly", noted)
    p = crowded()
    best = Incumbent(p)
    best.settle_blocked()
    assert len(asked) == 1
    first = best.decision.reservations
    assert first
    best.promise_best()
    assert len(asked) == 1
    assert best.decision.reservations == first
    best.decision = decide(p, start={"gone": "n1"})
    best.promise_best()
    assert len(asked) == 2
    best.kept = first[:1]
    best.promise_best()
    assert len(asked) == 3


def test_candidates_that_are_over_a_limit_are_promised_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    p = crowded()
    best = Incumbent(p)
    best.settle_blocked()

    def never(*_: object) -> Decision:
        raise AssertionError("promised something")

    monkeypatch.setattr(best, "_with_reservations", never)
    best.limits += [("delay", 0, 10**9), ("idle", 0, -1)]
    assert best.offer(decide(p, start={"gone": "n1"}), 2) == []


def test_in_a_hurry_promises_are_given_by_rank_and_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> Any:
        raise AssertionError("looked for better promises")

    p = crowded()
    calm = Incumbent(p)
    calm.settle_blocked()
    for name in ("promised_jointly", "best_order"):
        monkeypatch.setattr(incumbent, name, never)
    best = Incumbent(p)
    best.settle_blocked(hurry=True)
    assert set(best.blocked or ()) == set(calm.blocked or ())
    holds, blocked = reserve(p, best.decision, kept=p.holds)
    assert (best.decision.reservations, best.decision.blocked) == (holds, blocked)
    best.keep_promises()
    assert best.kept == holds
