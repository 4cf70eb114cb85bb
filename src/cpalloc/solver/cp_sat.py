"""One single-worker search of CP-SAT, with parameters that suit the models of a round."""

from __future__ import annotations

from collections.abc import Sequence

from ortools.sat.python import cp_model

from cpalloc.errors import ModelInvalid
from cpalloc.problem.problem import Options
from cpalloc.solver.outcome import Run, Status

_STATUS = {
    cp_model.OPTIMAL: Status.OPTIMAL,
    cp_model.FEASIBLE: Status.FEASIBLE,
    cp_model.INFEASIBLE: Status.INFEASIBLE,
    cp_model.UNKNOWN: Status.UNKNOWN,
}


def parameters(solver: cp_model.CpSolver, options: Options, limit_s: float, *, presolve: bool, upwards: bool) -> None:
    """Parameters of every solve. One worker and a strong LP prove these models; cuts and default presolve cost more
    than they give (docs/tried.md), and presolve's inclusion step has certified wrong optima in ortools 9.15 (or-tools
    issue 5293).

    ``upwards``: look for solutions worth as little as the bound allows first, rather than for better ones.
    """
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
    p.cut_level = 0
    p.use_objective_lb_search = upwards
    if options.deterministic:
        p.max_deterministic_time = limit_s
    else:
        p.max_time_in_seconds = limit_s


class CpSat:
    """A search that improves the known solution, or works ``upwards`` from the bound, knowing of none.

    The ``hint`` is left in the model.
    """

    def __init__(
        self,
        model: cp_model.CpModel,
        options: Options,
        limit_s: float,
        *,
        hint: Sequence[tuple[cp_model.IntVar, int]] = (),
        presolve: bool = True,
        upwards: bool = False,
    ) -> None:
        self._model = model
        if hint:
            # One by one hints cost as much as many a solve; and one that is there but empty is not the same as none:
            # upwards from the bound CP-SAT took ten times as long with it.
            model.proto.solution_hint.vars.extend([var.index for var, _ in hint])
            model.proto.solution_hint.values.extend([value for _, value in hint])
        self._solver = cp_model.CpSolver()
        parameters(self._solver, options, limit_s, presolve=presolve, upwards=upwards)

    def stop(self) -> None:
        """Tell a running search to stop; one that has not begun yet forgets it."""
        self._solver.stop_search()

    def may_be_left(self) -> bool:
        """Never: it reads the caller's model."""
        return False

    def solve(self) -> Run:
        """Search until the answer is proved, the limit is reached, or somebody says stop.

        Raises
        ------
        ModelInvalid
            When CP-SAT refuses the model: a bug of ours.
        """
        solver = self._solver
        answer = solver.solve(self._model)
        if answer not in _STATUS:
            raise ModelInvalid(self._model.validate())
        status, values, objective = _STATUS[answer], None, None
        if status in (Status.OPTIMAL, Status.FEASIBLE):
            values, objective = list(solver.response_proto.solution), round(solver.objective_value)
        bound = objective if status is Status.OPTIMAL else _floor(solver.best_objective_bound)
        return Run(
            status,
            values,
            objective,
            None if status is Status.INFEASIBLE else bound,
            "cp_sat",
            solver.wall_time,
            solver.deterministic_time,
        )


def _floor(bound: float) -> int | None:
    """The least integer a bound proves; CP-SAT's bounds are integers up to float noise."""
    if bound != bound or abs(bound) >= 2**53:
        return None
    return int(-(-(bound - 1e-6) // 1))
