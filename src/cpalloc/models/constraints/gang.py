"""Gangs: all replicas or none, in one pool; every job's action and mode suit its state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from cpalloc.models.base import Violation
from cpalloc.models.variables import ModelContext
from cpalloc.problem.problem import Action, Decision, JobState, Mode, Problem

_ALLOWED = {
    JobState.PENDING: (Action.START, Action.WAIT),
    JobState.REFUSED: (Action.WAIT,),
    JobState.FIXED: (Action.KEEP, Action.PREEMPT),
    JobState.EVICTABLE: (Action.KEEP, Action.PREEMPT),
    JobState.DRAINED: (Action.PREEMPT,),
    JobState.STOPPING: (Action.PREEMPT,),
    JobState.LOST: (Action.LOST,),
}


def _worth_a_look(problem: Problem, decision: Decision) -> list[int]:
    """All jobs but those that wait, or end, without a mode or a place, and those that stay as they ran."""
    jobs, action = problem.jobs, decision.action
    stays = (action == Action.KEEP) & (decision.mode == jobs.mode) & ~decision.promoted
    ends = (action != Action.KEEP) & (action != Action.START) & (decision.mode == Mode.NONE) & ~decision.promoted
    allowed = np.zeros((len(JobState), len(Action)), dtype=np.bool_)
    for state, actions in _ALLOWED.items():
        allowed[state, list(actions)] = True
    look = ~allowed[jobs.state, action] | ~(stays | ends)
    look[list(decision.placement)] = True
    return [int(j) for j in np.flatnonzero(look)]


class Gang:
    """A start has every replica, whole, in one pool; nothing else is placed."""

    name: ClassVar[str] = "gang"

    def applies(self, problem: Problem) -> bool:
        """Always."""
        return True

    def build(self, ctx: ModelContext) -> None:
        """Nothing to add: a gang is counted as a whole, and its shape belongs to one pool."""

    def check(self, problem: Problem, decision: Decision) -> Iterator[Violation]:
        """Job by job, looking only at those that are not plainly as they were."""
        for j in _worth_a_look(problem, decision):
            job = problem.jobs.ids[j]
            action, state = Action(int(decision.action[j])), JobState(int(problem.jobs.state[j]))
            if action not in _ALLOWED[state]:
                yield Violation(self.name, f"{job} is {state.name.lower()} and may not {action.name.lower()}", (job,))
            wrong = self._mode(problem, decision, j)
            if wrong:
                yield Violation(self.name, f"{job} {wrong}", (job,))
            yield from self._placement(problem, decision, j)

    @staticmethod
    def _mode(problem: Problem, decision: Decision, j: int) -> str:
        jobs, action, mode = problem.jobs, int(decision.action[j]), Mode(int(decision.mode[j]))
        if decision.promoted[j]:
            if not (jobs.may_promote[j] and action == Action.KEEP and mode is Mode.ALLOCATED):
                return "may not be promoted"
        elif action == Action.KEEP and mode != int(jobs.mode[j]):
            return "changes its mode without being promoted"
        if action == Action.START:
            may = {Mode.ALLOCATED: jobs.may_allocate[j], Mode.BORROWED: jobs.may_borrow[j]}.get(mode, False)
            return "" if may else f"may not start {mode.name.lower()}"
        if action != Action.KEEP and mode is not Mode.NONE:
            return "has a mode although it does not run"
        return ""

    def _placement(self, problem: Problem, decision: Decision, j: int) -> Iterator[Violation]:
        jobs, placement = problem.jobs, decision.placement.get(j, ())
        if int(decision.action[j]) != Action.START:
            if placement:
                yield Violation(self.name, f"{jobs.ids[j]} is placed although it does not start", (jobs.ids[j],))
            return
        want, each = int(jobs.replicas[j]), int(jobs.gpus_per_replica[j])
        if len(placement) != want or any(r.gpus != each for r in placement):
            yield Violation(
                self.name,
                f"{jobs.ids[j]} needs {want} replicas of {each} GPUs and gets {[r.gpus for r in placement]}",
                (jobs.ids[j],),
            )
        pools = {int(problem.nodes.pool[r.node]) for r in placement if r.node >= 0}
        if len(pools) > 1:
            yield Violation(self.name, f"{jobs.ids[j]} spans GPU types", (jobs.ids[j],))
