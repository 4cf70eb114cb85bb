"""The best decision so far: what becomes it, and what does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import HOUR, Budget, Node, Pending, Running, decide, hold, job_at, problem
from cpalloc.problem.problem import Action, Problem, Tier, status_quo
from cpalloc.solver.incumbent import MOST_SEEN, Incumbent
from cpalloc.solver.values import same

ORDER = ("shortfall", "inversion", "preemption", "idle", "lend")


def tiered(p: Problem, *names: str) -> Problem:
    return replace(p, policy=replace(p.policy, tiers=tuple(Tier(name) for name in names or ORDER)))


def contest() -> Problem:
    """x is owed 8 GPUs and has three jobs in its queue; y borrows n1; n2 is free."""
    return tiered(
        problem(
            nodes=[Node("n1"), Node("n2")],
            jobs=[
                Running("v", budget="y", at="n1", gpus=8, lost_s=100),
                Pending("a", budget="x", gpus=4),
                Pending("b", budget="x", gpus=4),
                Pending("lent", budget="y", gpus=2, funding="borrowed"),
                Pending("other", budget="y", gpus=4, funding="borrowed"),
            ],
            budgets=[Budget("x", entitled=8, claim=8), Budget("y")],
        )
    )


ALL = len(ORDER)


def test_it_begins_with_the_status_quo() -> None:
    p = contest()
    best = Incumbent(p)
    assert same(best.decision, status_quo(p))
    assert [best.values[t] for t in ORDER[:3]] == [(8,), (0,), (0, 0, 0, 0)]
    assert best.tiers == list(ORDER)
    assert best.seen == []


def test_what_breaks_a_rule_is_refused_and_told_why() -> None:
    p = contest()
    best = Incumbent(p)
    broken = best.offer(decide(p, start={"a": "n1", "b": "n2"}), ALL)
    assert [v.constraint for v in broken] == ["capacity", "capacity"]
    assert same(best.decision, status_quo(p))
    assert best.seen == []


def test_the_better_one_is_taken_and_the_former_kept_in_mind() -> None:
    p = contest()
    best = Incumbent(p)
    one, two = decide(p, start={"a": "n2"}), decide(p, start={"a": "n2", "b": "n2"})
    assert best.offer(one, ALL) == []
    assert same(best.decision, one)
    assert best.values["shortfall"] == (4,)
    assert best.offer(two, ALL) == []
    assert same(best.decision, two)
    assert [list(d.placement) for d in best.seen] == [[], list(one.placement)]
    # the former is worse now
    assert best.offer(one, ALL) == []
    assert same(best.decision, two)


def test_tiers_count_in_their_order() -> None:
    # Preempting v costs 8 × 100; shortfall decides before that, unless the policy says otherwise.
    p = contest()
    best = Incumbent(p)
    best.offer(decide(p, start={"a": "n2"}), ALL)
    best.offer(decide(p, start={"a": "n1", "b": "n1"}, preempt=["v"]), ALL)
    assert best.values["shortfall"] == (0,)
    best.offer(decide(p, start={"a": "n2", "b": "n2"}), ALL)
    assert best.values["preemption"] == (0, 0, 0, 0)
    best = Incumbent(tiered(p, "preemption", "shortfall"))
    best.offer(decide(p, start={"a": "n1", "b": "n1"}, preempt=["v"]), 2)
    assert same(best.decision, status_quo(p))


def test_only_the_first_tiers_count() -> None:
    # Nothing but idle tells whether lent has started.
    p = contest()
    best, lent = Incumbent(p), decide(p, borrow={"lent": "n2"})
    for upto in range(1, 4):
        best.offer(lent, upto)
        assert same(best.decision, status_quo(p))
    best.offer(lent, 4)
    assert same(best.decision, lent)


def test_ties_are_taken_where_asked_for() -> None:
    p = contest()
    best, lent = Incumbent(p), decide(p, borrow={"lent": "n2"})
    assert best.offer(lent, 3) == []
    assert same(best.decision, status_quo(p))
    assert best.offer(lent, 3, ties=True) == []
    assert same(best.decision, lent)
    # a tie is no licence to be worse
    best.offer(status_quo(p), 4, ties=True)
    assert same(best.decision, lent)


def test_what_it_is_already_changes_nothing() -> None:
    p = contest()
    best = Incumbent(p)
    assert best.offer(status_quo(p), ALL, ties=True) == []
    assert best.seen == []


def test_limits_must_be_kept() -> None:
    p = contest()
    best = Incumbent(p)
    best.limits.append(("preemption", 0, 0))
    dear, free = decide(p, start={"a": "n1", "b": "n1"}, preempt=["v"]), decide(p, start={"a": "n2"})
    assert best.offer(dear, ALL) == []
    assert same(best.decision, status_quo(p))
    best.offer(free, ALL)
    assert same(best.decision, free)
    best.limits[0] = ("preemption", 0, 800)
    best.offer(dear, ALL)
    assert same(best.decision, dear)


def test_limits_are_of_the_part_they_name() -> None:
    # One victim of 8 GPUs: cost 800, 1 job, 8 GPUs.
    p = contest()
    dear = decide(p, start={"a": "n1", "b": "n1"}, preempt=["v"])
    for part, most, taken in ((1, 1, True), (1, 0, False), (2, 8, True), (2, 7, False)):
        best = Incumbent(p)
        best.limits.append(("preemption", part, most))
        best.offer(dear, ALL)
        assert same(best.decision, dear) == taken


@pytest.mark.parametrize(("most", "taken"), [(None, False), (3, False), (4, True)])
def test_within_its_limit_a_tier_may_get_worse(most: int | None, taken: bool) -> None:
    # Without preemption 4 of 8 GPUs are short.
    p = tiered(contest(), "shortfall", "preemption")
    best = Incumbent(p)
    best.offer(decide(p, start={"a": "n1", "b": "n1"}, preempt=["v"]), 2)
    assert best.values["shortfall"] == (0,)
    best.limits += [("shortfall", 0, most)] if most is not None else []
    cheap = decide(p, start={"a": "n2"})
    best.offer(cheap, 1)
    assert best.values["shortfall"] == (0,)  # all of one tier limited: it decides itself
    best.offer(cheap, 2)
    assert same(best.decision, cheap) == taken


def test_a_part_to_prefer_decides_alone() -> None:
    p = contest()
    best = Incumbent(p)
    both = decide(p, start={"a": "n1", "b": "n1"}, preempt=["v"])
    best.offer(both, ALL)
    cheap = decide(p, start={"a": "n2"})
    assert best.offer(cheap, 3, ("preemption", 1)) == []
    assert same(best.decision, cheap)  # fewer victims, although more is short
    best.offer(decide(p, start={"a": "n2", "b": "n2"}), 3, ("preemption", 1))
    assert same(best.decision, cheap)  # as few, though less is short
    best.limits.append(("shortfall", 0, 0))
    best.offer(status_quo(p), 3, ("shortfall", 0))
    assert same(best.decision, cheap)


def test_the_first_and_the_last_ones_are_kept_in_mind() -> None:
    p = tiered(
        problem(
            nodes=[Node("n1", gpus=16)],
            jobs=[Pending(f"j{i:02}") for i in range(MOST_SEEN + 5)],
            budgets=[Budget("x", entitled=16, claim=16)],
        )
    )
    best = Incumbent(p)
    steps = [decide(p, start={f"j{i:02}": "n1" for i in range(count)}) for count in range(MOST_SEEN + 5)]
    for d in steps[1:]:
        best.offer(d, 2)
        assert same(best.decision, d)
    sizes = [len(d.placement) for d in best.seen]
    assert sizes[0] == 0
    assert sizes[1:] == list(range(len(steps) - len(sizes), len(steps) - 1))
    assert MOST_SEEN <= len(sizes) - 1 <= MOST_SEEN + 1


# -- promises ---------------------------------------------------------------------------------------------------------


def waiting_for_a_node(*, kept: bool = False) -> Problem:
    """gang wants both nodes; half of n1 is protected for an hour, and x is owed all of it."""
    p = tiered(
        problem(
            nodes=[Node("n1"), Node("n2")],
            jobs=[
                Running("old", budget="y", at="n1", gpus=4, mode="allocated", protected_s=HOUR),
                Pending("gang", budget="x", gpus=8, replicas=2, priority=3),
                Pending("long", budget="z", gpus=4, min_runtime_s=HOUR),
                Pending("quick", budget="z", gpus=4, min_runtime_s=HOUR, timeout_s=HOUR // 2),
                Pending("lent", budget="z", gpus=4, funding="borrowed"),
            ],
            budgets=[
                Budget("x", entitled=16, claim=16, charged=500),
                Budget("y", charged=2000),
                Budget("z", charged=100, entitled=4, claim=4),
            ],
        ),
        "shortfall",
        "delay",
        "idle",
    )
    return replace(p, holds=(hold(p, "gang", {"n1": 8, "n2": 8}, in_s=HOUR),)) if kept else p


def promised(best: Incumbent) -> list[str]:
    return [best.problem.jobs.ids[h.job] for h in best.decision.reservations]


def test_promises_of_this_round_bind_what_comes_after_whatever_its_rank() -> None:
    p = waiting_for_a_node()
    assert p.jobs.rank[job_at(p, "long")] < p.jobs.rank[job_at(p, "gang")]
    long = decide(p, start={"long": "n2"})
    best = Incumbent(p)
    assert best.offer(long, 1) == []
    assert same(best.decision, long)  # nothing binds yet
    best = Incumbent(p)
    best.settle_blocked()
    assert promised(best) == ["gang"]
    # long could have started at once, had gang not been promised n2: they are looked at together from here on.
    assert set(best.blocked or ()) == {job_at(p, "gang"), job_at(p, "long")}
    assert list(best.fresh) == []
    best.keep_promises()
    assert [promise.job for promise in best.fresh] == [job_at(p, "gang")]
    assert best.kept == best.decision.reservations
    assert [v.constraint for v in best.offer(long, 1)] == ["holds"]
    assert same(best.decision, status_quo(p))
    quick = decide(p, start={"quick": "n2"})
    assert best.offer(quick, 1) == []
    assert same(best.decision, quick)  # gone in time
    assert promised(best) == ["gang"]
    assert best.offer(decide(p, start={"quick": "n2"}, borrow={"lent": "n1"}), 3) == []
    assert best.decision.action[job_at(p, "lent")] == Action.START  # borrowed work stands in nobody's way


def test_promises_of_the_last_answer_are_not_new() -> None:
    p = waiting_for_a_node(kept=True)
    best = Incumbent(p)
    assert promised(best) == ["gang"]
    best.settle_blocked()
    best.keep_promises()
    assert best.fresh == ()
    assert [promise.job for promise in best.kept] == [job_at(p, "gang")]
    # by rank long is not bound by them
    assert best.offer(decide(p, start={"long": "n2"}), 1) == []
    assert best.decision.action[job_at(p, "long")] == Action.START


@pytest.mark.parametrize(("settled", "expected"), [(None, ["gang"]), ((), [])])
def test_whom_promises_are_for_is_settled_once(settled: tuple[int, ...] | None, expected: list[str]) -> None:
    p = waiting_for_a_node()
    best = Incumbent(p)
    best.blocked = settled
    assert best.offer(decide(p, start={"quick": "n2"}), 1) == []
    assert best.decision.action[job_at(p, "quick")] == Action.START
    assert promised(best) == expected
    assert list(best.decision.blocked) == [job_at(p, name) for name in expected]
