"""CP-SAT (OR-Tools): integer arithmetic throughout, so its proofs need no tolerance."""

from __future__ import annotations

import math
from importlib.metadata import version
from typing import Any

from csp.formulations import Formulated
from csp.program import OutOfTime, Program
from csp.result import Status
from csp.solvers import Answer, Control, Problem
from csp.solvers._threads import run_watched
from sim.errors import InputError

_INT64_ROOM = 2**62
_TOO_LARGE = "times too large for the 64-bit integers of CP-SAT; use highs"


def run(problem: Problem, control: Control) -> Answer:
    """Solve a problem's integer program with CP-SAT."""
    from ortools.sat.python import cp_model

    formulated = problem.build(control)
    program = formulated.program
    scale = objective_scale(program)
    model, variables = to_cp_model(program, scale)
    hint = None if problem.incumbent is None else formulated.encode(problem.incumbent)
    for variable, value in zip(variables, hint or (), strict=False):
        model.add_hint(variable, value)
    solver = cp_model.CpSolver()
    parameters: Any = solver.parameters
    parameters.num_workers, parameters.random_seed = control.workers, control.seed
    parameters.catch_sigint_signal = False
    # Inclusion detection in the presolve of 9.15 certifies wrong optima (google/or-tools issue 5293; seen here on a
    # flow model under roofline cost, 2.6 % above the optimum).
    parameters.presolve_inclusion_work_limit = 0
    if problem.boundary is not None:  # a part of a schedule: small, and one of hundreds
        parameters.linearization_level, parameters.cp_model_probing_level = 2, 0
    if control.remaining_s is not None:
        parameters.max_time_in_seconds = max(0.01, control.remaining_s)

    class Watch(cp_model.CpSolverSolutionCallback):
        def on_solution_callback(self) -> None:
            control.report(program.worth(round(self.objective_value) * scale), None)

    solver.best_bound_callback = lambda bound: control.report(None, program.worth(safe_bound(bound) * scale))
    code = run_watched(lambda: solver.solve(model, Watch()), solver.stop_search, control)
    if code == cp_model.MODEL_INVALID:
        raise InputError(_TOO_LARGE, field="cost_model", value=program.name)
    status = {cp_model.OPTIMAL: "OPTIMAL", cp_model.FEASIBLE: "FEASIBLE", cp_model.INFEASIBLE: "INFEASIBLE"}
    return _answer(formulated, solver, status.get(code, "UNKNOWN"), scale, variables, f"cp-sat {version('ortools')}")


def _answer(
    formulated: Formulated, solver: Any, word: str, scale: int, variables: list[Any], solver_version: str
) -> Answer:
    program = formulated.program
    schedule, value, bound = None, None, None
    status: Status = word  # type: ignore[assignment]
    if word in ("OPTIMAL", "FEASIBLE"):
        values = [solver.value(v) for v in variables]
        value = program.worth(program.objective_value(values))
        schedule = formulated.decode(values)
    if word == "OPTIMAL" and scale == 1:
        bound = value
    elif word != "INFEASIBLE" and math.isfinite(solver.best_objective_bound):
        bound = program.worth(safe_bound(solver.best_objective_bound) * scale)
        status = "FEASIBLE" if word == "OPTIMAL" else status
    return Answer(status, schedule, value, bound, formulated.exact, formulated.exact_reason, solver_version)


def safe_bound(bound: float) -> int:
    """An integer bound that a double stands for, rounded down by more than the double's error."""
    return math.floor(bound - abs(bound) * 2**-50) if abs(bound) > 2**50 else math.floor(bound + 1e-3)


def objective_scale(program: Program) -> int:
    """What the objective's coefficients are divided by (rounding down) so that sums fit 64 bits; mostly 1.

    Variables and coefficients are >= 0, so the scaled objective never exceeds the true one: its bounds, multiplied
    back, stay valid.
    """
    most = sum(abs(a) * max(abs(program.upper[v]), abs(program.lower[v])) for v, a in program.objective.items())
    return -(-most // _INT64_ROOM) if most else 1


def _require_int64(program: Program) -> None:
    most = [max(abs(lower), abs(upper)) for lower, upper in zip(program.lower, program.upper, strict=True)]
    largest = max(most, default=0)
    for row in program.rows:
        if sum(map(abs, row.terms.values())) * largest > _INT64_ROOM and (
            sum(abs(a) * most[v] for v, a in row.terms.items()) > _INT64_ROOM
        ):
            raise InputError(_TOO_LARGE, field="cost_model", value=program.name)
    if largest > _INT64_ROOM:
        raise InputError(_TOO_LARGE, field="cost_model", value=program.name)


def to_cp_model(program: Program, scale: int = 1) -> tuple[Any, list[Any]]:
    """The program as a CP-SAT model, and its variables in order."""
    from ortools.sat.python import cp_model

    _require_int64(program)
    model = cp_model.CpModel()
    model.name = program.name
    variables = [model.new_int_var(lo, up, name)
                 for lo, up, name in zip(program.lower, program.upper, program.names, strict=True)]  # fmt: skip

    def expression(terms: dict[int, int]) -> Any:
        return cp_model.LinearExpr.weighted_sum([variables[v] for v in terms], list(terms.values()))

    for n, row in enumerate(program.rows):
        if n % 128 == 0 and program.out_of_time():
            raise OutOfTime
        low = cp_model.INT_MIN if row.lower is None else row.lower
        high = cp_model.INT_MAX if row.upper is None else row.upper
        model.add_linear_constraint(expression(row.terms), low, high)
    if program.objective:
        model.minimize(expression({v: a // scale for v, a in program.objective.items()}))
    return model, variables
