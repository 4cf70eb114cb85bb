"""Who must start before whom: what is ruled out where nobody, or hardly anybody, may be passed over."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

import cpalloc.solver.models as models
from builders import HOUR, Budget, Node, Pending, Running, decide, hold, job_at, problem
from cpalloc.models.objectives import OBJECTIVES
from cpalloc.models.objectives.inversion import inverted, weight
from cpalloc.models.objectives.starvation import starving
from cpalloc.models.partition import Partition, Possible
from cpalloc.models.possible import possible
from cpalloc.models.round import build
from cpalloc.models.turns import Turns
from cpalloc.problem.problem import IntArray, JobState, Mode, Options, Problem, Tier
from cpalloc.solver.outcome import Run, Status
from cpalloc.solver.solve import solve_problem
from cpalloc.solver.values import violations
from models.fixing import least, told_apart
from models.possible_rounds import MODES, MOST_PLACES, Every, drawn
from models.ruled_out import RICH, kept, lent, names, past, starts
from models.test_possible import full, solved
from reference.brute_force import Full


def told(p: Problem, limit: int | None = 0) -> list[str]:
    """What can start, where inversion is limited."""
    return starts(p, possible(p, None, limit))


def waiting(*jobs: Pending, free: int = 8, nodes: int = 1, **budget: Any) -> Problem:
    """Jobs of one budget, best first, where so many GPUs are free on each node."""
    taken = [kept(f"there {n}", f"n{n}", 8 - free) for n in range(nodes) if free < 8]
    return problem(
        nodes=[Node(f"n{n}") for n in range(nodes)],
        jobs=[*taken, *jobs],
        budgets=[Budget("x", **{"claim": 64, **budget}), Budget("y")],
    )


# -- rule by rule -----------------------------------------------------------------------------------------------------


def test_all_those_before_need_room_as_well() -> None:
    p = waiting(*(Pending(f"{i}", gpus=3) for i in range(4)))
    assert told(p, None) == ["0", "1", "2", "3"]
    assert told(p) == ["0", "1"]


def test_in_replicas_as_large_as_they_are() -> None:
    p = waiting(*(Pending(f"{i}", gpus=4) for i in range(3)), free=6, nodes=2)  # 12 GPUs are free, but two fours
    assert told(p, None) == ["0", "1", "2"]
    assert told(p) == ["0", "1"]


def test_only_those_count_that_would_fit_in_the_place() -> None:
    larger = waiting(Pending("0", gpus=8), Pending("1", gpus=4))
    assert told(larger) == ["0", "1"]
    elsewhere = waiting(Pending("0", gpus=8, nodes={"n0"}), Pending("1", gpus=8), nodes=2, free=8)
    assert told(elsewhere) == ["0", "1"]
    alone = waiting(Pending("0", gpus=8, exclusive=True), Pending("1", gpus=8))
    assert told(alone) == ["0", "1"]


def test_and_who_has_nowhere_else_to_go_in_the_pools_there_are() -> None:
    nodes = [Node("a1", pool="a100"), Node("h1"), Node("h2")]
    like: dict[str, Any] = {"gpus": 8, "nodes": {"h1", "h2"}}
    p = problem(nodes=nodes, jobs=[Pending(f"{i}", **like) for i in range(3)], budgets=[Budget("x", claim=64)])
    p = replace(p, eligibility=p.eligibility[:1], jobs=replace(p.jobs, eligibility=p.jobs.eligibility * 0))
    assert told(p) == ["0", "1"]


def test_of_the_same_budget_and_mode() -> None:
    p = problem(
        nodes=[Node("n1")],
        jobs=[Pending("0", gpus=8), Pending("1", gpus=8, budget="y"), Pending("2", gpus=8, funding="borrowed")],
        budgets=[Budget("x", claim=8), Budget("y", claim=8)],
    )
    assert told(p) == ["0", "1", "2 lent"]


def test_who_cannot_start_lets_nobody_start_in_its_place() -> None:
    # "0" may be allocated where the claim reaches, and it reaches nowhere; nor may anything be lent to it.
    either = Pending("0", gpus=4, funding="any")
    p = waiting(either, Pending("1", gpus=4), Pending("2", gpus=2), claim=0, max_borrowed=0)
    assert told(p, None) == ["1", "2"]
    assert told(p) == ["2"]


def test_caps_and_claims_hold_for_all_of_them() -> None:
    jobs = [Pending(f"{i}", gpus=2) for i in range(4)]
    assert told(waiting(*jobs)) == ["0", "1", "2", "3"]
    assert told(waiting(*jobs, max_gpus=5)) == ["0", "1"]
    borrows = [Pending(f"{i}", gpus=2, funding="borrowed") for i in range(4)]
    assert told(waiting(*borrows, max_borrowed=5)) == ["0 lent", "1 lent"]
    # "3" may be allocated while the others have less than the claim; they may have it all.
    either = [*jobs[:3], Pending("3", gpus=2, funding="any")]
    assert told(waiting(*either, claim=7)) == ["0", "1", "2", "3", "3 lent"]
    assert told(waiting(*either, claim=6)) == ["0", "1", "2", "3 lent"]
    # Where they need not be allocated themselves, nothing is known.
    mixed = [replace(job, funding="any") for job in jobs]
    assert "3" in told(waiting(*mixed, claim=5))


def test_who_can_only_borrow_counts_for_no_claim_of_those_behind_it() -> None:
    # A promise stops the first from being allocated, as it may stay longer than 2 h; it can borrow. The second leaves
    # in time: it starts allocated beside it, and is all that its budget is entitled to, and can claim.
    p = problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[
            Running("busy", budget="y", at="n2", gpus=8, mode="allocated", protected_s=HOUR, timeout_s=2 * HOUR),
            Pending("gang", budget="y", gpus=8, replicas=2),
            Pending("first", budget="x", gpus=4, funding="any"),
            Pending("second", budget="x", gpus=4, funding="any", timeout_s=HOUR),
        ],
        budgets=[Budget("y", claim=24), Budget("x", claim=4, entitled=4, charged=1)],
    )
    p = replace(p, holds=(hold(p, "gang", {"n1": 8, "n2": 8}, in_s=2 * HOUR),))
    d = decide(p, borrow={"first": "n1"}, start={"second": "n1"})
    assert violations(p, d) == []
    assert inverted(p, d) == []
    second = job_at(p, "second"), Mode.ALLOCATED
    assert second in possible(p, None, 0).starts
    assert second in possible(p, None, 0).needed


def test_passing_somebody_over_may_be_within_the_limit() -> None:
    p = waiting(*(Pending(f"{i}", gpus=3) for i in range(4)))
    (cost,) = {weight(p, job_at(p, f"{i}")) for i in range(4)}
    assert told(p, cost - 1) == ["0", "1"]
    assert told(p, cost) == ["0", "1", "2", "3"]


def test_less_may_start_and_so_less_may_go() -> None:
    p = problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[
            lent("old", "n1"),
            kept("there", "n2"),
            Pending("0", gpus=8, nodes={"n2"}, budget="x"),
            Pending("1", gpus=8, budget="x"),
        ],
        budgets=[Budget("x", claim=64), Budget("y")],
    )
    assert names(p, possible(p, None, None).goes) == ["old"]
    assert names(p, possible(p, None, 0).goes) == ["old"]  # "0" does not fit where "1" would be
    p = replace(p, eligibility=np.ones_like(p.eligibility))
    wider = replace(p, jobs=replace(p.jobs, replicas=p.jobs.replicas + (np.array(p.jobs.ids) == "0")))
    assert names(p, possible(p, None, 0).goes) == ["old"]
    assert starts(wider, possible(wider, None, 0)) == ["1"]


# -- sums -------------------------------------------------------------------------------------------------------------


def ahead(p: Problem, job: IntArray, allocated: IntArray, values: IntArray, limit: int) -> list[int]:
    """Pair by pair."""
    from cpalloc.models.places import eligibility_covers, takes_place_of

    jobs, covers, pools = p.jobs, eligibility_covers(p), range(len(p.pool_names))
    out = []
    for at, j in enumerate(job.tolist()):
        total = 0
        for other, i in enumerate(job.tolist()):
            queue = jobs.leaf[i] == jobs.leaf[j] and allocated[other] == allocated[at]
            if queue and jobs.order[i] < jobs.order[j] and weight(p, i) > limit:
                total += int(values[other]) * all(takes_place_of(p, covers, i, j, pool) for pool in pools)
        out.append(total)
    return out


def test_sums_are_those_of_all_pairs() -> None:
    pairs = 0
    for seed in range(100):
        p, rng = crowded(seed), Random(seed)
        pending = p.jobs.state == JobState.PENDING
        rows = [np.flatnonzero(pending & may) for may in (p.jobs.may_allocate, p.jobs.may_borrow)]
        job = np.concatenate(rows)
        allocated = np.arange(len(job)) < len(rows[0])
        values = np.array([rng.randint(0, 9) for _ in job], dtype=np.int64)
        limit = rng.choice([0, 0, 4])
        found = Turns(p, job, allocated, limit).ahead(values).tolist()
        assert found == ahead(p, job, allocated, values, limit), seed
        pairs += sum(total > 0 for total in found)
    assert pairs >= 40


def test_only_the_best_are_counted_of_very_many(monkeypatch: pytest.MonkeyPatch) -> None:
    p = waiting(*(Pending(f"{i}", gpus=1) for i in range(6)))
    job = np.array([job_at(p, f"{i}") for i in range(6)])
    ones, allocated = np.ones(6, dtype=np.int64), np.ones(6, dtype=np.bool_)
    assert Turns(p, job, allocated, 0).ahead(ones).tolist() == [0, 1, 2, 3, 4, 5]
    monkeypatch.setattr("cpalloc.models.turns.MOST_AHEAD", 3)
    assert Turns(p, job, allocated, 0).ahead(ones).tolist() == [0, 1, 2, 3, 3, 3]


# -- every decision of tiny rounds ------------------------------------------------------------------------------------


def crowded(seed: int) -> Problem:
    """A tiny round in which more jobs wait in the same budgets."""
    p, rng = drawn(seed), Random(f"turns {seed}")
    jobs = p.jobs
    pending = np.flatnonzero(jobs.state == JobState.PENDING).tolist()
    if len(pending) < 2 or rng.random() < 0.3:
        return p
    leaf, like = jobs.leaf.copy(), rng.choice(pending)
    names = ("replicas", "gpus_per_replica", "size", "eligibility", "may_allocate", "may_borrow", "required_level")
    columns = {name: getattr(jobs, name).copy() for name in names}
    for j in pending:
        leaf[j] = jobs.leaf[like]
        if rng.random() < 0.8:
            for column in columns.values():
                column[j] = column[like]
    return replace(p, jobs=replace(jobs, leaf=leaf, **columns))


@pytest.mark.parametrize("chunk", range(3))
def test_no_decision_within_the_limit_has_what_is_ruled_out(chunk: int) -> None:
    counts: Counter[str] = Counter()
    for seed in range(chunk * 700, (chunk + 1) * 700):
        p = crowded(seed)
        every, limit = Every(p), Random(seed).choice([0, 0, 0, 2, 5])
        anyway, found = possible(p), possible(p, None, limit)
        assert found.starts <= anyway.starts
        fewer = anyway.starts - found.starts, anyway.goes - found.goes, anyway.promotes - found.promotes
        counts["rounds with less"] += any(fewer)
        counts["starts ruled out"] += len(fewer[0])
        for outline in every.outlines if any(fewer) else ():
            if not list(every._wrong(outline, anyway)) and list(every._wrong(outline, found)):
                for spots in every.search.places(outline)[:MOST_PLACES]:
                    over = inverted(p, every.search.decision(Full(outline, spots)))
                    counts["decisions"] += 1
                    assert sum(weight(p, j) for j in over) > limit, seed
    assert counts["rounds with less"] >= 30
    assert counts["starts ruled out"] >= 45
    assert counts["decisions"] >= 120


# -- starts that are needed -------------------------------------------------------------------------------------------


def needed(p: Problem, limit: int = 0) -> list[str]:
    found = possible(p, None, limit)
    return sorted(p.jobs.ids[j] for j, _ in found.needed)


def test_no_more_starts_are_needed_than_give_a_budget_what_it_is_entitled_to() -> None:
    jobs = [Pending(f"{i}", gpus=2) for i in range(4)]
    assert needed(waiting(*jobs, entitled=8)) == ["0", "1", "2", "3"]
    assert needed(waiting(*jobs, entitled=3)) == ["0", "1"]
    assert needed(waiting(*jobs, entitled=4)) == ["0", "1"]
    assert needed(waiting(*jobs)) == []
    assert needed(waiting(kept("mine", "n0", 2, budget="x"), *jobs, entitled=3)) == ["0"]
    # Passing one over may be within the limit: then the others need not start.
    (cost,) = {weight(p := waiting(*jobs, entitled=3), job_at(p, f"{i}")) for i in range(4)}
    assert needed(waiting(*jobs, entitled=3), cost) == ["0", "1", "2", "3"]


def test_starts_before_it_count_only_where_they_are_allocated() -> None:
    either = [Pending(f"{i}", gpus=2, funding="any") for i in range(2)]
    assert needed(waiting(*either, Pending("2", gpus=2), entitled=3)) == ["0", "0", "1", "1", "2"]


def test_a_budget_that_may_lose_work_needs_its_claim() -> None:
    jobs = [Pending(f"{i}", gpus=2, nodes={"n1"}) for i in range(4)]
    other = Pending("other", gpus=8, nodes={"n0"}, budget="y")
    budgets = [Budget("x", claim=3, **RICH), Budget("y", claim=64, entitled=8)]
    for mine, starting in ((past("old", "n0", budget="x"), ["0", "1", "other"]), (kept("old", "n0", budget="x"), [])):
        p = problem(nodes=[Node("n0"), Node("n1")], jobs=[mine, *jobs, other], budgets=budgets)
        assert needed(p) == starting


def test_who_is_promised_something_is_needed_and_all_before_it() -> None:
    p = waiting(*(Pending(f"{i}", gpus=2) for i in range(4)))
    assert needed(p) == []
    assert needed(replace(p, holds=(hold(p, "1", {"n0": 2}, in_s=HOUR),))) == ["0", "1"]
    gone = waiting(*(Pending(f"{i}", gpus=9 if i == 1 else 2) for i in range(4)))
    assert needed(replace(gone, holds=(hold(gone, "1", {"n0": 2}, in_s=HOUR),))) == []


Worth = tuple[int, int, int]


def worths(p: Problem, limit: int, *, only: Possible | None = None) -> set[Worth]:
    """Starvation, shortfall and lost work of decisions that pass over no more than the limit.

    ``only``: of those with needed starts only; whom they preempt may be for nobody, and nobody minds what is lent.
    """
    every = Every(p) if only is None else Every(p, drop="preemption")
    entitled, jobs, out = p.budgets.entitled.tolist(), p.jobs, set[Worth]()
    for outline in every.outlines:
        begun = {(j, MODES[m]) for j, m in zip(every.search.pending, outline.modes, strict=True) if m}
        if only is not None and not begun <= {(j, mode) for j, mode in only.needed if jobs.may_allocate[j]}:
            continue
        short = [(e, g) for e, g in zip(entitled, outline.granted, strict=True)]
        lost = sum(int(jobs.preempt_cost[j]) for j in outline.gone)
        worth = sum(starving(e, g) for e, g in short), sum(max(0, e - g) for e, g in short), lost
        for spots in every.search.places(outline)[: None if only else MOST_PLACES] if worth not in out else ():
            over = inverted(p, every.search.decision(Full(outline, spots)))
            if sum(weight(p, j) for j in over if only is None or jobs.may_allocate[j]) <= limit:
                out.add(worth)
                break
    return out


@pytest.mark.parametrize("chunk", range(3))
def test_whatever_is_worth_something_needs_no_other_starts(chunk: int) -> None:
    counts: Counter[str] = Counter()
    for seed in range(chunk * 200, (chunk + 1) * 200):
        p, rng = crowded(seed), Random(seed)
        have = np.array([rng.choice([0, 1, 2, 4, 8]) for _ in p.budgets.claim], dtype=np.int64)
        p = replace(p, budgets=replace(p.budgets, entitled=have))
        limit = rng.choice([0, 0, 0, 2, 5])
        found = possible(p, None, limit)
        spared = {(j, m) for j, m in found.starts if p.jobs.may_allocate[j]} - found.needed
        if not spared:
            continue
        counts["rounds"] += 1
        fewer = worths(p, limit, only=found)
        for worth in worths(p, limit):
            counts["worths"] += 1
            assert any(all(a <= b for a, b in zip(other, worth, strict=True)) for other in fewer), (seed, worth)
    assert counts["rounds"] >= 10
    assert counts["worths"] >= 15


def least_lost(p: Problem, found: Possible, limit: int, worth: Worth, partition: Partition) -> Run:
    """The least lost work in a model with needed starts, beside starvation and shortfall of a decision."""
    ctx = build(p, replace(partition, lend=False, possible=found, needed=True))
    for tier, most in zip(("starvation", "shortfall", "inversion"), (*worth[:2], limit), strict=True):
        ctx.model.add(ctx.term(OBJECTIVES[tier])[0] <= most)
    return least(ctx, "preemption")


def test_models_with_needed_starts_are_relaxations_however_finely_they_tell_apart() -> None:
    asked = 0
    for seed in range(700):
        p, rng = crowded(seed), Random(f"needed {seed}")
        have = np.array([rng.choice([0, 1, 2, 4, 8]) for _ in p.budgets.claim], dtype=np.int64)
        p = replace(p, budgets=replace(p.budgets, entitled=have))
        limit = rng.choice([0, 0, 2])
        found = possible(p, None, limit)
        if found.needed == found.starts:
            continue
        for worth in sorted(worths(p, limit))[:3]:
            how = rng.choice(["plain", "watched", "split", "gangs", "apart", "exact", "mixed"])
            leaves = frozenset(leaf for leaf in range(len(have)) if rng.random() < 0.3)
            run = least_lost(p, found, limit, worth, replace(told_apart(p, how, rng), leaves=leaves))
            assert run.status is Status.OPTIMAL, (seed, worth)
            assert run.objective is not None
            assert run.objective <= worth[2], (seed, worth)
            asked += 1
    assert asked >= 60


@pytest.mark.parametrize("how", ["plain", "watched", "apart", "exact"])
@pytest.mark.parametrize("second", [2, 4])
def test_what_nobody_needs_may_be_why_somebody_does_not_fit(how: str, second: int) -> None:
    """It would fit but for "other", whom nobody needs; and a promise keeps it from starting."""
    brief: dict[str, Any] = {"timeout_s": 600}
    p = problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[
            kept("there", "n2", budget="z"),
            Pending("promised", replicas=2, gpus=8, budget="z"),
            Pending("first", gpus=6, nodes={"n1"}),
            Pending("second", gpus=second, **brief, nodes={"n1"}),
            Pending("other", gpus=8 - second, **brief, nodes={"n1"}, budget="y"),
        ],
        budgets=[Budget("x", entitled=second, claim=64), Budget("y", claim=64), Budget("z", claim=64)],
    )
    p = replace(p, holds=(hold(p, "promised", {"n1": 8, "n2": 8}, in_s=HOUR),))
    both = decide(p, start={"second": "n1", "other": "n1"})
    assert violations(p, both) == []
    assert inverted(p, both) == []
    assert [p.jobs.ids[j] for j in inverted(p, decide(p, start={"second": "n1"}))] == ["first"]
    found = possible(p, None, 0)
    assert needed(p) == ["second"]
    assert least_lost(p, found, 0, (0, 0, 0), told_apart(p, how, Random(0))).objective == 0


def test_whom_somebody_makes_room_for_is_asked_with_all_starts() -> None:
    p = waiting(*(Pending(f"{i}", gpus=2) for i in range(4)), entitled=3)
    partition = Partition(possible=possible(p, None, 0), needed=True)
    assert len(partition.starts() or ()) == 2
    assert len(replace(partition, leaves=frozenset({0})).starts() or ()) == 4


# -- what models are worth --------------------------------------------------------------------------------------------


def test_tiers_have_the_same_optimum_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever inversion turned out to be; what comes after it is asked with and without."""
    less = asked = 0
    for seed in range(24):
        p = full(12, seed)

        def anyhow(p: Problem, may_go: Any = None, inversion: int | None = None) -> Any:
            return possible(p, may_go)

        without, whole = solved(p, monkeypatch, possible), solved(p, monkeypatch, anyhow)
        limits = [part[2] for part in without if part[0] == "inversion"]
        less += len(possible(p).starts) > len(possible(p, None, limits[0]).starts) if limits else 0
        for mine, theirs in zip(without, whole, strict=True):
            proved = mine[2] == mine[3] == theirs[2] == theirs[3]
            if mine[0] == "delay" or not proved:
                break
            assert mine == theirs, seed
            asked += 1
    assert less >= 8
    assert asked >= 100


def test_the_solver_asks_for_it_once_inversion_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int | None] = []

    def watched(p: Problem, may_go: Any = None, inversion: int | None = None) -> Any:
        asked.append(inversion)
        return possible(p, may_go, inversion)

    monkeypatch.setattr(models, "possible", watched)
    p = waiting(*(Pending(f"{i}", gpus=3) for i in range(4)))
    options = Options(workers=1, deterministic=True, deterministic_limit=5.0)
    tiers = tuple(map(Tier, ("shortfall", "inversion", "preemption", "idle")))
    solution = solve_problem(replace(p, options=options, policy=replace(p.policy, tiers=tiers)))
    assert asked[0] is None
    assert asked[-1] == 0
    assert sorted(p.jobs.ids[j] for j in solution.decision.placement) == ["0", "1"]
    assert all(Mode(int(solution.decision.mode[j])) == Mode.ALLOCATED for j in solution.decision.placement)
