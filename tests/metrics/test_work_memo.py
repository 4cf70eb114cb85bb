"""What is remembered of the work after the last few decisions is what it is worked out to be anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import numpy as np

from builders import HOUR, Budget, Node, Pending, Running, decide, job_at, problem
from cpalloc.metrics.outlook import Outlook
from cpalloc.metrics.reservations import pools_of, reserve, soonest
from cpalloc.metrics.work import MOST_REMEMBERED, Work
from cpalloc.problem.problem import US, Action, Decision, IntArray, JobState, Mode, Problem, status_quo
from cpalloc.problem.releases import NEVER
from cpalloc.solver.greedy import greedy
from models.fixing import any_start
from models.possible_rounds import drawn

ROUNDS, DECISIONS = 30, 12


def fresh(p: Problem) -> Problem:
    """The same round, of which nothing is remembered."""
    return replace(p)


def some_nodes(p: Problem) -> list[IntArray]:
    """All nodes, all in another order, and each alone."""
    every = np.arange(len(p.nodes.names))
    return [every, every[::-1], *(every[n : n + 1] for n in every.tolist())]


Question = Callable[[Problem, Decision], Any]


def questions(p: Problem) -> Iterator[Question]:
    """All that can be asked about a decision: who leaves when, what fits when, and what is promised."""
    pending = np.flatnonzero(p.jobs.state == JobState.PENDING).tolist()
    yield releases
    for nodes in some_nodes(p):
        yield partial(nearby, nodes=nodes, pending=pending)
    for job in pending:
        pools = pools_of(p, job)
        for among in (pools, *([pool] for pool in pools if len(pools) > 1)):
            yield partial(where, job=job, pools=among)
    yield reserve
    yield partial(reserve, kept=p.holds)
    yield partial(reserve, kept=p.holds, jobs=pending)


def releases(p: Problem, decision: Decision) -> Any:
    work, runs = Work.after(p, decision), np.flatnonzero(decision.mode == Mode.ALLOCATED)
    return work.until_us(runs).tolist(), work.spared_us(runs).tolist(), work.spare(frozenset()).tolist()


def nearby(p: Problem, decision: Decision, nodes: IntArray, pending: Sequence[int]) -> Any:
    there = Outlook(p, decision).over(nodes)
    instants = there.instants.tolist()
    both = (False, True)
    slots = [there.slots(j, t, hopefully=hope).tolist() for j in pending for t in instants for hope in both]
    rooms = [there.room(t, hopefully=hope).tolist() for t in instants for hope in both]
    return instants, rooms, slots, [there.in_doubt(t) for t in instants], [there.earliest(j) for j in pending]


def where(p: Problem, decision: Decision, job: int, pools: Sequence[int]) -> Any:
    found = soonest(Outlook(p, decision), job, pools)
    return None if found is None else (found.hold(), found.nearby.nodes.tolist())


def decisions(p: Problem, rng: Random) -> list[Decision]:
    """Decisions drawn at random, each asked about again sooner or later, and others that hardly differ."""
    out = [status_quo(p), greedy(p)]
    while len(out) < DECISIONS:
        nearly = [d for d in (any_start(p, rng), *_nearly(p, rng.choice(out), rng)) if d is not None]
        out += nearly
    order = list(range(len(out))) + [rng.randrange(len(out)) for _ in out]
    return [out[i] for i in order]


def _nearly(p: Problem, decision: Decision, rng: Random) -> Iterator[Decision]:
    """The decision with one job promoted, or preempted, or a start moved to the nodes of its like."""
    jobs = p.jobs
    keeps = (jobs.state == JobState.EVICTABLE) & (decision.action == Action.KEEP) & ~decision.promoted
    for what, may in (("promote", keeps & jobs.may_promote), ("preempt", keeps & (jobs.mode == Mode.ALLOCATED))):
        for j in rng.sample(np.flatnonzero(may).tolist(), min(1, int(may.sum()))):
            action, mode, promoted = decision.action.copy(), decision.mode.copy(), decision.promoted.copy()
            if what == "promote":
                promoted[j], mode[j] = True, Mode.ALLOCATED
            else:
                action[j], mode[j] = Action.PREEMPT, Mode.NONE
            yield replace(decision, action=action, mode=mode, promoted=promoted)
    for j, k in zip(decision.placement, list(decision.placement)[1:], strict=False):
        sizes = {(int(jobs.gpus_per_replica[i]), int(jobs.replicas[i])) for i in (j, k)}
        if len(sizes) == 1 and decision.mode[j] == decision.mode[k]:
            swapped = {j: decision.placement[k], k: decision.placement[j]}
            yield replace(decision, placement={**decision.placement, **swapped})


def test_no_answer_depends_on_what_was_asked_before() -> None:
    several = promised = 0
    for seed in range(ROUNDS):
        p, rng = drawn(seed), Random(seed)
        told, expected = fresh(p), {}
        asked = list(questions(p))
        for decision in decisions(p, rng):
            if id(decision) not in expected:
                expected[id(decision)] = [question(fresh(p), decision) for question in asked]
            for number in rng.sample(range(len(asked)), len(asked)):
                assert asked[number](told, decision) == expected[id(decision)][number], seed
        several += len({repr(answers[0]) for answers in expected.values()}) > 1
        promised += any(holds for answers in expected.values() for holds, _ in answers[-3:])
    assert several > ROUNDS / 2
    assert promised > ROUNDS / 4


def test_what_is_promised_is_no_part_of_what_is_remembered() -> None:
    """Whoever asks second about the same decision finds nothing promised yet."""
    for seed in range(ROUNDS):
        p = drawn(seed)
        quo = status_quo(p)
        outlook = Outlook(p, quo)
        outlook.promised += p.nodes.healthy
        again = Outlook(p, quo)
        assert again.work is outlook.work
        assert not again.promised.any()
        assert all(question(p, quo) == question(fresh(p), quo) for question in questions(p)), seed


def held(**terms: Any) -> Problem:
    """Two nodes of equal work of a budget over its share, with something of every kind to decide."""
    return problem(
        nodes=[Node("n1"), Node("n2"), Node("n3")],
        jobs=[
            Running("ends", budget="over", gpus=4, at="n1", mode="allocated", timeout_s=12 * HOUR),
            Running("lent", budget="over", gpus=4, at="n1", funding="any", timeout_s=14 * HOUR),
            Running("stays", budget="over", gpus=8, at="n2", mode="allocated"),
            Pending("brief", budget="y", gpus=4, timeout_s=HOUR),
            Pending("long", budget="y", gpus=4, timeout_s=9 * HOUR),
            Pending("gang", gpus=8, replicas=3),
        ],
        budgets=[Budget("x", claim=24), Budget("y", claim=8), Budget("over", charged=2000, claim=4)],
        **terms,
    )


def instants_h(p: Problem, decision: Decision, *nodes: int) -> list[float]:
    """Hours until work on some nodes leaves if its budget spares it."""
    leaves_us = Work.after(p, decision).over(np.array(nodes)).hopefully_us
    return sorted({0, *((t - p.now_us) / US / HOUR for t in leaves_us.tolist() if t < NEVER)})


def test_decisions_that_differ_in_one_promotion_are_told_apart() -> None:
    p = held()
    quo, promoted = decide(p), decide(p, promote=["lent"])
    gang = job_at(p, "gang")
    for _ in range(2):
        assert instants_h(p, quo, 0) == [0]  # past its protection, and the budget can spare 4 of its 12
        assert Outlook(p, quo).over(np.array([0])).slots(gang, p.now_us, hopefully=True).tolist() == [1]
        assert instants_h(p, promoted, 0) == [0, 4]
        assert Outlook(p, promoted).over(np.array([0])).slots(gang, p.now_us, hopefully=True).tolist() == [0]


def test_of_two_decisions_that_hold_the_same_work_only_what_is_promoted_just_now_stays() -> None:
    """A job that turns allocated now is fresh: its budget's surplus does not make it leave; one that was so does."""
    p = held()
    promoted = decide(p, promote=["lent"])
    as_if = replace(promoted, promoted=np.zeros(len(p.jobs), dtype=np.bool_))
    at = {job_at(p, "lent"), job_at(p, "ends")}
    for decision in (promoted, as_if, promoted):
        expected = Work(fresh(p), decision).spared_us(np.array(sorted(at)))
        assert Work.after(p, decision).spared_us(np.array(sorted(at))).tolist() == expected.tolist()
    assert instants_h(p, promoted, 0) != instants_h(p, as_if, 0)


def test_decisions_that_differ_in_places_only_are_told_apart() -> None:
    p = held()
    one = decide(p, start={"brief": [("n3", [0, 1, 2, 3])], "long": [("n3", [4, 5, 6, 7])]})
    two = decide(p, preempt=["lent"], start={"brief": "n3", "long": "n1"})
    brief, long = job_at(p, "brief"), job_at(p, "long")
    moved = replace(two, placement={brief: two.placement[long], long: two.placement[brief]})
    for _ in range(2):
        assert instants_h(p, one, 2) == [0, 1, 9]
        assert instants_h(p, two, 2) == [0, 1]
        assert instants_h(p, moved, 2) == [0, 9]


def test_decisions_that_differ_in_one_preemption_of_allocated_work_are_told_apart() -> None:
    p = held(preempt_under_share=True)
    quo, less = decide(p), decide(p, preempt=["ends"])
    for _ in range(2):
        # With 8 GPUs left of a claim of 4 the other one cannot be spared any more.
        leaves_us = [int(Outlook(p, d).work.spared_us(np.array([job_at(p, "stays")]))[0]) for d in (quo, less)]
        assert leaves_us == [p.now_us, NEVER]
        assert Outlook(p, less).over(np.array([1])).room(p.now_us, hopefully=True).tolist() == [0]


def test_who_is_lent_what_makes_no_other_work() -> None:
    p = held()
    quo, lent, gone = decide(p), decide(p, borrow={"brief": "n3"}), decide(p, preempt=["lent"])
    assert Work.after(p, quo) is Work.after(p, lent) is Work.after(p, gone)


def test_only_the_last_few_are_remembered() -> None:
    p = held()
    jobs = ["brief", "long"]
    places: Sequence[tuple[str, Sequence[int]]] = [("n3", range(first, first + 4)) for first in range(5)]
    several = [decide(p, start={name: [place]}) for name in jobs for place in places]
    assert len(several) > MOST_REMEMBERED
    works = [Work.after(p, d) for d in several]
    assert len({id(work) for work in works}) == len(several)
    assert len(p.once("work", dict)) == MOST_REMEMBERED
    assert all(Work.after(p, d) is work for d, work in zip(several[-3:], works[-3:], strict=True))
    assert [instants_h(p, d, 2) for d in several] == [[0, 1]] * len(places) + [[0, 9]] * len(places)


def test_another_problem_made_of_one_remembers_nothing_of_it() -> None:
    p = held()
    before = instants_h(p, status_quo(p), 0, 1)
    jobs = replace(p.jobs, timeout_s=p.jobs.timeout_s + 4 * HOUR)
    claims = replace(p.budgets, claim=p.budgets.claim + 100)
    later = replace(p, jobs=jobs, budgets=claims)
    assert instants_h(later, status_quo(later), 0, 1) == [0, 6]
    assert instants_h(p, status_quo(p), 0, 1) == before


def test_domains_are_remembered_by_level_rule_and_pools() -> None:
    p = problem(
        nodes=[Node(f"n{i}", within=f"r{i // 2}", pool="h100" if i < 4 else "a100") for i in range(6)],
        levels=["rack"],
        jobs=[
            Pending("anywhere", gpus=8, replicas=2),
            Pending("rack", gpus=8, replicas=2, required="rack"),
            Pending("second", gpus=8, replicas=2, nodes=["n4", "n5"]),
            Pending("apart", gpus=8, replicas=2, nodes=["n1", "n5"]),
            Pending("node", gpus=4, replicas=2, required="node", nodes=["n5"]),
        ],
        budgets=[Budget("x", claim=64)],
    )
    pools = {name: pool for pool, name in enumerate(p.pool_names)}
    outlook = Outlook(p, status_quo(p))

    def nodes(name: str, *among: str) -> list[int] | None:
        found = soonest(outlook, job_at(p, name), sorted(pools[pool] for pool in among))
        return None if found is None else found.nearby.nodes.tolist()

    for _ in range(2):
        assert nodes("anywhere", "h100", "a100") == [4, 5]  # one domain, and of its pools the first by name
        assert nodes("anywhere", "h100") == [0, 1, 2, 3]
        assert nodes("rack", "h100", "a100") == [0, 1]
        assert nodes("rack", "h100") == [0, 1]
        assert nodes("rack", "a100") == [4, 5]
        assert nodes("second", "h100", "a100") == [4, 5]
        assert nodes("second", "h100") is None
        assert nodes("apart", "h100", "a100") is None
        assert nodes("node", "h100", "a100") == [5]
    assert {name: pools_of(p, job_at(p, name)) for name in ("rack", "second", "apart")} == {
        "rack": [0, 1],
        "second": [pools["a100"]],
        "apart": [0, 1],
    }
