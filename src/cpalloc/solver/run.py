"""One CP-SAT solve: parameters that suit the model, a hint, a limit, and an answer that is believed only as far as it
agrees with itself."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass
from enum import StrEnum
from threading import Event, Thread

from ortools.sat.python import cp_model

from cpalloc.errors import ModelInvalid
from cpalloc.models.variables import Linear
from cpalloc.problem.problem import Options


class Status(StrEnum):
    """What a solve found."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Run:
    """Outcome of one solve: status, the solver to read values from, a proven lower bound (None: not known)."""

    status: Status
    solver: cp_model.CpSolver
    bound: int | None
    seconds: float

    def value(self, var: cp_model.IntVar) -> int:
        """Value of a variable in the solution found."""
        return int(self.solver.value(var))

    @property
    def found(self) -> bool:
        """Whether there is a solution to read."""
        return self.status in (Status.OPTIMAL, Status.FEASIBLE)


def parameters(solver: cp_model.CpSolver, options: Options, limit_s: float, *, presolve: bool, lp_search: bool) -> None:
    """Parameters of every solve. One worker and a strong LP prove these models; default presolve costs more than it
    gives, and its inclusion step has certified wrong optima in ortools 9.15 (or-tools issue 5293)."""
    p = solver.parameters
    p.num_workers = 1
    p.catch_sigint_signal = False
    p.linearization_level = 2
    p.random_seed = options.seed
    p.max_presolve_iterations = 1
    p.symmetry_level = 0
    p.cp_model_probing_level = 0
    p.presolve_inclusion_work_limit = 0
    p.cp_model_presolve = presolve
    if lp_search:
        p.search_branching = type(p.search_branching).LP_SEARCH
    else:
        p.cut_level = 0  # cuts cost this search more than they give (docs/tried.md)
    if options.deterministic:
        p.max_deterministic_time = limit_s
    else:
        p.max_time_in_seconds = limit_s


def minimise(
    model: cp_model.CpModel,
    objective: Linear,
    *,
    options: Options,
    limit_s: float,
    hint: Sequence[tuple[cp_model.IntVar, int]] = (),
    presolve: bool = True,
    cancel: Event | None = None,
) -> Run:
    """Minimise an expression over a model.

    With two workers or more, and not deterministic, two single-worker searches race on the same model: they win on
    different instances, and whichever proves its answer stops the other.

    Parameters
    ----------
    hint
        Values of the deciding variables in a known solution.
    limit_s
        Seconds, or units of deterministic time in deterministic mode.

    Raises
    ------
    ModelInvalid
        When CP-SAT refuses the model: a bug of ours.
    """
    model.clear_hints()  # type: ignore[no-untyped-call]
    for var, value in hint:
        model.add_hint(var, value)
    model.clear_objective()  # type: ignore[no-untyped-call]
    model.minimize(objective)
    race = options.workers > 1 and not options.deterministic
    solvers = [cp_model.CpSolver() for _ in range(2 if race else 1)]
    for k, solver in enumerate(solvers):
        parameters(solver, options, limit_s, presolve=presolve, lp_search=k > 0)
    with _Watch(solvers, cancel):
        statuses = _race(solvers, model) if race else [solvers[0].solve(model)]
    runs = [_outcome(solver, status, model) for solver, status in zip(solvers, statuses, strict=True)]
    return _best(runs)


_FINAL = (cp_model.OPTIMAL, cp_model.INFEASIBLE, cp_model.MODEL_INVALID)


def _race(solvers: Sequence[cp_model.CpSolver], model: cp_model.CpModel) -> list[object]:
    """Solve in one thread each; once one has nothing left to find, the others are told to stop until they have."""
    with ThreadPoolExecutor(len(solvers)) as pool:
        running = [pool.submit(solver.solve, model) for solver in solvers]
        settled = False
        while not all(f.done() for f in running):
            wait(running, timeout=0.005 if settled else None, return_when=FIRST_COMPLETED)
            settled = any(f.done() and f.result() in _FINAL for f in running)
            for solver, future in zip(solvers, running, strict=True):
                if settled and not future.done():
                    # Again and again: a search that has not begun yet forgets that it was told to stop.
                    solver.stop_search()
            if not settled:
                wait(running, timeout=0.005)
        return [f.result() for f in running]


def _outcome(solver: cp_model.CpSolver, status: object, model: cp_model.CpModel) -> Run:
    seconds = solver.wall_time
    if status == cp_model.MODEL_INVALID:
        raise ModelInvalid(model.validate())
    if status == cp_model.INFEASIBLE:
        return Run(Status.INFEASIBLE, solver, None, seconds)
    bound = _floor(solver.best_objective_bound)
    if status == cp_model.OPTIMAL:
        return Run(Status.OPTIMAL, solver, round(solver.objective_value), seconds)
    return Run(Status.FEASIBLE if status == cp_model.FEASIBLE else Status.UNKNOWN, solver, bound, seconds)


def _best(runs: Sequence[Run]) -> Run:
    """A proved run if there is one, else the better solution, always with the better bound."""
    for status in (Status.OPTIMAL, Status.INFEASIBLE):
        for run in runs:
            if run.status is status:
                return run
    bounds = [run.bound for run in runs if run.bound is not None]
    found = [run for run in runs if run.found]
    best = min(found, key=lambda run: run.solver.objective_value) if found else runs[0]
    return Run(best.status, best.solver, max(bounds) if bounds else None, best.seconds)


def _floor(bound: float) -> int | None:
    """The least integer a bound proves; CP-SAT's bounds are integers up to float noise."""
    if bound != bound or abs(bound) >= 2**53:
        return None
    return int(-(-(bound - 1e-6) // 1))


class _Watch:
    """Stops solves when an event is set, looking every 20 ms; does nothing without an event."""

    def __init__(self, solvers: Sequence[cp_model.CpSolver], event: Event | None) -> None:
        self._solvers, self._event, self._done = solvers, event, Event()
        self._thread: Thread | None = None

    def __enter__(self) -> None:
        if self._event is not None:
            self._thread = Thread(target=self._look, args=(self._event,), daemon=True)
            self._thread.start()

    def _look(self, event: Event) -> None:
        while not self._done.wait(0.02):
            if event.is_set():
                # Again and again: a search that has not begun yet forgets that it was told to stop.
                for solver in self._solvers:
                    solver.stop_search()

    def __exit__(self, *_: object) -> None:
        self._done.set()
        if self._thread is not None:
            self._thread.join()
