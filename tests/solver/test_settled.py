"""Which preemptions are the same in every decision within the limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations

import numpy as np
from ortools.sat.python.cp_model import CpModel

from builders import Budget, Node, Pending, Running, job_at, problem
from cpalloc.models.objectives import OBJECTIVES
from cpalloc.models.partition import Partition
from cpalloc.models.round import build
from cpalloc.models.variables import ModelContext
from cpalloc.problem.compile import compile_round
from cpalloc.problem.problem import JobState, Problem
from cpalloc.schema import parse_round
from cpalloc.solver.outcome import Run, Status
from cpalloc.solver.run import minimise
from cpalloc.solver.settled import MOST_SETS, settled
from models.fixing import ONE_WORKER
from reference.tiny_rounds import tiny_doc

Known = tuple[frozenset[int], frozenset[int]] | None


def solve(model: CpModel) -> Run:
    return minimise(model, 0, options=ONE_WORKER, limit_s=10.0)


def contest(victims: Mapping[str, int], *, entitled: int = 8, lost_s: Mapping[str, int] | None = None) -> Problem:
    """Budget x wants 8 GPUs; each victim of budget y holds some GPUs of a node of its own."""
    return problem(
        nodes=[Node(f"n-{name}", gpus=gpus) for name, gpus in victims.items()],
        jobs=[
            *(
                Running(name, budget="y", at=f"n-{name}", gpus=gpus, lost_s=(lost_s or {}).get(name, 60))
                for name, gpus in victims.items()
            ),
            Pending("a", budget="x", gpus=8),
        ],
        budgets=[Budget("x", entitled=entitled, claim=entitled), Budget("y")],
    )


def within(p: Problem, *tiers: str, partition: Partition | None = None) -> ModelContext:
    """The model with the parts of some tiers, one after the other, at their optima."""
    leaves = frozenset(range(len(p.budgets.leaf_vertex)))
    told = partition or Partition(leaves=leaves, holds=p.holds, hard=len(p.holds))
    ctx = build(p, told)
    for tier in tiers:
        for expression in ctx.term(OBJECTIVES[tier]):
            run = minimise(ctx.model, expression, options=ONE_WORKER, limit_s=10.0)
            assert run.bound is not None
            ctx.model.add(expression <= run.bound)
    return ctx


def named(p: Problem, known: Known) -> tuple[set[str], set[str]] | None:
    stays, gone = known or (frozenset(), frozenset())
    return known and ({p.jobs.ids[j] for j in stays}, {p.jobs.ids[j] for j in gone})


def one(p: Problem, name: str) -> frozenset[int]:
    return frozenset({job_at(p, name)})


def test_the_only_set_there_is() -> None:
    # dear costs more; one of the two must go.
    p = contest({"cheap": 8, "dear": 8}, lost_s={"dear": 600})
    ctx = within(p, "shortfall", "preemption")
    assert named(p, settled(ctx, p, one(p, "cheap"), solve)) == ({"dear"}, {"cheap"})


def test_nobody_need_go() -> None:
    p = contest({"v": 8, "w": 8}, entitled=0)
    ctx = within(p, "shortfall", "preemption")
    assert named(p, settled(ctx, p, frozenset(), solve)) == ({"v", "w"}, set())


def test_who_may_stay_or_go_is_in_neither() -> None:
    # v and w cost the same, u more.
    p = contest({"u": 8, "v": 8, "w": 8}, lost_s={"u": 600})
    ctx = within(p, "shortfall", "preemption")
    for known in ("v", "w"):
        assert named(p, settled(ctx, p, one(p, known), solve)) == ({"u"}, set())


def test_who_goes_in_every_set_is_gone() -> None:
    # 16 GPUs: a needs 8 of one node, b 8 of another; must is the cheapest, then v or w.
    p = problem(
        nodes=[Node(f"n-{name}") for name in ("must", "v", "w")],
        jobs=[
            *(
                Running(name, budget="y", at=f"n-{name}", gpus=8, lost_s=lost)
                for name, lost in (("must", 1), ("v", 60), ("w", 60))
            ),
            Pending("a", budget="x", gpus=8, replicas=2),
        ],
        budgets=[Budget("x", entitled=16, claim=16), Budget("y")],
    )
    ctx = within(p, "shortfall", "preemption")
    assert named(p, settled(ctx, p, one(p, "must") | one(p, "v"), solve)) == (set(), {"must"})


def test_so_many_sets_and_no_more() -> None:
    for count in range(1, MOST_SETS + 2):
        p = contest({f"v{i}": 8 for i in range(count)})
        known = settled(within(p, "shortfall", "preemption"), p, one(p, "v0"), solve)
        gone = one(p, "v0") if count == 1 else frozenset()
        assert known == ((frozenset(), gone) if count <= MOST_SETS else None), count


def test_a_solver_that_knows_nothing_settles_nothing() -> None:
    p = contest({"cheap": 8, "dear": 8}, lost_s={"dear": 600})
    ctx = within(p, "shortfall", "preemption")
    asked: list[CpModel] = []

    def silent(model: CpModel) -> Run:
        asked.append(model)
        return Run(Status.UNKNOWN)

    assert settled(ctx, p, one(p, "cheap"), silent) is None
    assert len(asked) == 1


def test_a_set_that_is_less_than_proved_is_no_other_set() -> None:
    # Nothing in the model makes anybody go, so that it has the empty set as well; decisions are known to cost 480.
    p = contest({"cheap": 8, "dear": 8}, lost_s={"dear": 600})
    ctx = within(p, "preemption")
    assert named(p, settled(ctx, p, frozenset(), solve)) == ({"cheap", "dear"}, set())
    ctx = within(p)
    ctx.model.add(ctx.term(OBJECTIVES["preemption"])[0] <= 480)
    known = one(p, "cheap")
    for bounds in ([], [None, None, None, None], [0, None, None], [-1]):
        assert named(p, settled(ctx, p, known, solve, bounds)) == ({"dear"}, set()), bounds
    for bounds in ([1], [480], [480, None, None, None], [None, 1], [None, None, 8, None], [480, 1, 8, 36000]):
        assert named(p, settled(ctx, p, known, solve, bounds)) == ({"dear"}, {"cheap"}), bounds


def test_bounds_are_for_the_parts_in_their_order() -> None:
    # cheap, dear or both: 480, 4800 or 5280 GPU-seconds, 1, 1 or 2 jobs. The empty set is less than any bound.
    p = contest({"cheap": 8, "dear": 8}, lost_s={"dear": 600})
    ctx = within(p)
    for bounds, expected in (
        ([481, None], (set(), {"dear"})),
        ([None, 1], (set(), set())),
        ([None, 2], (set(), {"cheap", "dear"})),
        ([5280], (set(), {"cheap", "dear"})),
    ):
        assert named(p, settled(ctx, p, one(p, "dear") | one(p, "cheap"), solve, bounds)) == expected, bounds
    rows = len(ctx.model.proto.constraints)
    settled(ctx, p, one(p, "dear"), solve, [481])
    assert len(ctx.model.proto.constraints) == rows


def test_where_nobody_can_be_preempted_bounds_say_nothing() -> None:
    p = contest({}, entitled=8)
    for bounds in ([0, 0, 0, 0], [1], []):
        assert settled(within(p), p, frozenset(), solve, bounds) == (frozenset(), frozenset())


def test_the_model_itself_is_left_as_it_is() -> None:
    p = contest({"v": 8, "w": 8})
    ctx = within(p, "shortfall", "preemption")
    rows = len(ctx.model.proto.constraints)
    first = settled(ctx, p, one(p, "v"), solve)
    assert len(ctx.model.proto.constraints) == rows
    assert settled(ctx, p, one(p, "v"), solve) == first


def test_what_the_model_has_no_variable_for_stays() -> None:
    # With u taken for fixed the model knows v and w alone; w taken for preempted leaves nothing to choose.
    p = contest({"u": 8, "v": 8, "w": 8})
    leaves = frozenset({0, 1})
    ctx = within(p, "shortfall", "preemption", partition=Partition(leaves=leaves, stays=one(p, "u")))
    assert named(p, settled(ctx, p, one(p, "v"), solve)) == ({"u"}, set())
    gone = Partition(leaves=leaves, stays=one(p, "u") | one(p, "v"), gone=one(p, "w"))
    ctx = within(p, "shortfall", "preemption", partition=gone)
    assert named(p, settled(ctx, p, one(p, "w"), solve)) == ({"u", "v"}, {"w"})


def sets_of(ctx: ModelContext) -> Iterator[frozenset[int]]:
    """Every set of victims that the model has, by trying all of them."""
    for size in range(len(ctx.e) + 1):
        for chosen in combinations(sorted(ctx.e), size):
            model = ctx.model.clone()
            for j, var in ctx.e.items():
                model.add(var == int(j in chosen))
            if solve(model).status is Status.OPTIMAL:
                yield frozenset(chosen)


def test_against_every_set_of_victims_there_is() -> None:
    told = {"one": 0, "few": 0, "many": 0}
    for seed in range(150):
        p = compile_round(parse_round(tiny_doc(seed))).problem
        evictable = frozenset(np.flatnonzero(p.jobs.state == JobState.EVICTABLE).tolist())
        if not evictable:
            continue
        # Limits on all that comes before leave few sets; none but the number of victims leaves many.
        ctx = within(p, *(("starvation", "shortfall") if seed % 2 else ()))
        number = ctx.term(OBJECTIVES["preemption"])[1]
        run = minimise(ctx.model, number, options=ONE_WORKER, limit_s=10.0)
        assert run.bound is not None
        ctx.model.add(number <= run.bound + 2 * (1 - seed % 2))
        sets = list(sets_of(ctx))
        for known in sets[:2]:
            expected: Known = None
            if len(sets) <= MOST_SETS:
                expected = evictable - frozenset().union(*sets), frozenset.intersection(*sets)
            assert settled(ctx, p, known, solve) == expected, seed
        told["one" if len(sets) == 1 else "few" if len(sets) <= MOST_SETS else "many"] += bool(sets[0] or len(sets) > 1)
    assert min(told.values()) > 0, told
