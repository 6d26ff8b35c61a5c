"""From a backend's answer to a result: replay the schedule, check the claims, take the best valid bound."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from csp.objectives import load_objective
from csp.result import Bound, Result, Status
from csp.solvers import Answer, Problem
from sim.replay import Replay
from sim.replay import replay as replay_schedule

Ticks = int | Fraction


class SolverMismatch(RuntimeError):
    """A solver's claim contradicts the replay of its own schedule: a defect, never an answer."""


def conclude(
    problem: Problem, answer: Answer, bounds: Sequence[Bound], found_by: str | None, solver: str, workers: int,
    seed: int, began: float,
) -> Result:  # fmt: skip
    """Word the result; see `csp.result.Result`.

    Raises
    ------
    SolverMismatch
        If a claim and the replay contradict each other.
    """
    improved = better(problem, answer)
    best, value = improved.incumbent, improved.incumbent_value
    if improved is not problem:
        found_by = solver
    lower, source = _lower_bound(problem, answer, bounds, value, solver)
    if value is not None and lower is not None and lower > value:
        raise SolverMismatch(f"lower bound {lower} by {source} exceeds the replayed objective {value}")
    status = _status(problem, answer, value, lower)
    if problem.question and value is not None and problem.cutoff is not None and value > problem.cutoff:
        best = value = found_by = None
    return Result(
        status, problem.objective, value, lower, source, best, solver, answer.solver_version, problem.formulation,
        answer.exact, answer.exact_reason, workers, seed, time.monotonic() - began, tuple(bounds), found_by,
        unit=load_objective(problem.objective).unit,
    )  # fmt: skip


def better(problem: Problem, answer: Answer) -> Problem:
    """The problem with the answer's schedule, replayed and checked, as incumbent if it is an improvement."""
    if answer.schedule is None:
        return problem
    goal = load_objective(problem.objective)
    found = replay_schedule(problem.instance, answer.schedule, rules=problem.rules, cost=problem.cost)
    value = goal.value(found, problem.cost)
    check_claim(answer, value, exact=goal.exact)
    if not _within_limits(problem, answer, found):
        return problem
    if problem.incumbent_value is not None and value >= problem.incumbent_value:
        return problem
    return replace(problem, incumbent=found, incumbent_value=value)


def _within_limits(problem: Problem, answer: Answer, found: Replay) -> bool:
    """Whether a schedule keeps the limits exactly; only a solver's tolerance may let one through that does not."""
    kept = True
    for name, most in problem.limits:
        value = load_objective(name).value(found, problem.cost)
        if value > most + _slack(answer, most):
            raise SolverMismatch(f"{answer.solver_version}: its schedule's {name} is {value}, above the limit {most}")
        kept = kept and value <= most
    return kept


def _lower_bound(
    problem: Problem, answer: Answer, bounds: Sequence[Bound], value: Ticks | None, solver: str
) -> tuple[Ticks | None, str | None]:
    lower: Ticks | None = None
    source: str | None = None
    for bound in bounds:
        if lower is None or bound.value_ticks > lower:
            lower, source = bound.value_ticks, bound.name
    if answer.exact and not (problem.question and answer.status == "INFEASIBLE"):
        proven = proven_bound(answer, value)
        if proven is not None and (lower is None or proven > lower):
            lower, source = proven, solver
    return lower, source


def proven_bound(answer: Answer, value: Ticks | None, *, slack: Ticks = 0) -> Ticks | None:
    """The solver's bound, lowered by its tolerance unless it finished within it of the replayed objective.

    INFEASIBLE beside an incumbent means that nothing better exists.

    Parameters
    ----------
    slack
        By how much the program's objective may exceed the true one.
    """
    if answer.status == "INFEASIBLE":
        return value
    if answer.lower_bound is None:
        return None
    error = _slack(answer, answer.lower_bound)
    if answer.status == "OPTIMAL" and value is not None and -error <= value - answer.lower_bound <= error:
        return value
    return answer.lower_bound - error - slack


def _status(problem: Problem, answer: Answer, value: Ticks | None, lower: Ticks | None) -> Status:
    if problem.question:
        if value is not None and problem.cutoff is not None and value <= problem.cutoff:
            return "FEASIBLE"
        ruled_out = lower is not None and problem.cutoff is not None and lower > problem.cutoff
        return "INFEASIBLE" if ruled_out or (answer.status == "INFEASIBLE" and answer.exact) else "UNKNOWN"
    if value is None:
        return "INFEASIBLE" if answer.status == "INFEASIBLE" and answer.exact else "UNKNOWN"
    return "OPTIMAL" if lower == value else "FEASIBLE"


def check_claim(answer: Answer, replayed: Ticks, *, exact: bool = True) -> None:
    """The replay may not exceed the claim; a proven optimum must equal it (both up to the solver's tolerance)."""
    claim = answer.value
    if claim is None:
        return
    slack = _slack(answer, claim)
    if replayed > claim + slack or (exact and answer.status == "OPTIMAL" and replayed < claim - slack):
        raise SolverMismatch(f"{answer.solver_version} claims {claim}, its schedule replays to {replayed}")


def _slack(answer: Answer, value: Ticks) -> Ticks:
    """Tolerance of a floating-point solver; whole ticks for times."""
    if not answer.tolerance:
        return 0
    error = Fraction(answer.tolerance) * max(value, -value)
    return math.ceil(error) if value > 10**6 else error
