"""One CP-SAT solve: parameters that suit the model, a hint, a limit, and an answer that is believed only as far as it
agrees with itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from threading import Event, Timer

from ortools.sat.python import cp_model

from cpalloc.errors import ModelInvalid
from cpalloc.models.variables import Linear, ModelContext
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


def parameters(solver: cp_model.CpSolver, options: Options, limit_s: float) -> None:
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
    if options.deterministic:
        p.max_deterministic_time = limit_s
    else:
        p.max_time_in_seconds = limit_s


def minimise(
    ctx: ModelContext,
    objective: Linear,
    *,
    options: Options,
    limit_s: float,
    hint: Sequence[tuple[cp_model.IntVar, int]] = (),
    presolve: bool = True,
    cancel: Event | None = None,
) -> Run:
    """Minimise an expression over a model.

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
    model = ctx.model
    model.clear_hints()  # type: ignore[no-untyped-call]
    for var, value in hint:
        model.add_hint(var, value)
    model.clear_objective()  # type: ignore[no-untyped-call]
    model.minimize(objective)
    solver = cp_model.CpSolver()
    parameters(solver, options, limit_s)
    if not presolve:
        solver.parameters.cp_model_presolve = False
    watch = _watch(solver, cancel)
    status = solver.solve(model)
    if watch is not None:
        watch.cancel()
    seconds = solver.wall_time
    if status == cp_model.MODEL_INVALID:
        raise ModelInvalid(model.validate())
    if status == cp_model.INFEASIBLE:
        return Run(Status.INFEASIBLE, solver, None, seconds)
    bound = _floor(solver.best_objective_bound)
    if status == cp_model.OPTIMAL:
        return Run(Status.OPTIMAL, solver, round(solver.objective_value), seconds)
    if status == cp_model.FEASIBLE:
        return Run(Status.FEASIBLE, solver, bound, seconds)
    return Run(Status.UNKNOWN, solver, bound, seconds)


def _floor(bound: float) -> int | None:
    """The least integer a bound proves; CP-SAT's bounds are integers up to float noise."""
    if bound != bound or abs(bound) >= 2**53:
        return None
    return int(-(-(bound - 1e-6) // 1))


class _Watch:
    """Stops a solve when an event is set, looking every 20 ms."""

    def __init__(self, solver: cp_model.CpSolver, event: Event) -> None:
        self.solver, self.event, self.done = solver, event, False
        self._arm()

    def _arm(self) -> None:
        self.timer = Timer(0.02, self._look)
        self.timer.daemon = True
        self.timer.start()

    def _look(self) -> None:
        if self.done:
            return
        if self.event.is_set():
            self.solver.stop_search()
        self._arm()

    def cancel(self) -> None:
        self.done = True
        self.timer.cancel()


def _watch(solver: cp_model.CpSolver, event: Event | None) -> _Watch | None:
    return None if event is None else _Watch(solver, event)
