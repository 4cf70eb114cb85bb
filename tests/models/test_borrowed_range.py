"""How much may be borrowed after a round: every decision of a model lies within, and is worth what it is worth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from random import Random

import numpy as np
import pytest

import cpalloc.models.objectives.lend as module
from builders import Budget, Node, Pending, Running, decide, problem
from cpalloc.models.constraints.preemption import victims
from cpalloc.models.objectives import OBJECTIVES
from cpalloc.models.partition import Partition
from cpalloc.models.possible import possible
from cpalloc.models.round import build
from cpalloc.problem.grants import borrowed
from cpalloc.problem.problem import Decision, JobState, Problem
from models.fixing import any_decision, counted
from models.possible_rounds import drawn
from models.ruled_out import kept, lent

LEND = OBJECTIVES["lend"]


def bare(p: Problem) -> Partition:
    return Partition(holds=p.holds, hard=len(p.holds))


def partitions(p: Problem, decision: Decision) -> Iterator[tuple[str, Partition]]:
    """Models that have a decision, from everything open to its preemptions settled."""
    evictable = frozenset(np.flatnonzero(p.jobs.state == JobState.EVICTABLE).tolist())
    gone = frozenset(victims(p, decision)) & evictable
    few = possible(p, gone)
    yield "open", bare(p)
    yield "counted", replace(bare(p), possible=possible(p), stays=evictable - possible(p).goes)
    yield "spared", replace(bare(p), possible=few, stays=evictable - gone)
    yield "settled", replace(bare(p), possible=few, stays=evictable - gone, gone=gone)


def total(p: Problem, decision: Decision) -> int:
    return int(borrowed(p, decision).sum())


def test_every_decision_lies_within_and_is_worth_what_it_is_worth() -> None:
    seen: Counter[str] = Counter()
    for seed in range(90):
        p, rng = drawn(seed), Random(seed)
        found = [d for d in (any_decision(p, rng) for _ in range(5)) if d is not None]
        for decision in found:
            value, here = LEND.evaluate(p, decision)[0], total(p, decision)
            for name, partition in partitions(p, decision):
                least, most = build(p, partition).borrowed_range()
                assert least <= here <= most, (seed, name)
                seen.update({f"{name}: least": here == least, f"{name}: most": here == most})
                seen[f"{name}: apart"] += least < most
            gone, raised = bool(victims(p, decision)), bool(decision.promoted.any())
            if gone or raised or rng.random() < (0.5 if value else 0.1):
                for name, partition in partitions(p, decision):
                    assert counted(p, partition, decision, "lend") == value, (seed, name)
                seen["of a value"] += value > 0
                seen["for nothing"] += value == 0
                seen["promoted"] += raised
                seen["preempted"] += gone
    assert len(seen) == 16
    assert min(seen.values()) >= 5, seen


def taking(decision: Decision, p: Problem, **changes: object) -> tuple[int, int]:
    assert total(p, decision) >= 0
    return build(p, replace(bare(p), **changes)).borrowed_range()  # type: ignore[arg-type]


def full(*jobs: Pending) -> Problem:
    """A node with 3 of 8 GPUs free, on which 2 are borrowed and 3 allocated, past any protection."""
    return problem(
        nodes=[Node("n1")],
        jobs=[
            lent("loan", "n1", gpus=2),
            Running("own", budget="z", at="n1", gpus=3, mode="allocated"),
            *jobs,
        ],
        budgets=[Budget("x", entitled=8, claim=8), Budget("y"), Budget("z", charged=2000)],
    )


def test_starts_borrow_no_more_than_is_free_or_freed() -> None:
    small = full(Pending("a", gpus=1, funding="borrowed"))
    assert taking(decide(small, borrow={"a": "n1"}), small) == (0, 3)
    large = full(*(Pending(f"a{i}", gpus=2, funding="borrowed") for i in range(5)))
    assert taking(decide(large), large) == (0, 2 + 3 + 2 + 3)
    nobody = frozenset(np.flatnonzero(large.jobs.state == JobState.EVICTABLE).tolist())
    assert taking(decide(large), large, stays=nobody) == (2, 2 + 3)


def test_what_allocated_work_leaves_may_be_borrowed() -> None:
    """Three GPUs are needed of the five that two victims leave; who borrows takes the other two."""
    p = problem(
        nodes=[Node("n1", gpus=5)],
        jobs=[
            Running("own", budget="z", at="n1", gpus=5, mode="allocated"),
            Pending("a", gpus=3),
            Pending("b", budget="y", gpus=2, funding="borrowed"),
        ],
        budgets=[Budget("x", entitled=3, claim=3), Budget("y"), Budget("z", charged=2000)],
    )
    decision = decide(p, start={"a": "n1"}, borrow={"b": "n1"}, preempt=["own"])
    assert total(p, decision) == 2 == taking(decision, p)[1]
    assert counted(p, bare(p), decision, "lend") == LEND.evaluate(p, decision)[0]


def test_promotions_take_from_what_is_borrowed() -> None:
    p = problem(
        nodes=[Node("n1")],
        jobs=[
            Running("up", at="n1", gpus=4, funding="any"),
            lent("loan", "n1", gpus=2),
            kept("there", "n1", gpus=2),
        ],
        budgets=[Budget("x", entitled=4, claim=4), Budget("y")],
    )
    decision = decide(p, promote=["up"])
    nobody = frozenset(np.flatnonzero(p.jobs.state == JobState.EVICTABLE).tolist())
    assert taking(decision, p, stays=nobody) == (2, 6)
    assert total(p, decision) == 2
    assert counted(p, replace(bare(p), stays=nobody), decision, "lend") == LEND.evaluate(p, decision)[0] > 0


def test_splits_are_worked_out_once_for_all_models_of_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models that may lend different amounts share the rows of the table that they have in common."""
    p, asked = full(*(Pending(f"a{i}", gpus=1, funding="borrowed") for i in range(3))), Counter[int]()
    honest = module.Split.at

    def counting(rule: module.Split, lent_gpus: int) -> list[int]:
        asked[lent_gpus] += 1
        return honest(rule, lent_gpus)

    monkeypatch.setattr(module.Split, "at", counting)
    memo: dict[object, object] = {}
    evictable = frozenset(np.flatnonzero(p.jobs.state == JobState.EVICTABLE).tolist())
    for stays in (evictable, frozenset(), evictable):
        ctx = build(p, replace(bare(p), stays=stays), memo)
        ctx.term(LEND)
    assert set(asked.values()) == {1}
    assert len(asked) == 6  # 0 to 5
