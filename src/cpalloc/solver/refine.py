"""What a model must tell apart after all, as an answer of the coarser one showed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from cpalloc.models.base import Violation
from cpalloc.models.objectives.fragmentation import late_shapes, protection_ends
from cpalloc.models.objectives.inversion import inverted, weight
from cpalloc.models.partition import Partition
from cpalloc.problem.problem import Action, Decision, JobState, Problem

MOST_EXACT = 8
"""Inverted jobs for which worse-ranked starts are told apart at a time."""


def tell_apart(
    problem: Problem,
    partition: Partition,
    tier: str,
    candidate: Decision,
    broken: Sequence[Violation],
    *,
    incumbent: Decision,
    affordable: Callable[[set[int]], set[int]],
    inversion: int = 0,
    firmly: bool = False,
) -> Partition:
    """The partition with what a candidate showed must be told apart; unchanged where it showed nothing.

    Parameters
    ----------
    tier
        The tier worked on.
    candidate
        Decision realised from a solution under the partition.
    broken
        What the candidate breaks.
    incumbent
        The decision it was to improve.
    affordable
        As many of some jobs as there is time to tell apart one by one.
    inversion
        What inversion may be, for the tiers after it.
    firmly
        Forbid what inverts a job, fit or not, where that suffices; otherwise state exactly whether it would fit.
    """
    jobs = problem.jobs
    index = {name: j for j, name in enumerate(jobs.ids)}
    tiers = [t.name for t in problem.policy.tiers]
    leaves, watched, single = set(partition.leaves), set(partition.watched), set(partition.single)
    apart, exact, firm, split = set(partition.apart), set(partition.exact), set(partition.firm), partition.split
    instants, timed = partition.instants, partition.timed
    for violation in broken:
        if violation.constraint == "preemption":
            leaves |= {int(jobs.leaf[index[j]]) for j in violation.jobs}
        elif violation.constraint == "capacity":
            split = True
    if not broken and "inversion" in tiers[: tiers.index(tier) + 1]:
        passed = set(inverted(problem, candidate))
        if tier != "inversion" and sum(weight(problem, j) for j in passed) <= inversion:
            passed = set()  # as many may be passed over
        if firmly:
            firm |= passed
        elif not passed <= watched or not _worse_gangs(problem, candidate, passed) <= single:
            if watched:
                single |= _worse_gangs(problem, candidate, passed)
            watched |= _behind_whom(problem, candidate, passed if not watched else None)
        elif not passed <= apart:
            apart |= passed
        else:
            exact |= set(sorted(passed - exact)[:MOST_EXACT])
    if "fragmentation" in tiers[: tiers.index(tier) + 1] and not broken:
        # The tiers after it as well: what they would choose may take longer to place than the model knows.
        known = dict(timed)
        for decision in (incumbent, candidate):
            for shape, seconds in late_shapes(problem, decision):
                known[shape] = max(seconds, known.get(shape, 0))
        if known:
            timed = tuple(sorted(known.items()))
            instants = protection_ends(problem, timed)
    if tier == "locality" and not broken:
        single |= affordable({j for j in candidate.placement if jobs.preferred_level[j] >= 0} - single)
    return replace(
        partition,
        leaves=frozenset(leaves),
        watched=frozenset(watched),
        apart=frozenset(apart),
        exact=frozenset(exact),
        firm=frozenset(firm),
        single=frozenset(single),
        split=split,
        instants=instants,
        timed=timed,
    )


def _behind_whom(problem: Problem, decision: Decision, passed: set[int] | None) -> set[int]:
    """Waiting jobs that some start of a budget in which somebody is passed over (None: of any) is worse-ranked than.

    Whoever is helped to its right passes the next one over; so all of them are looked at together.
    """
    jobs = problem.jobs
    last = {int(jobs.leaf[j]): -1 for j in (decision.placement if passed is None else passed)}
    for i in decision.placement:
        if (leaf := int(jobs.leaf[i])) in last:
            last[leaf] = max(last[leaf], int(jobs.order[i]))
    waiting = np.flatnonzero((decision.action == Action.WAIT) & (jobs.state == JobState.PENDING)).tolist()
    return {j for j in waiting if jobs.order[j] < last.get(int(jobs.leaf[j]), -1)}


def _worse_gangs(problem: Problem, decision: Decision, passed: set[int]) -> set[int]:
    """Starts of several replicas that are worse-ranked than some jobs of their budget and mode which they pass over."""
    jobs = problem.jobs
    return {
        i
        for i in decision.placement
        for j in passed
        if jobs.leaf[i] == jobs.leaf[j]
        and jobs.order[i] > jobs.order[j]
        and jobs.replicas[i] > 1
        and jobs.gpus_per_replica[i] >= jobs.gpus_per_replica[j]
        and jobs.required_level[j] > 0
    }
