"""The one way in: solve an instance, replay what comes back, and say exactly what has been proven."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from fractions import Fraction

from csp.objectives import load_objective
from csp.program import OutOfTime
from csp.relaxations import combinatorial_bounds
from csp.result import Bound, Result, Status
from csp.solvers import Answer, Control, Problem, load_backend
from csp.warm import best_heuristic
from sim.cost.model import CostModel, load_cost_model
from sim.errors import InputError
from sim.instance import Instance
from sim.replay import PAPER_RULES, Replay, Rules, replay

Ticks = int | Fraction


class SolverMismatch(RuntimeError):
    """A solver's claim contradicts the replay of its own schedule: a defect, never an answer."""


def solve(
    instance: Instance,
    *,
    objective: str = "makespan",
    formulation: str = "flow",
    solver: str = "cpsat",
    time_limit_s: float | None = None,
    workers: int = 2,
    seed: int = 0,
    rules: Rules = PAPER_RULES,
    cost: CostModel | None = None,
    warm_start: Replay | None = None,
    progress: Callable[[Ticks | None, Ticks | None], None] | None = None,
    stop: threading.Event | None = None,
) -> Result:
    """Find the best schedule of an instance, with proof.

    Parameters
    ----------
    objective, formulation, solver
        Names of files in `csp.objectives`, `csp.formulations`, `csp.solvers`.
    time_limit_s
        Seconds to spend; the best schedule and bound so far are returned then.
    cost
        Cost model; the instance's by default.
    warm_start
        A known schedule; the best heuristic one is used if that is better.
    progress
        Called with (incumbent, lower bound) in ticks whenever one improves.
    stop
        Set it from elsewhere to end early as if time had run out.

    Raises
    ------
    sim.errors.InputError
        If a name is unknown or a request can never fit.

    Examples
    --------
    >>> from sim.instance import load_instance
    >>> result = solve(load_instance("paper-7.2-i0032"))
    >>> result.status, round(result.replay.makespan_ms, 3)
    ('OPTIMAL', 60.181)
    """
    began = time.monotonic()
    backend = load_backend(solver)
    problem, bounds, found_by = _prepare(instance, objective, formulation, rules, cost, warm_start)
    control = Control(
        None if time_limit_s is None else began + time_limit_s, workers, seed, stop or threading.Event(),
        _monotone(progress, problem),
    )  # fmt: skip
    try:
        answer = _impossible(problem) or backend.run(problem, control)
    except OutOfTime:
        reason = "time ended while the program was being built"
        answer = Answer("UNKNOWN", None, None, None, False, reason, "(not started)")
    return _conclude(problem, answer, bounds, found_by, solver, workers, seed, began)


def _require_plain(instance: Instance, rules: Rules) -> None:
    """Refuse what no formulation here describes, rather than answer another question."""
    if rules.prefix_sharing or any(request.prefilled for request in instance.requests):
        raise InputError("shared prefixes and prefilled requests can be simulated, not solved exactly",
                         field="requests")  # fmt: skip
    if rules.abandon:
        raise InputError("abandoning every request would be optimal; solve without it", field="rules", value="abandon")


def prepare(
    instance: Instance, *, objective: str = "makespan", formulation: str = "flow", rules: Rules = PAPER_RULES,
    cost: CostModel | None = None, warm_start: Replay | None = None,
) -> Problem:  # fmt: skip
    """The problem as a backend gets it, with the best heuristic schedule and the combinatorial bounds; see `solve`."""
    return _prepare(instance, objective, formulation, rules, cost, warm_start)[0]


def _prepare(
    instance: Instance, objective: str, formulation: str, rules: Rules, cost: CostModel | None, given: Replay | None
) -> tuple[Problem, list[Bound], str | None]:
    goal = load_objective(objective)
    instance.require_feasible()
    _require_plain(instance, rules)
    cost = cost or load_cost_model(instance.cost_model)
    found_by, incumbent = _warm_start(instance, cost, rules, goal.value, given)
    bounds = combinatorial_bounds(instance, cost) if objective == "makespan" else []
    value = None if incumbent is None else goal.value(incumbent)
    lower = max((bound.value_ticks for bound in bounds), default=0)
    return Problem(instance, cost, rules, objective, formulation, incumbent, value, lower), bounds, found_by


def _impossible(problem: Problem) -> Answer | None:
    """Only a prompt that may not be split and exceeds the token budget can rule out the serial schedule."""
    if problem.incumbent is not None:
        return None
    budget = problem.instance.token_budget
    reason = f"a prompt is longer than the token budget {budget:,} and may not be split"
    return Answer("INFEASIBLE", None, None, None, True, reason, "(not started)")


def _warm_start(
    instance: Instance, cost: CostModel, rules: Rules, value: Callable[[Replay], Ticks], given: Replay | None
) -> tuple[str | None, Replay | None]:
    found = best_heuristic(instance, cost, rules, value)
    if given is not None:
        again = replay(instance, given.schedule, rules=rules, cost=cost)
        if found is None or value(again) <= value(found[1]):
            return "warm start", again
    return found or (None, None)


def _monotone(
    progress: Callable[[Ticks | None, Ticks | None], None] | None, problem: Problem
) -> Callable[[Ticks | None, Ticks | None], None]:
    """Pass on improvements only, starting from what is known before the solver runs."""
    best: list[Ticks | None] = [problem.incumbent_value, problem.lower_bound]
    lock = threading.Lock()
    if progress is None:
        return lambda incumbent, lower: None
    progress(*best)

    def report(incumbent: Ticks | None, lower: Ticks | None) -> None:
        with lock:
            news = False
            if incumbent is not None and (best[0] is None or incumbent < best[0]):
                best[0], news = incumbent, True
            if lower is not None and (best[1] is None or lower > best[1]):
                best[1], news = lower, True
            if news:
                progress(*best)

    return report


def _conclude(
    problem: Problem, answer: Answer, bounds: list[Bound], found_by: str | None, solver: str, workers: int, seed: int,
    began: float,
) -> Result:  # fmt: skip
    """Replay the answer, take the better schedule and the best valid bound, and word the status."""
    goal = load_objective(problem.objective)
    best, value = problem.incumbent, problem.incumbent_value
    if answer.schedule is not None:
        found = replay(problem.instance, answer.schedule, rules=problem.rules, cost=problem.cost)
        found_value = goal.value(found)
        _check_claim(answer, found_value)
        if value is None or found_value < value:
            best, value, found_by = found, found_value, solver
    source: str | None = None
    lower: Ticks | None = None
    for bound in bounds:
        if lower is None or bound.value_ticks > lower:
            lower, source = bound.value_ticks, bound.name
    proven = _proven_bound(answer, value) if answer.exact else None
    if proven is not None and (lower is None or proven > lower):
        lower, source = proven, solver
    if value is not None and lower is not None and lower > value:
        raise SolverMismatch(f"lower bound {lower} by {source} exceeds the replayed objective {value}")
    status: Status = "UNKNOWN" if value is None else "FEASIBLE"
    if value is not None and lower == value:
        status = "OPTIMAL"
    if value is None and answer.status == "INFEASIBLE" and answer.exact:
        status = "INFEASIBLE"
    return Result(
        status, problem.objective, value, lower, source, best, solver, answer.solver_version, problem.formulation,
        answer.exact, answer.exact_reason, workers, seed, time.monotonic() - began, tuple(bounds), found_by,
    )  # fmt: skip


def _proven_bound(answer: Answer, value: Ticks | None) -> Ticks | None:
    """The solver's bound, lowered by its tolerance unless it finished within it of the replayed objective.

    INFEASIBLE beside an incumbent means that nothing better exists.
    """
    if answer.status == "INFEASIBLE":
        return value
    if answer.lower_bound is None:
        return None
    slack = _slack(answer, answer.lower_bound)
    if answer.status == "OPTIMAL" and value is not None and -slack <= value - answer.lower_bound <= slack:
        return value
    return answer.lower_bound - slack


def _check_claim(answer: Answer, replayed: Ticks) -> None:
    """The replay may not exceed the claim; a proven optimum must equal it (both up to the solver's tolerance)."""
    claim = answer.value
    if claim is None:
        return
    slack = _slack(answer, claim)
    if replayed > claim + slack or (answer.status == "OPTIMAL" and replayed < claim - slack):
        raise SolverMismatch(f"{answer.solver_version} claims {claim}, its schedule replays to {replayed}")


def _slack(answer: Answer, value: Ticks) -> int:
    return math.ceil(answer.tolerance * float(max(value, -value)))
