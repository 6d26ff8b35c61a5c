"""The one way in: solve an instance, replay what comes back, and say exactly what has been proven."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

from csp.conclude import better, conclude, proven_bound
from csp.objectives import Objective, load_objective
from csp.program import OutOfTime
from csp.relaxations import combinatorial_bounds
from csp.result import Bound, Result, Status
from csp.solvers import Answer, Backend, Control, Problem, StopWhen, load_backend
from csp.warm import best_heuristic
from sim.cost.model import CostModel, load_cost_model
from sim.errors import InputError
from sim.instance import Instance
from sim.replay import PAPER_RULES, Replay, Rules, replay

Ticks = int | Fraction
Progress = Callable[[Ticks | None, Ticks | None], None]
Limits = Sequence[tuple[str, Ticks]]


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
    limits: Limits = (),
    at_most: Ticks | None = None,
    progress: Progress | None = None,
    stop: threading.Event | None = None,
) -> Result:
    """Find the best schedule of an instance, with proof.

    Parameters
    ----------
    objective
        Name of a file in `csp.objectives` (with an argument behind a colon), or several separated by commas: the first
        is minimised, then the second among the best of the first, and so on.
    formulation, solver
        Names of files in `csp.formulations` and `csp.solvers`.
    time_limit_s
        Seconds to spend; the best schedule and bound so far are returned then.
    cost
        Cost model; the instance's by default.
    warm_start
        A known schedule; the best heuristic one is used if that is better.
    limits
        (objective, most): only schedules whose value of that objective is at most that.
    at_most
        Only ask whether there is a schedule of at most this value: FEASIBLE with one, INFEASIBLE with proof that there
        is none, or UNKNOWN with the bound so far.
    progress
        Called with (incumbent, lower bound) in the objective's unit whenever one improves.
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
    deadline = None if time_limit_s is None else began + time_limit_s
    names = objective.split(",")
    if at_most is not None and len(names) > 1:
        raise InputError("takes one objective", field="at_most", value=objective)
    stages: list[Result] = []
    stop = stop or threading.Event()
    for name in names:
        problem, bounds, found_by = _prepare(
            instance,
            name,
            formulation,
            rules,
            cost,
            warm_start,
            (*limits, *_reached(stages)),
            at_most,
            _early(stop, None if time_limit_s is None else began + time_limit_s / 2),
        )
        control = Control(deadline, workers, seed, StopWhen(stop.is_set), _monotone(progress, problem))
        answer = _impossible(problem) or _improve(backend, problem, control)
        result = conclude(problem, answer, bounds, found_by, solver, workers, seed, began)
        stages.append(result)
        warm_start = result.replay
        if result.status != "OPTIMAL":
            break
    last = stages[-1]
    return last if len(names) == 1 else replace(last, objective=objective, stages=tuple(stages))


def prepare(
    instance: Instance, *, objective: str = "makespan", formulation: str = "flow", rules: Rules = PAPER_RULES,
    cost: CostModel | None = None, warm_start: Replay | None = None, limits: Limits = (), at_most: Ticks | None = None,
) -> Problem:  # fmt: skip
    """The problem as a backend gets it, with the best heuristic schedule and the combinatorial bounds; see `solve`."""
    return _prepare(instance, objective, formulation, rules, cost, warm_start, tuple(limits), at_most, lambda: False)[0]


def _prepare(
    instance: Instance, objective: str, formulation: str, rules: Rules, cost: CostModel | None, given: Replay | None,
    limits: tuple[tuple[str, Ticks], ...], at_most: Ticks | None, stopped: Callable[[], bool],
) -> tuple[Problem, list[Bound], str | None]:  # fmt: skip
    goal = load_objective(objective)
    instance.require_feasible()
    _require_plain(instance, rules)
    cost = cost or load_cost_model(instance.cost_model)
    found_by, incumbent = _warm_start(instance, cost, rules, goal, limits, given, stopped)
    bounds = combinatorial_bounds(instance, cost) if objective == "makespan" else []
    simple = goal.lower_bound(instance, cost, rules)
    if not bounds and simple:
        bounds = [Bound("alone", simple)]
    value = None if incumbent is None else goal.value(incumbent, cost)
    lower = max((bound.value_ticks for bound in bounds), default=0)
    cutoff = value if at_most is None else at_most
    problem = Problem(instance, cost, rules, objective, formulation, incumbent, value, lower, cutoff, None, limits,
                      at_most is not None)  # fmt: skip
    return problem, bounds, found_by


def _require_plain(instance: Instance, rules: Rules) -> None:
    """Refuse what no formulation here describes, rather than answer another question."""
    if rules.prefix_sharing or any(request.prefilled for request in instance.requests):
        raise InputError("shared prefixes and prefilled requests can be simulated, not solved exactly",
                         field="requests")  # fmt: skip
    if rules.abandon:
        raise InputError("abandoning every request would be optimal; solve without it", field="rules", value="abandon")


def _reached(stages: Sequence[Result]) -> list[tuple[str, Ticks]]:
    """What earlier objectives reached, as limits."""
    return [(stage.objective, stage.objective_ticks) for stage in stages if stage.objective_ticks is not None]


def _impossible(problem: Problem) -> Answer | None:
    """Only a prompt that may not be split and exceeds the token budget can rule out the serial schedule."""
    budget = problem.instance.token_budget
    if problem.rules.chunking or all(r.input_tokens <= budget for r in problem.instance.requests):
        return None
    reason = f"a prompt is longer than the token budget {budget:,} and may not be split"
    return Answer("INFEASIBLE", None, None, None, True, reason, "(not started)")


def _improve(backend: Backend, problem: Problem, control: Control) -> Answer:
    """Ask the backend; where a program only approximates the objective, until there is nothing better."""
    settled = _settled(problem)
    if settled is not None:
        return settled
    answer = _ask(backend, problem, control)
    goal = load_objective(problem.objective)
    if goal.exact or problem.question:
        return answer
    bound: Ticks | None = None
    while True:
        found = proven_bound(answer, None, slack=Fraction(1, goal.divisor(problem)))
        if answer.status != "INFEASIBLE" and answer.exact and found is not None:
            bound = found if bound is None else max(bound, found)
        before, problem = problem, better(problem, answer)
        if problem is before and before.below is not None:
            break
        if answer.status in ("INFEASIBLE", "UNKNOWN") or problem.incumbent is None or control.stopped:
            break
        problem = replace(problem, below=problem.incumbent_value)
        answer = _ask(backend, problem, control)
    schedule = None if problem.incumbent is None else problem.incumbent.schedule
    status: Status = "FEASIBLE" if schedule else "UNKNOWN"
    status = "INFEASIBLE" if answer.status == "INFEASIBLE" else status
    return replace(answer, status=status, schedule=schedule, value=problem.incumbent_value, lower_bound=bound)


def _settled(problem: Problem) -> Answer | None:
    """The answer where the incumbent or the combinatorial bounds already give it."""
    if not problem.question or problem.cutoff is None:
        return None
    if problem.incumbent_value is not None and problem.incumbent_value <= problem.cutoff:
        return Answer("FEASIBLE", None, None, None, True, "a heuristic schedule is good enough", "(not needed)")
    if problem.lower_bound > problem.cutoff:
        return Answer("INFEASIBLE", None, None, None, True, "a lower bound rules it out", "(not needed)")
    return None


def _ask(backend: Backend, problem: Problem, control: Control) -> Answer:
    """Run the backend; a question is answered by the first schedule that is good enough, or by a bound above."""
    stop, report = control.stop, control.report
    assert isinstance(stop, StopWhen)
    stop.clear()
    ended = threading.Event()

    def watch(incumbent: Ticks | None, lower: Ticks | None) -> None:
        if ended.is_set():
            return
        report(incumbent, lower)
        good = incumbent is not None and problem.cutoff is not None and incumbent <= problem.cutoff
        if problem.question and good:
            stop.set()

    try:
        return backend.run(problem, replace(control, report=watch))
    except OutOfTime as error:
        reason = str(error) or "time ended while the program was being built"
        return Answer("UNKNOWN", None, None, None, False, reason, "(not finished)")
    finally:
        ended.set()


def _warm_start(
    instance: Instance,
    cost: CostModel,
    rules: Rules,
    goal: Objective,
    limits: Limits,
    given: Replay | None,
    stopped: Callable[[], bool],
) -> tuple[str | None, Replay | None]:
    """The best heuristic schedule within the limits, or the given one if it is no worse."""

    def within(run: Replay) -> bool:
        return all(load_objective(name).value(run, cost) <= most for name, most in limits)

    def value(run: Replay) -> Ticks:
        return goal.value(run, cost)

    again = None if given is None else replay(instance, given.schedule, rules=rules, cost=cost)
    known = again is not None and within(again)
    found = best_heuristic(instance, cost, rules, value, within, stopped, serial_too=not known)
    if again is not None and known and (found is None or value(again) <= value(found[1])):
        return "warm start", again
    return found or (None, None)


def _early(stop: threading.Event, late: float | None) -> Callable[[], bool]:
    """Whether first schedules have had their time."""
    return lambda: stop.is_set() or (late is not None and time.monotonic() > late)


def _monotone(progress: Progress | None, problem: Problem) -> Progress:
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
