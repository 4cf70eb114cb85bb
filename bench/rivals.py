"""Ways to solve the first tiers of one and the same round, each with what it reached and proved of every tier."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from ortools.sat.python import cp_model

from bench.naive import TIERS, Linear, NaiveModel, Start
from bench.searches import Kept, with_highs
from cpalloc.models.objectives import OBJECTIVES
from cpalloc.models.partition import Partition
from cpalloc.models.round import build
from cpalloc.problem.problem import Action, Decision, JobState, Mode, Problem, Replica, Tier, status_quo
from cpalloc.solver.greedy import greedy
from cpalloc.solver.solve import solve_problem
from cpalloc.solver.values import violations

ROUNDING = 1e-6
"""What a bound in floating point may be off by."""

LEAST_S = 0.01
"""Seconds that a tier gets however late it is."""

MOST_PLACES = 300_000
"""Pairs of a pending job and a node up to which the naive model is built; beyond, writing it down takes minutes."""

NAIVE = "naive CP-SAT"


@dataclass(frozen=True, slots=True)
class Reached:
    """What a solver reached of a tier, its first part; None where it found nothing, or has no bound."""

    tier: str
    value: int | None
    bound: int | None
    proved: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """A solver's tiers in their order, and the variables of its (largest) model."""

    solver: str
    variables: int
    tiers: tuple[Reached, ...]
    decision: Decision | None = None


def ask(problem: Problem) -> list[tuple[Tier, int]]:
    """The tiers that every rival knows, each with the slack it leaves, in GPUs."""
    entitled = int(problem.budgets.entitled.sum())
    return [(tier, int(tier.slack * entitled)) for tier in problem.policy.tiers if tier.name in TIERS]


def by_cpalloc(problem: Problem) -> Outcome:
    """The optimiser; a tier's value is the one at which it was settled."""
    solution = solve_problem(problem, began=time.perf_counter())
    reached = [
        Reached(tier.name, part.best, part.bound, part.bound == part.best, part.seconds)
        for tier in solution.tiers
        for part in tier.parts[:1]
        if tier.name in TIERS
    ]
    return Outcome("cpalloc", solution.variables, tuple(reached), solution.decision)


def by_greedy(problem: Problem) -> Outcome:
    """The greedy; all its seconds are written at the first tier."""
    began = time.perf_counter()
    decision = greedy(problem)
    seconds = time.perf_counter() - began
    reached: list[Reached] = []
    for tier, _ in ask(problem):
        value = OBJECTIVES[tier.name].evaluate(problem, decision)[0]
        reached.append(Reached(tier.name, value, None, False, 0.0 if reached else seconds))
    return Outcome("greedy", 0, tuple(reached), decision)


def by_highs(problem: Problem) -> Outcome:
    """HiGHS alone on the coarse counting model, which is a relaxation: it can only reach bounds, not decisions."""
    began = time.perf_counter()
    ctx = build(problem, Partition(holds=problem.holds, hard=len(problem.holds), lend=False))

    def minimise(tier: str, limit_s: float) -> tuple[int | None, int | None, bool]:
        ctx.model.minimize(ctx.term(OBJECTIVES[tier])[0])
        found = with_highs(Kept(tier, ctx.model), limit_s)
        return found.value, found.bound, found.proved

    def limit(tier: str, most: int) -> None:
        ctx.model.add(ctx.term(OBJECTIVES[tier])[0] <= most)

    reached = tuple(_in_order(problem, began, minimise, limit))
    return Outcome("HiGHS", len(ctx.model.proto.variables), reached)


def by_naive(problem: Problem) -> Outcome:
    """CP-SAT as it comes on the naive model, beginning with the status quo; no tiers where that would be too large.

    Raises
    ------
    AssertionError
        When what it decided breaks a rule: a bug of the naive model.
    """
    began = time.perf_counter()
    places = _places(problem)
    if places > MOST_PLACES:
        return Outcome(NAIVE, places, ())
    naive = NaiveModel(problem)
    expressions: dict[str, Linear] = {tier.name: TIERS[tier.name](naive) for tier, _ in ask(problem)}
    for var in _deciding(naive):
        naive.model.add_hint(var, 0)
    decision = status_quo(problem)

    def minimise(tier: str, limit_s: float) -> tuple[int | None, int | None, bool]:
        nonlocal decision
        naive.model.minimize(expressions[tier])
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = problem.options.workers
        solver.parameters.random_seed = problem.options.seed
        solver.parameters.max_time_in_seconds = limit_s
        status = solver.solve(naive.model)
        bound = math.ceil(solver.best_objective_bound - ROUNDING) if status != cp_model.UNKNOWN else None
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return None, bound, False
        decision = decision_of(naive, solver)
        naive.model.clear_hints()  # type: ignore[no-untyped-call]
        for var in _deciding(naive):
            naive.model.add_hint(var, solver.value(var))
        return round(solver.objective_value), bound, status == cp_model.OPTIMAL

    def limit(tier: str, most: int) -> None:
        naive.model.add(expressions[tier] <= most)

    reached = tuple(_in_order(problem, began, minimise, limit))
    broken = violations(problem, decision)
    assert not broken, broken[:3]
    return Outcome(NAIVE, len(naive.model.proto.variables), reached, decision)


def _in_order(
    problem: Problem,
    began: float,
    minimise: Callable[[str, float], tuple[int | None, int | None, bool]],
    limit: Callable[[str, int], None],
) -> Iterator[Reached]:
    """Minimise tier after tier, each in an equal part of the time that is left; a value reached limits the next ones.

    The first tier's seconds have the building of the model in them. A tier for which nothing is found gets all the time
    that is left; where that finds nothing either, the order ends.
    """
    tiers = ask(problem)

    def left_s() -> float:
        return max(LEAST_S, problem.options.time_limit_s - (time.perf_counter() - began))

    for index, (tier, slack) in enumerate(tiers):
        since = time.perf_counter() if index else began
        value, bound, proved = minimise(tier.name, left_s() / (len(tiers) - index))
        if value is None and index < len(tiers) - 1:
            value, bound, proved = minimise(tier.name, left_s())
        yield Reached(tier.name, value, bound, proved, time.perf_counter() - since)
        if value is None:
            return
        limit(tier.name, value + slack)


def _places(problem: Problem) -> int:
    """Pairs of a pending job and a node that it may use: the least number of variables of the naive model."""
    pending = problem.jobs.eligibility[problem.jobs.state == JobState.PENDING]
    return int(problem.eligibility.sum(axis=1)[pending].sum())


def _deciding(naive: NaiveModel) -> list[cp_model.IntVar]:
    placed = [x for here in naive.replicas.values() for x in here.values()]
    return [*naive.start.values(), *placed, *naive.preempt.values(), *naive.promote.values()]


def decision_of(naive: NaiveModel, solver: cp_model.CpSolver) -> Decision:
    """The decision that a solution of the naive model stands for, lowest devices first."""
    quo = status_quo(naive.problem)
    action, mode, promoted = quo.action.copy(), quo.mode.copy(), quo.promoted.copy()
    for j, var in naive.preempt.items():
        if solver.value(var):
            action[j], mode[j] = Action.PREEMPT, Mode.NONE
    for j, var in naive.promote.items():
        if solver.value(var):
            promoted[j], mode[j] = True, Mode.ALLOCATED
    free = _free_devices(naive.problem, action)
    begun = [start for start, var in naive.start.items() if solver.value(var)]
    placement: dict[int, tuple[Replica, ...]] = {}
    # Those that need one group of GPUs first: the others take whatever is left.
    for start in sorted(begun, key=lambda s: not naive.problem.jobs.same_gpu_group[s[0]]):
        j, chosen = start
        action[j], mode[j] = Action.START, chosen
        placed = [rep for n in naive.replicas[start] for rep in _on_node(naive, solver, start, n, free)]
        placement[j] = tuple(sorted(placed, key=lambda rep: (rep.node, rep.devices)))
    return Decision(action=action, mode=mode, promoted=promoted, placement=placement)


def _free_devices(problem: Problem, action: np.ndarray[tuple[int], np.dtype[np.int64]]) -> list[int]:
    """Masks of what is free on every node once the victims have left; -1 where devices are not known."""
    free = list(problem.nodes.free_devices)
    for row, j in enumerate(problem.held.job.tolist()):
        n = int(problem.held.node[row])
        if action[j] == Action.PREEMPT and free[n] >= 0:
            free[n] |= problem.held.devices[row]
    return free


def _on_node(naive: NaiveModel, solver: cp_model.CpSolver, start: Start, n: int, free: list[int]) -> Iterator[Replica]:
    """A start's replicas on a node, taken from what is free there."""
    each, count = int(naive.problem.jobs.gpus_per_replica[start[0]]), int(solver.value(naive.replicas[start][n]))
    groups = naive.parts.get((start, n))
    within = [-1] * count if groups is None else [m for m, part in groups.items() for _ in range(solver.value(part))]
    for group in within:
        if free[n] < 0:
            yield Replica(n, each, -1)
            continue
        here = free[n] & group
        taken = sum(1 << d for d in [d for d in range(here.bit_length()) if here >> d & 1][:each])
        free[n] &= ~taken
        yield Replica(n, each, taken)


RIVALS: tuple[Callable[[Problem], Outcome], ...] = (by_cpalloc, by_greedy, by_naive, by_highs)
"""In the order of the table; cpalloc first, since the others are compared with it."""
