"""Decisions that follow a relaxation: whom it keeps stays, and whom it starts starts where it does."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from cpalloc.problem.problem import BoolArray, Decision, JobState, Mode, Problem, status_quo
from cpalloc.solver.greedy import lend, losing, promote, serve, serve_as_needed, serve_beyond, start
from cpalloc.solver.placing import GreedyState
from cpalloc.solver.prune import prune

YIELDS = 1024
"""What the cost of work is divided by that is to make room for others."""


def sparing(
    problem: Problem, stays: Collection[int], most: Mapping[str, int], halted: Callable[[], bool] = bool
) -> Decision:
    """The greedy's decision if some jobs may not be preempted; they are only while starvation and shortfall exceed
    ``most`` without it. Once ``halted``, with what was decided so far."""
    state = GreedyState.after(narrowed := _keeping(problem, stays), status_quo(narrowed))
    serve(state, problem.budgets.entitled.tolist(), halted)
    if halted():
        return state.result()
    return completed(problem, GreedyState.after(problem, prune(narrowed, state.result())), most, halted)


def as_wanted(
    problem: Problem,
    stays: Collection[int],
    wanted: Mapping[int, int],
    most: Mapping[str, int],
    halted: Callable[[], bool] = bool,
    lent: Mapping[int, int] = MappingProxyType({}),
    first: Collection[int] = (),
) -> tuple[Decision, frozenset[int]]:
    """The decision that starts jobs in the pools where they are ``wanted``, the largest first, and preempts nobody who
    ``stays`` for that, as far as possible; and lends to others in the pools that ``lent`` gives. Of equals those of the
    leaves in ``first`` choose first.

    Whoever finds no room that way gets it as anybody would; and while starvation and shortfall exceed ``most``,
    entitlements are then served as ever. Returns who found none at first, too. Once ``halted``, with what was decided
    so far.
    """
    jobs, entitled = problem.jobs, problem.budgets.entitled.tolist()
    narrowed = _yielding(_in_pools(_keeping(problem, stays), {**wanted, **lent}), first)
    state, missed = GreedyState.after(narrowed, status_quo(narrowed)), list[int]()
    for job in wanted:  # each counts for its budget until its own turn, and then as whoever has started
        state.coming[jobs.leaf[job]] += int(jobs.size[job])
    for job in _in_turn(problem, wanted, first):
        if halted():
            break
        state.coming[jobs.leaf[job]] -= int(jobs.size[job])
        if not start(state, job, Mode.ALLOCATED, may_preempt=True):
            missed.append(job)
    for job in _in_turn(problem, lent):
        start(state, job, Mode.BORROWED, may_preempt=False)
    on_loan = np.flatnonzero(jobs.may_promote)
    for job in on_loan[np.argsort(jobs.order[on_loan], kind="stable")].tolist():
        if state.granted[jobs.leaf[job]] < entitled[jobs.leaf[job]]:
            promote(state, job)
    state = GreedyState.after(problem, prune(narrowed, state.result()))
    for job in missed:
        if halted():
            break
        start(state, job, Mode.ALLOCATED, may_preempt=True)
    return completed(problem, state, most, halted), frozenset(missed)


def completed(problem: Problem, state: GreedyState, most: Mapping[str, int], halted: Callable[[], bool]) -> Decision:
    """Entitlements served while too much is missing, and what is left free given away."""
    serve_as_needed(state, losing(problem, state.result()), most, halted)
    serve_beyond(state, halted)
    lend(state, halted)
    return state.result() if halted() else prune(problem, state.result())


def _in_turn(problem: Problem, chosen: Collection[int], first: Collection[int] = ()) -> list[int]:
    """Jobs by size, those that share nodes by what each node gives up; of equals those of some leaves first."""
    jobs = problem.jobs
    size, each, leaf, order = jobs.size.tolist(), jobs.gpus_per_replica.tolist(), jobs.leaf.tolist(), jobs.order
    whole = int(problem.nodes.healthy.max(initial=0))
    return sorted(
        chosen,
        key=lambda j: (-(size[j] if each[j] >= whole else each[j]), leaf[j] not in first, -size[j], int(order[j])),
    )


def _keeping(problem: Problem, stays: Collection[int]) -> Problem:
    """The round if some jobs could not be preempted."""
    state = problem.jobs.state.copy()
    state[list(stays)] = JobState.FIXED
    return replace(problem, jobs=replace(problem.jobs, state=state))


def _yielding(problem: Problem, leaves: Collection[int]) -> Problem:
    """The round if work of some leaves cost next to nothing, so that others take its room before any other."""
    if not leaves:
        return problem
    cost = np.where(
        np.isin(problem.jobs.leaf, list(leaves)), problem.jobs.preempt_cost // YIELDS, problem.jobs.preempt_cost
    )
    return replace(problem, jobs=replace(problem.jobs, preempt_cost=cost))


def _in_pools(problem: Problem, pools: Mapping[int, int]) -> Problem:
    """The round if some jobs could start in one pool only."""
    rule, rules = problem.jobs.eligibility.copy(), list[BoolArray](problem.eligibility)
    known: dict[tuple[int, int], int] = {}
    for job, pool in pools.items():
        wide = int(rule[job])
        if (wide, pool) not in known:
            known[wide, pool] = len(rules)
            rules.append(problem.eligibility[wide] & (problem.nodes.pool == pool))
        rule[job] = known[wide, pool]
    return replace(problem, jobs=replace(problem.jobs, eligibility=rule), eligibility=np.array(rules))
