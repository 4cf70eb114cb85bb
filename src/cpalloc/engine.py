"""Solve a round, check an answer: compile → greedy and solver → guard → reasons → decode."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from importlib.metadata import version as package_version
from pathlib import Path
from threading import Event, Lock
from typing import Any

from cpalloc.collector import collector_paused, collector_sparing_the_old
from cpalloc.explain.beneficiaries import beneficiaries_of_all
from cpalloc.explain.reasons import Explainer
from cpalloc.metrics.fragmentation import fragmentation
from cpalloc.metrics.occupancy import measures
from cpalloc.models.base import Violation
from cpalloc.models.objectives import OBJECTIVES
from cpalloc.models.partition import Partition
from cpalloc.models.round import build
from cpalloc.problem.compile import CompileCache, Compiled, compile_round
from cpalloc.problem.decode import (
    budget_rows,
    decisions,
    fragmentation_row,
    measures_row,
    read_decision,
    reservation_rows,
)
from cpalloc.problem.problem import Problem
from cpalloc.schema import Allocation, CheckReport, Fingerprints, Reader, Round, fingerprint
from cpalloc.schema import answer as wire
from cpalloc.solver.guard import fallback, guard
from cpalloc.solver.replay import keep
from cpalloc.solver.results import PartResult, Solution, TierResult
from cpalloc.solver.solve import solve_problem
from cpalloc.solver.values import Values, violations
from cpalloc.version import __version__

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Solved:
    """A solved round before it is decoded: for those who stay in Python.

    ``values`` are the tiers' of the solution's decision, where they have been worked out already.
    """

    compiled: Compiled
    solution: Solution
    broken: tuple[Violation, ...]
    compile_s: float
    kept: Path | None = None
    values: Values | None = None


def solve(round_: Round, *, cancel: Event | None = None) -> Allocation:
    """Decide a round and prove how good the decision is.

    Parameters
    ----------
    round_
        The request; ``Round.model_validate(doc)`` reads one.
    cancel
        Setting this event stops the solver; the best decision so far is answered.

    Returns
    -------
    Allocation
        One decision per job, the budgets, the tiers with value and bound, promises, measures. There is always one:
        the status quo with forced ends is feasible.

    Raises
    ------
    InputError
        When the snapshot cannot be trusted as a whole; lists every issue.
    """
    return Solver().solve(round_, cancel=cancel)


class Solver:
    """Solves one round of a cluster after the other: what did not change since the last is not looked at again.

    Answers are what :func:`solve` gives. The last round's objects are kept, no others. Threads may share it: they read
    and compile one at a time, and solve at once.

    Examples
    --------
    >>> from cpalloc.schema.examples import load
    >>> solver = Solver()
    >>> solver.solve(solver.read(load("small")), trusted=True).status
    <Status.OPTIMAL: 'optimal'>
    """

    def __init__(self) -> None:
        self._reader, self._cache, self._fingerprints = Reader(), CompileCache(), Fingerprints()
        self._lock = Lock()

    def read(self, document: Mapping[str, Any] | str | bytes) -> Round:
        """Read a round, as :func:`~cpalloc.schema.parse_round` does; only jobs that changed are read anew.

        Raises
        ------
        InputError
            With every issue.
        """
        with self._lock:
            return self._reader.read(document)

    def solve(
        self, round_: Round, *, cancel: Event | None = None, trusted: bool = False, asked: Round | None = None
    ) -> Allocation:
        """Decide a round (:func:`solve`).

        Parameters
        ----------
        trusted
            The caller has it from :meth:`read`, which has checked it: it is not checked again.
        asked
            What was asked, where that is not what is granted: the fingerprint is of this one.

        Raises
        ------
        InputError
            When the snapshot cannot be trusted as a whole; lists every issue.
        """
        began = time.perf_counter()
        with self._lock:
            compiled = compile_round(round_, cache=self._cache, trusted=trusted)
        solved = _solve_compiled(round_, compiled, began, cancel)
        with self._lock:
            fingerprint = self._fingerprints.of(round_ if asked is None else asked)
        return _decode(round_, solved, fingerprint, began)


def solve_round(
    round_: Round,
    *,
    cancel: Event | None = None,
    began: float | None = None,
    cache: CompileCache | None = None,
    trusted: bool = False,
) -> Solved:
    """Compile, solve and guard; the inside of :func:`solve`. ``cache``, ``trusted``: as in :func:`compile_round`."""
    began = time.perf_counter() if began is None else began
    return _solve_compiled(round_, compile_round(round_, cache=cache, trusted=trusted), began, cancel)


@collector_sparing_the_old()
def _solve_compiled(round_: Round, compiled: Compiled, began: float, cancel: Event | None) -> Solved:
    compile_s = time.perf_counter() - began
    problem = compiled.problem
    broken: list[Violation]
    values: Values | None = None
    try:
        found = solve_problem(problem, began=began, cancel=cancel)
        values = Values(problem, found.decision)
        solution, broken = guard(problem, found, values)
    except Exception as error:  # a bug of ours must not cost a cluster its round
        log.exception("the solver failed")
        solution, broken = fallback(problem), [Violation("solver", f"{type(error).__name__}: {error}")]
    if broken:
        return Solved(compiled, solution, tuple(broken), compile_s, _keep(round_, problem, broken))
    return Solved(compiled, solution, (), compile_s, values=values)


def _keep(round_: Round, problem: Problem, broken: Sequence[Violation]) -> Path | None:
    """Keep round and model of an answer that was not handed out."""
    messages = [f"{v.constraint}: {v.message}" for v in broken]
    log.error("guard: %s", "; ".join(messages))
    try:
        model = str(build(problem, Partition()).model.proto)
    except Exception:  # the model may be what is broken
        model = None
    return keep(round_.model_dump_json(exclude_defaults=True), fingerprint(round_)[7:23], messages, model)


def check(round_: Round, allocation: Allocation) -> CheckReport:
    """Check an answer against its round: every rule it breaks, and the value of every tier, from the answer alone.

    Raises
    ------
    InputError
        When the round itself cannot be used.
    """
    problem = compile_round(round_).problem
    decision, wrong = read_decision(problem, allocation)
    found = [wire.CheckViolation(constraint="answer", message=f"{job} {what}", jobs=(job,)) for job, what in wrong]
    try:
        broken: Sequence[Violation] = violations(problem, decision)
    except (IndexError, KeyError) as error:  # places that are not in the snapshot; already listed
        log.info("check stopped at %s", error)
        broken = ()
    found += [
        wire.CheckViolation(constraint=v.constraint, message=v.message, jobs=v.jobs, nodes=v.nodes) for v in broken
    ]
    tiers: list[wire.TierValue] = []
    if not found:
        for tier in problem.policy.tiers:
            if tier.name in OBJECTIVES:
                tiers.append(wire.TierValue(name=tier.name, value=OBJECTIVES[tier.name].evaluate(problem, decision)[0]))
    return CheckReport(violations=tuple(found), tiers=tuple(tiers))


@collector_paused()
def _decode(round_: Round, solved: Solved, fingerprint: str, began: float) -> Allocation:
    problem, solution = solved.compiled.problem, solved.solution
    decision, gap = solution.decision, problem.options.gap
    proved = solution.stop_reason == "proved"
    warnings = [wire.Warning(code=w.code, path=w.path, message=w.message) for w in solved.compiled.warnings]
    if solved.broken:
        rules = ", ".join(sorted({v.constraint for v in solved.broken}))
        warnings.append(
            wire.Warning(
                code="guard_failed",
                path="",
                message=f"the decision found broke {rules}; nothing starts or is preempted this round but what "
                f"must end. This is a bug of cpalloc: please report it with the files in {solved.kept}",
            )
        )
    values = Values(problem, decision) if solved.values is None else solved.values
    tiers = tuple(_tier_row(problem, t, values[t.name], gap) for t in solution.tiers)
    return Allocation(
        schema_version=1,
        request_fingerprint=fingerprint,
        now=round_.now,
        engine=wire.Engine(cpalloc=__version__, ortools=package_version("ortools")),
        status="optimal" if proved and all(t.status == "optimal" for t in tiers) else "feasible",
        stop_reason="guard_failed" if solved.broken else solution.stop_reason,
        decisions=decisions(
            problem,
            decision,
            solved.compiled.jobs,
            Explainer(problem, decision, proved=proved).reasons(),
            beneficiaries_of_all(problem, decision),
        ),
        budgets=budget_rows(problem, decision),
        tiers=tiers,
        reservations=reservation_rows(problem, decision),
        fragmentation=fragmentation_row(problem, fragmentation(problem, decision)),
        measures=measures_row(measures(problem, decision)),
        warnings=tuple(warnings),
        stats=wire.Stats(
            nodes=len(problem.nodes.names),
            jobs=len(problem.jobs),
            compile_s=_seconds(problem, solved.compile_s),
            build_s=_seconds(problem, solution.build_s),
            solve_s=_seconds(problem, solution.solve_s),
            total_s=_seconds(problem, time.perf_counter() - began),
            variables=solution.variables,
            constraints=solution.constraints,
        ),
    )


def _seconds(problem: Problem, seconds: float) -> float:
    """Seconds for the answer; 0 in deterministic mode, where the same request must give the same bytes."""
    return 0.0 if problem.options.deterministic else round(seconds, 6)


def _tier_row(problem: Problem, tier: TierResult, final: Sequence[int], gap: Fraction) -> wire.TierRow:
    """A tier as the answer tells it: the decision's values, the bound proved, the gap at which the tier was settled."""
    parts = tuple(
        wire.TierPart(
            name=part.name,
            value=value,
            bound=part.bound,
            gap=_gap(part),
            status="optimal" if part.proved(gap) else "feasible",
        )
        for part, value in zip(tier.parts, final, strict=True)
    )
    first = tier.parts[0]
    return wire.TierRow(
        name=tier.name,
        value=final[0],
        best=first.best,
        limit=first.limit,
        bound=first.bound,
        gap=_gap(first),
        status="optimal" if all(p.status == "optimal" for p in parts) else "feasible",
        bound_source=first.source,
        seconds=_seconds(problem, tier.seconds),
        parts=parts if len(parts) > 1 else (),
    )


def _gap(part: PartResult) -> float | None:
    """Relative gap between the value at which a part was settled and its bound."""
    if part.bound is None:
        return None
    return round((part.best - part.bound) / max(1, abs(part.best)), 6)
