"""What is read of a tier where nothing else can happen is what a solver proves that knows nothing of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from random import Random

import pytest

import cpalloc.solver.models as models
from builders import HOUR, Budget, Node, Pending, Running, decide, hold, problem
from cpalloc.models.objectives import OBJECTIVES
from cpalloc.problem.compile import compile_round
from cpalloc.problem.problem import Options, Problem, Tier
from cpalloc.schema import parse_round
from cpalloc.solver.greedy import greedy
from cpalloc.solver.results import Clock, PartResult, Solution
from cpalloc.solver.solve import solve_problem
from cpalloc.solver.strict import StrictOrder
from cpalloc.solver.values import Values, violations
from models.possible_rounds import drawn, everything
from models.ruled_out import kept, lent

ROOT = Path(__file__).resolve().parent.parent.parent
ALONE = Options(workers=1, deterministic=True, deterministic_limit=20.0)
ORDERS: Sequence[Mapping[str, Fraction]] = [
    dict.fromkeys(OBJECTIVES, Fraction(0)),
    {**dict.fromkeys(OBJECTIVES, Fraction(0)), "shortfall": Fraction(1, 4), "delay": Fraction(1, 2)},
    dict.fromkeys(["preemption", "idle", "lend", "starvation", "shortfall", "inversion", "delay"], Fraction(0)),
    dict.fromkeys(["preemption", "delay", "idle", "fragmentation", "lend", "locality"], Fraction(0)),
    {"starvation": Fraction(0), "preemption": Fraction(0), "idle": Fraction(1, 2), "lend": Fraction(0)},
]
"""Tiers in their order, with their slack."""

Read = set[tuple[str, int]]
"""Tiers and parts."""


def asked(p: Problem, tiers: Mapping[str, Fraction], options: Options = ALONE) -> Problem:
    """The round with other tiers, of which nothing is remembered."""
    order = tuple(Tier(name, slack) for name, slack in tiers.items())
    return replace(p, options=options, policy=replace(p.policy, tiers=order, reservations=4))


def read(order: StrictOrder) -> Iterator[tuple[str, int]]:
    """Parts read where nothing else can happen; others are where only one set of victims is left."""
    for tier in order.results:
        for part, result in enumerate(tier.parts):
            if result.source == "settled" and (tier.name, part) not in [("preemption", n) for n in (1, 2, 3)]:
                yield tier.name, part


def solved(p: Problem) -> tuple[Solution, Read]:
    order = StrictOrder(p, Clock(p.options.deterministic_limit), [greedy(p)])
    return order.solve(), set(read(order))


# -- one by one -------------------------------------------------------------------------------------------------------


def test_a_full_round_is_read_from_end_to_end() -> None:
    p = problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[kept("there", "n1"), kept("too", "n2", gpus=5), Pending("a", gpus=4)],
        budgets=[Budget("x", entitled=4), Budget("y")],
    )
    p = asked(p, ORDERS[0])
    solution, settled = solved(p)
    assert {name for name, _ in settled} == {*OBJECTIVES}
    assert (solution.stop_reason, solution.variables, solution.constraints) == ("proved", 0, 0)
    values = Values(p, solution.decision)
    assert [values[name][0] for name in ("starvation", "shortfall", "idle")] == [4 + 2 * 4 + 4 * 4, 4, 3]


def test_what_preemptions_leave_free_is_counted_where_they_are_settled() -> None:
    """A loan of 8 GPUs is taken back for a gang of 6, and 2 are left free whatever is decided."""
    p = problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[lent("loan", "n1"), kept("there", "n2"), Pending("a", gpus=6)],
        budgets=[Budget("x", entitled=6, claim=6), Budget("y")],
    )
    p = asked(p, dict.fromkeys(["starvation", "shortfall", "preemption", "idle", "lend"], Fraction(0)))
    solution, settled = solved(p)
    idle = next(t.parts for t in solution.tiers if t.name == "idle")
    assert [(part.best, part.bound, part.source) for part in idle] == [(2, 2, "trivial"), (0, 0, "settled")]
    assert settled == {("idle", 1), ("lend", 0)}


def promised(*, also: Sequence[Pending] = ()) -> Problem:
    """n1 is held for an hour, and promised to "first"; nothing can start."""
    p = problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[
            kept("there", "n1", timeout_s=11 * HOUR),
            kept("too", "n2", timeout_s=15 * HOUR),
            Pending("first", gpus=8),
            *also,
        ],
        budgets=[Budget("x", entitled=8, claim=8), Budget("y"), Budget("z", entitled=8, claim=8)],
    )
    return asked(replace(p, holds=(hold(p, "first", {"n1": 8}, in_s=HOUR),)), ORDERS[0])


def test_delay_is_read_where_only_kept_promises_are_given() -> None:
    p = promised()
    solution, settled = solved(p)
    assert ("delay", 0) in settled
    assert Values(p, solution.decision)["delay"] == (8 * HOUR,)
    assert {t.name: t.parts[0].bound for t in solution.tiers}["delay"] == 8 * HOUR


def test_delay_is_minimised_where_somebody_else_is_promised_something() -> None:
    p = promised(also=[Pending("second", gpus=8, budget="z")])
    solution, settled = solved(p)
    assert ("delay", 0) not in settled
    assert {t.name: t.parts[0].bound for t in solution.tiers}["delay"] == 8 * HOUR + 8 * 5 * HOUR
    assert ("idle", 0) in settled


# -- where it must not be read ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [("n1", "n2"), ("n2", "n1")])
def test_what_follows_from_preemptions_only_assumed_is_not_proved_by_reading(nodes: tuple[str, str]) -> None:
    """Either loan may be taken back at the same price; without time nobody knows, and one of them is kept."""
    p = problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[
            lent("ry", nodes[0], budget="y", lost_s=60),
            lent("rz", nodes[1], budget="z", lost_s=60),
            Pending("a", gpus=8),
        ],
        budgets=[Budget("x", entitled=8, claim=8), Budget("y", weight=3), Budget("z", weight=1)],
    )
    p = asked(p, dict.fromkeys(["starvation", "shortfall", "preemption", "idle", "lend"], Fraction(0)))
    ways = [decide(p, start={"a": at}, preempt=[name]) for name, at in zip(("ry", "rz"), nodes, strict=True)]
    assert all(violations(p, way) == [] for way in ways)
    first, second = (Values(p, way) for way in ways)
    assert all(first[name] == second[name] for name in ("starvation", "shortfall", "preemption", "idle"))
    dearer, least = sorted([first["lend"][0], second["lend"][0]], reverse=True)
    assert dearer > least
    order = StrictOrder(p, Clock(0.0), [ways[0] if first["lend"][0] == dearer else ways[1]])
    solution = order.solve()
    assert order.assumed
    rows = {t.name: t.parts for t in solution.tiers}
    assert [(q.best, q.bound, q.source) for q in rows["lend"]] == [(dearer, 0, "trivial")]
    assert [(q.bound, q.source) for q in rows["idle"]] == [(0, "trivial")] * 2
    assert {t.name: t.parts[0].best for t in solve_problem(p).tiers}["lend"] == least


@pytest.mark.parametrize("nodes", [("n1", "n2"), ("n2", "n1")])
def test_nor_is_what_budgets_and_nodes_have_at_most_bounded_by_them(nodes: tuple[str, str]) -> None:
    """The GPU beside "a" serves "b" on one of the nodes only; without time nobody knows which loan is taken back."""
    p = problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[
            lent("r1", nodes[0], lost_s=60),
            lent("r2", nodes[1], lost_s=60),
            Pending("a", gpus=7),
            Pending("b", gpus=1, nodes=["n2"]),
        ],
        budgets=[Budget("x", entitled=8, claim=8), Budget("y")],
    )
    p = asked(p, dict.fromkeys(["starvation", "preemption", "shortfall", "idle"], Fraction(0)))
    on = dict(zip(nodes, ("r1", "r2"), strict=True))
    alone = decide(p, start={"a": "n1"}, preempt=[on["n1"]])
    both = decide(p, start={"a": [("n2", range(7))], "b": [("n2", [7])]}, preempt=[on["n2"]])
    assert violations(p, alone) == violations(p, both) == []
    assert Values(p, both)["shortfall"] == Values(p, both)["idle"][:1] == (0,)
    order = StrictOrder(p, Clock(0.0), [alone])
    rows = {t.name: t.parts[0] for t in order.solve().tiers}
    assert order.assumed
    assert [(rows[n].best, rows[n].bound, rows[n].source) for n in ("shortfall", "idle")] == [(1, 0, "trivial")] * 2


def test_who_may_start_in_either_mode_decides_what_is_lent() -> None:
    p = problem(
        nodes=[Node("n1")],
        jobs=[Pending("a", gpus=8, funding="any")],
        budgets=[Budget("x", entitled=8, claim=8)],
    )
    p = asked(p, dict.fromkeys(["preemption", "idle", "lend"], Fraction(0)))
    borrows = decide(p, borrow={"a": "n1"})
    order = StrictOrder(p, Clock(5.0), [borrows])
    rows = {t.name: t.parts for t in order.solve().tiers}
    assert [(q.best, q.bound) for q in rows["idle"]] == [(0, 0), (0, 0)]
    assert ("idle", 1) not in set(read(order))


def test_promotions_decide_what_is_lent() -> None:
    p = problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[
            Running("ry", budget="y", gpus=8, at="n1", funding="any"),
            Running("rz", budget="z", gpus=8, at="n2", funding="borrowed"),
        ],
        budgets=[Budget("y", entitled=8, claim=8), Budget("z")],
    )
    p = asked(p, dict.fromkeys(["preemption", "lend"], Fraction(0)))
    solution, settled = solved(p)
    assert ("lend", 0) not in settled
    assert {t.name: t.parts[0].best for t in solution.tiers}["lend"] == 0


def test_slack_of_idle_leaves_open_who_starts() -> None:
    """With a GPU to spare for the tiers after it nobody need borrow more than is due to it."""
    p = problem(
        nodes=[Node("n1", gpus=4)],
        jobs=[lent("ry", "n1", budget="y", gpus=3), Pending("b", gpus=1, budget="z", funding="borrowed")],
        budgets=[Budget("y", entitled=4), Budget("z", weight=10)],
    )
    tight = {"preemption": Fraction(0), "idle": Fraction(0), "lend": Fraction(0)}
    _, settled = solved(asked(p, tight))
    assert ("lend", 0) in settled
    _, settled = solved(asked(p, {**tight, "idle": Fraction(1, 4)}))
    assert ("lend", 0) not in settled


def test_who_starts_where_is_not_read() -> None:
    """The gang starts whatever is decided, and yet not everywhere is as good."""
    p = problem(
        nodes=[Node(f"n{i}", gpus=4, within=f"r{i // 2}") for i in range(4)],
        levels=["rack"],
        jobs=[Pending("gang", gpus=4, replicas=2, preferred="rack")],
        budgets=[Budget("x", entitled=8, claim=8)],
    )
    p = asked(p, dict.fromkeys(["preemption", "idle", "locality"], Fraction(0)))
    apart, together = (decide(p, start={"gang": {"n0": 1, node: 1}}) for node in ("n2", "n1"))
    assert [Values(p, d)["locality"][0] for d in (apart, together)] == [1, 0]
    order = StrictOrder(p, Clock(5.0), [apart])
    assert [part.best for part in order.solve().tiers[-1].parts] == [0, 0]
    assert ("locality", 0) not in set(read(order))


# -- over many rounds -------------------------------------------------------------------------------------------------


def naive(p: Problem, patch: pytest.MonkeyPatch, *, counting: bool) -> Solution:
    """The round solved without anything being read; with ``counting``, as far as it bounds anything otherwise."""
    patch.setattr(StrictOrder, "_decided", lambda *_: False)
    if not counting:
        patch.setattr(models, "possible", everything)
    solution = solve_problem(replace(p))
    patch.undo()
    return solution


def parts(solution: Solution) -> Iterator[tuple[tuple[str, int], PartResult]]:
    for tier in solution.tiers:
        yield from (((tier.name, n), part) for n, part in enumerate(tier.parts))


def compare(where: str, p: Problem, patch: pytest.MonkeyPatch, tally: Counter[tuple[str, str]]) -> None:
    """What is read, against a solver that reads nothing, and one that does not even count."""
    mine, settled = solved(p)
    assert violations(p, mine.decision) == [], where
    for counting in (True, False) if settled else ():
        theirs = naive(p, patch, counting=counting)
        for (what, part), (also, other) in zip(parts(mine), parts(theirs), strict=True):
            assert what == also
            if what in settled:
                assert part.best == part.bound == other.best, (where, what, part, other)
                assert other.bound is None or other.bound <= part.best, (where, what, part, other)
                tally[what[0], "read"] += 1
                tally[what[0], "proved as well"] += other.bound == part.bound
                tally[what[0], "of a value"] += part.best > 0
            elif (part.best, part.limit) != (other.best, other.limit):
                assert not (part.bound == part.best and other.bound == other.best), (where, what, part, other)
                break  # from here on they speak of different limits
    for name, _ in settled:
        tally[name, "with promises kept"] += bool(mine.decision.reservations) and bool(p.holds)


@pytest.mark.parametrize("number", range(len(ORDERS)))
def test_what_is_read_is_what_a_solver_proves(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    tally: Counter[tuple[str, str]] = Counter()
    for seed in range(number, 250, 5):
        p = drawn(seed)
        # Of promises that hold no whole gang, as some of these do, nobody can say what delay they leave.
        p = replace(p, holds=()) if "delay" in ORDERS[number] else p
        compare(f"{seed}", asked(p, ORDERS[number]), monkeypatch, tally)
    names = [name for name in ORDERS[number] if not (name == "idle" and ORDERS[number]["idle"])]
    assert all(tally[name, "read"] >= 15 for name in names), tally
    assert sum(tally[name, "of a value"] for name in names) >= 20, tally
    for name in set(names) - {"delay", "fragmentation", "locality"}:
        assert tally[name, "proved as well"] == tally[name, "read"], tally


def crowded(rng: Random) -> Problem:
    """Protected work leaves 3 GPUs of each node, for so many hours, and three gangs need 4 or more of some."""
    at = [f"n{i}" for i in range(4)]
    p = problem(
        nodes=[Node(name, within=f"r{i // 2}") for i, name in enumerate(at)],
        levels=["rack"],
        jobs=[
            *(kept(f"on-{n}", n, gpus=rng.choice([5, 6, 8]), timeout_s=rng.choice([11, 12, 15]) * HOUR) for n in at),
            *(
                Pending(
                    f"gang-{i}",
                    budget=f"x{i}",
                    gpus=rng.choice([4, 8]),
                    replicas=rng.choice([1, 1, 2]),
                    required=rng.choice(["cluster", "rack"]),
                )
                for i in range(3)
            ),
        ],
        budgets=[Budget("y"), *(Budget(f"x{i}", entitled=16, claim=16, charged=100 * i) for i in range(3))],
    )
    return asked(p, dict.fromkeys(["shortfall", "preemption", "delay", "idle"], Fraction(0)))


def test_kept_promises_that_nothing_can_change_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is promised in rounds in which nothing happens is handed back, all of it or but for one."""
    tally, whole = Counter[tuple[str, str]](), 0
    for seed in range(30):
        p = crowded(Random(seed))
        holds = solve_problem(p).decision.reservations
        whole += len(holds) == 3
        for kept_ones in (holds, holds[:-1]):
            again = replace(p, holds=kept_ones)
            assert (("delay", 0) in solved(again)[1]) == (len(kept_ones) == 3), seed
            compare(f"{seed}", again, monkeypatch, tally)
    assert whole >= 25
    assert [tally["delay", what] for what in ("read", "of a value", "proved as well")] == [2 * whole] * 3


def test_captured_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    from bench.captured import read as captured

    tally: Counter[tuple[str, str]] = Counter()
    for met in captured()[::40]:
        p = compile_round(parse_round(json.dumps(met.document))).problem
        p = replace(p, options=replace(ALONE, deterministic_limit=5.0))
        compare(met.name, p, monkeypatch, tally)
    assert {name for name, _ in tally} == {tier.name for tier in p.policy.tiers if tier.name in OBJECTIVES}
