"""Decisions drawn at random, and models in which a decision is all there is."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import numpy as np

from cpalloc.models.kinds import layout
from cpalloc.models.objectives import OBJECTIVES
from cpalloc.models.objectives.delay import instants
from cpalloc.models.partition import Partition
from cpalloc.models.round import build
from cpalloc.models.variables import ModelContext
from cpalloc.problem.problem import Action, Decision, JobState, Mode, Options, Problem, status_quo
from cpalloc.solver.hints import hint_of
from cpalloc.solver.outcome import Run, Status
from cpalloc.solver.placing import GreedyState, domain_and_pool, place, slots_now, within_caps
from cpalloc.solver.prune import prune
from cpalloc.solver.run import minimise
from cpalloc.solver.values import violations

ONE_WORKER = Options(workers=1, deterministic=True, deterministic_limit=10.0)


def any_decision(problem: Problem, rng: Random) -> Decision | None:
    """A decision drawn at random, with like jobs in their order; None where what was drawn breaks a rule."""
    decision = in_turn(problem, prune(problem, any_start(problem, rng)))
    return None if violations(problem, decision) else decision


def any_start(problem: Problem, rng: Random) -> Decision:
    """Jobs preempted, promoted and started as chance has it, anywhere they may; preemptions may serve nobody."""
    jobs, quo = problem.jobs, status_quo(problem)
    for j in np.flatnonzero(jobs.state == JobState.EVICTABLE).tolist():
        if rng.random() < 0.4:
            quo.action[j], quo.mode[j] = Action.PREEMPT, Mode.NONE
        elif jobs.may_promote[j] and rng.random() < 0.3:
            quo.promoted[j], quo.mode[j] = True, Mode.ALLOCATED
    state = GreedyState.after(problem, quo)
    waiting = np.flatnonzero(jobs.state == JobState.PENDING).tolist()
    rng.shuffle(waiting)
    for j in waiting:
        modes = [m for m, may in ((Mode.ALLOCATED, jobs.may_allocate), (Mode.BORROWED, jobs.may_borrow)) if may[j]]
        if modes and rng.random() < 0.8:
            _start_anywhere(state, j, rng.choice(modes), rng)
    return state.result()


def _start_anywhere(state: GreedyState, job: int, mode: Mode, rng: Random) -> None:
    """Start a job on nodes drawn at random from a domain drawn at random; nothing where it has no room there."""
    slots, left = slots_now(state, job, mode), int(state.problem.jobs.replicas[job])
    domain = domain_and_pool(state.problem, int(state.problem.jobs.required_level[job]))
    inside = np.flatnonzero(domain == rng.choice(domain[slots > 0].tolist() or [-1])).tolist()
    rng.shuffle(inside)
    nodes = []
    for n in inside:
        count = min(left, int(slots[n]))
        if count:
            nodes.append((n, count))
            left -= count
    if not left and within_caps(state, job, mode) and (placement := place(state, job, nodes)) is not None:
        state.accept(job, mode, placement)


def in_turn(problem: Problem, decision: Decision) -> Decision:
    """The decision with the places of like jobs of a budget given in their order, as models take them."""
    jobs, lay = problem.jobs, layout(problem, Partition(holds=problem.holds, hard=len(problem.holds)))
    modes = Counter(start.job for start in lay.starts)
    families: dict[object, list[int]] = defaultdict(list)
    for start in sorted(lay.starts, key=lambda s: int(jobs.order[s.job])):
        if modes[start.job] == 1:
            terms = (jobs.leaf, jobs.priority, jobs.min_runtime_s, jobs.timeout_s, jobs.preferred_level)
            families[start.shapes, *(int(column[start.job]) for column in terms)].append(start.job)
    action, mode, placement = decision.action.copy(), decision.mode.copy(), dict(decision.placement)
    for members in families.values():
        begun = [j for j in members if j in placement]
        places = [placement.pop(j) for j in begun]
        kept = [(int(action[j]), int(mode[j])) for j in [*begun, *(j for j in members if j not in begun)]]
        for j, (a, m) in zip(members, kept, strict=True):
            action[j], mode[j] = a, m
        placement |= zip(members, places, strict=False)
    return replace(decision, action=action, mode=mode, placement=dict(sorted(placement.items())))


def fixed(problem: Problem, partition: Partition, decision: Decision) -> ModelContext:
    """The model of a round in which nothing is left to decide."""
    ctx = build(problem, partition)
    for var, value in hint_of(ctx, decision):
        ctx.model.add(var == value)
    return ctx


def least(ctx: ModelContext, tier: str, part: int = 0) -> Run:
    """The optimum of a part of a tier."""
    return minimise(ctx.model, ctx.term(OBJECTIVES[tier])[part], options=ONE_WORKER, limit_s=10.0)


def counted(problem: Problem, partition: Partition, decision: Decision, tier: str = "inversion") -> int | None:
    """What a model says a decision is worth; None where it has no such decision."""
    run = least(fixed(problem, partition, decision), tier)
    assert run.status in (Status.OPTIMAL, Status.INFEASIBLE)
    return run.bound


def asking(problem: Problem, jobs: Sequence[int], *, fine: bool = False) -> Partition:
    """Nothing is known of how long some jobs wait, nor who is preempted."""
    window_s = problem.policy.window_s
    return Partition(
        holds=problem.holds,
        hard=len(problem.holds),
        blocked=tuple((j, window_s * int(problem.jobs.size[j])) for j in jobs),
        instants=instants(problem),
        by_release=True,
        split=True,
        fine=fine,
    )


def without_lent(problem: Problem, decision: Decision) -> Decision:
    """A decision without the starts of jobs that can only borrow."""
    only = ~problem.jobs.may_allocate & (decision.action == Action.START)
    action, mode = decision.action.copy(), decision.mode.copy()
    action[only], mode[only] = Action.WAIT, Mode.NONE
    placement = {j: p for j, p in decision.placement.items() if not only[j]}
    return replace(decision, action=action, mode=mode, placement=placement)


def told_apart(p: Problem, how: str, rng: Random) -> Partition:
    """Every pending job watched, or stated exactly, or some of them one way and some the other."""
    base = Partition(holds=p.holds, hard=len(p.holds))
    waiting = np.flatnonzero(p.jobs.state == JobState.PENDING).tolist()
    every = frozenset(waiting)
    some, few = (frozenset(j for j in waiting if rng.random() < 0.4) for _ in range(2))
    return {
        "plain": base,
        "watched": replace(base, watched=every),
        "split": replace(base, watched=every, split=True),
        "gangs": replace(base, watched=every, single=some),
        "apart": replace(base, watched=every, apart=every),
        "exact": replace(base, exact=every),
        "mixed": replace(base, watched=every, apart=few, exact=some, single=few),
        "firm": replace(base, firm=every),
    }[how]
