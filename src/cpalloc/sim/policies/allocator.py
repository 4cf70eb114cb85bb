"""Policies that go through the allocator itself, as a site would: state → round → problem → decision → moves.

``fair-share`` decides with the greedy, ``cpalloc`` with the optimiser. Both look at the same window of the queue, know
the same rules and actions, and hand their promises on from round to round; they differ in nothing but the solver.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cpalloc.engine import solve_round
from cpalloc.metrics.reservations import reserve
from cpalloc.problem.compile import CompileCache, compile_round
from cpalloc.problem.decode import reservation_rows
from cpalloc.problem.problem import Action, Decision, JobState, Mode, Problem
from cpalloc.schema import Round
from cpalloc.schema.answer import ReservationRow
from cpalloc.schema.request import Options
from cpalloc.sim.history import RoundPath
from cpalloc.sim.policies.base import NO_MOVES, Moves, News, Start, Traits
from cpalloc.sim.policies.quick import nothing_can_change
from cpalloc.sim.policies.window import QueueWindow
from cpalloc.sim.rounds import RoundMaker
from cpalloc.sim.state import State
from cpalloc.solver.greedy import greedy


@dataclass(frozen=True, slots=True)
class Decided:
    """What a solver made of a round: ``unproved_tiers`` without a proof; whether one was needed at all (``solved``)."""

    problem: Problem
    decision: Decision
    unproved_tiers: int
    solved: bool


class AllocatorPolicy:
    """A policy that asks a solver of rounds; see :func:`cpalloc_policy` and :func:`fair_share`.

    Parameters
    ----------
    decide_round
        Decides one round; what rounds have in common it may keep in the cache.
    depth
        How many like jobs of a leaf a round looks at (:class:`QueueWindow`).
    """

    traits = Traits(protects=True)

    def __init__(
        self,
        name: str,
        decide_round: Callable[[Round, CompileCache], Decided],
        *,
        options: Options,
        depth: int,
    ) -> None:
        self.name = name
        self.decide_round = decide_round
        self._window = QueueWindow(depth)
        self._maker = RoundMaker(options)
        self._cache = CompileCache()
        self._promises: tuple[ReservationRow, ...] = ()

    def begin(self, state: State) -> None:
        """Nothing to prepare."""

    def shown(self, state: State) -> list[int]:
        """The pending jobs a round would look at."""
        return self._window.shown(state)

    def round_of(self, state: State, shown: Sequence[int]) -> tuple[Round, dict[str, int]]:
        """The present round, and the index of every job in it by its id."""
        return self._maker.make(state, shown, self._promises)

    def decide(self, state: State, news: News) -> Moves:
        """Decide the round, without a solver where nothing can change."""
        self._window.add(state, news.arrived)
        shown = self.shown(state)
        if nothing_can_change(state, shown):
            return replace(NO_MOVES, path=RoundPath.QUICK)
        round_, job_of = self.round_of(state, shown)
        decided = self.decide_round(round_, self._cache)
        self._promises = reservation_rows(decided.problem, decided.decision)
        return moves_of(decided, job_of)


def moves_of(decided: Decided, job_of: dict[str, int]) -> Moves:
    """A decision in the simulator's terms."""
    problem, decision = decided.problem, decided.decision
    jobs = problem.jobs
    index = [job_of[name] for name in jobs.ids]
    preempted = np.flatnonzero((decision.action == Action.PREEMPT) & (jobs.state == JobState.EVICTABLE)).tolist()
    starts = []
    for j, placement in decision.placement.items():
        masks: dict[int, int] = defaultdict(int)
        for replica in placement:
            masks[replica.node] |= replica.devices
        starts.append(Start(index[j], Mode(int(decision.mode[j])), tuple(sorted(masks.items()))))
    return Moves(
        starts=sorted(starts, key=lambda s: s.job),
        preempts=sorted(index[j] for j in preempted),
        promotes=sorted(index[j] for j in np.flatnonzero(decision.promoted).tolist()),
        path=RoundPath.SOLVED if decided.solved else RoundPath.QUICK,
        unproved_tiers=decided.unproved_tiers,
    )


def solve_fully(round_: Round, cache: CompileCache) -> Decided:
    """Decide a round with the optimiser, proofs and all."""
    solved = solve_round(round_, cache=cache, trusted=True)
    tiers = solved.solution.tiers
    problem = solved.compiled.problem
    unproved = sum(not all(part.proved(problem.options.gap) for part in tier.parts) for tier in tiers)
    return Decided(problem, solved.solution.decision, unproved, solved=solved.solution.variables > 0)


def solve_greedily(round_: Round, cache: CompileCache) -> Decided:
    """Decide a round with the greedy; its promises are those the rules give."""
    problem = compile_round(round_, cache=cache, trusted=True).problem
    decision = greedy(problem)
    holds, blocked = reserve(problem, decision, kept=problem.holds)
    return Decided(problem, replace(decision, reservations=holds, blocked=blocked), 0, solved=True)


def cpalloc_policy(*, deterministic_limit: float = 0.5, seed: int = 0, depth: int = 4) -> AllocatorPolicy:
    """The optimiser. Every round is solved deterministically, within ``deterministic_limit`` of CP-SAT's own time."""
    options = Options.model_validate(
        {"deterministic": True, "deterministic_limit": deterministic_limit, "workers": 1, "seed": seed}
    )
    return AllocatorPolicy("cpalloc", solve_fully, options=options, depth=depth)


def fair_share(*, depth: int = 4) -> AllocatorPolicy:
    """The greedy with the same action set: what a good conventional scheduler would do."""
    return AllocatorPolicy("fair-share", solve_greedily, options=Options(), depth=depth)
