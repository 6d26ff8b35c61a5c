"""HiGHS by OR-Tools MathOpt: branch and cut in floating point, both gap tolerances 0."""

from __future__ import annotations

import ctypes
import re
import sys
from datetime import timedelta
from importlib.metadata import version
from typing import Any

from csp.program import Program
from csp.result import Status
from csp.solvers import Answer, Control, Problem
from csp.solvers._floating import TOLERANCE, column_scale, rounded, to_mathopt, unscaled
from csp.solvers._threads import run_watched
from sim.errors import InputError

_PROGRESS = re.compile(r"%\s+(-?inf|-?[\d.e+-]+)\s+(-?inf|-?[\d.e+-]+)\s+(?:Large|inf|[\d.]+%)\s")


def run(problem: Problem, control: Control) -> Answer:
    """Solve a problem's integer program with HiGHS (one thread; MathOpt takes no other number)."""
    _refuse_foreign_library()
    from ortools.math_opt.python import mathopt
    from ortools.util.python.solve_interrupter import SolveInterrupter

    formulated = problem.build(control)
    program = formulated.program
    opt, variables = to_mathopt(program)
    hint = None if problem.incumbent is None else formulated.encode(problem.incumbent)
    parameters = mathopt.SolveParameters(
        absolute_gap_tolerance=0, relative_gap_tolerance=0, random_seed=control.seed,
        time_limit=None if control.remaining_s is None else timedelta(seconds=max(0.01, control.remaining_s)),
    )  # fmt: skip
    hints = [] if hint is None else [mathopt.SolutionHint(_hint(program, variables, hint))]
    interrupter = SolveInterrupter()

    def work() -> Any:
        return mathopt.solve(
            opt, mathopt.SolverType.HIGHS, params=parameters, interrupter=interrupter,
            model_params=mathopt.ModelSolveParameters(solution_hints=hints),
            msg_cb=lambda lines: _report(program, lines, control),
        )  # fmt: skip

    result = run_watched(work, interrupter.interrupt, control)
    reasons = {"OPTIMAL": "OPTIMAL", "INFEASIBLE": "INFEASIBLE", "INFEASIBLE_OR_UNBOUNDED": "INFEASIBLE"}
    status: Status = reasons.get(result.termination.reason.name, "UNKNOWN")  # type: ignore[assignment]
    schedule = value = None
    if result.has_primal_feasible_solution():
        values = rounded(program, [result.variable_values()[x] for x in variables])
        schedule, value = formulated.decode(values), unscaled(program, result.objective_value())
        status = "FEASIBLE" if status == "UNKNOWN" else status
    bound = None if status == "INFEASIBLE" else unscaled(program, result.termination.objective_bounds.dual_bound)
    return Answer(status, schedule, value, bound, formulated.exact, formulated.exact_reason,
                  f"highs (ortools {version('ortools')})", TOLERANCE)  # fmt: skip


def _refuse_foreign_library() -> None:
    """PuLP 3.3, imported by somebody else, loads highspy with global symbols; OR-Tools' HiGHS would then crash."""
    if "pulp" in sys.modules and hasattr(ctypes.CDLL(None), "_ZN5Highs3runEv"):
        raise InputError("cannot run beside PuLP once that has loaded highspy: import csp.solvers.cbc before pulp, or "
                         "uninstall highspy", field="solver", value="highs")  # fmt: skip


def _hint(program: Program, variables: list[Any], values: list[int]) -> dict[Any, float]:
    return {variables[v]: value / column_scale(program, v) for v, value in enumerate(values)}


def _report(program: Program, lines: list[str], control: Control) -> None:
    """Pass on the bound and the incumbent of HiGHS's progress table (columns Expl., BestBound, BestSol, Gap)."""
    for line in lines:
        found = _PROGRESS.search(line)
        if found:
            bound, best = (float(word) for word in found.groups())
            control.report(unscaled(program, best), unscaled(program, bound - TOLERANCE * abs(bound)))
