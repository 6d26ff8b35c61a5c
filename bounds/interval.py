"""The interval the optimum lies in, for workloads of any size: quick bounds, schedulers, then what takes longer."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from bounds.compare import Comparison, rows
from bounds.lower import QUICK, bound_names, iter_bounds
from bounds.upper import LATE, METHODS, cycles, improvers, methods, windows
from bounds.upper._exact import Tally
from csp.objectives import load_objective
from csp.result import Bound, Result, Status
from csp.solve import solve
from csp.solvers import StopWhen
from sim.cost.model import CostModel, load_cost_model
from sim.engine import Simulation, simulate
from sim.errors import InputError, StoppedError
from sim.instance import Instance
from sim.replay import Replay, replay

Ticks = int | Fraction
_IMPROVING_SHARE = 0.4
"""Of the time left, what each method that looks for better schedules may take; the rest is for bounds."""
DEFAULT_IMPROVING_S = 60.0
SOLVER = "portfolio"
_FIRST_SHARE = 0.3
"""Of the time, what bounds may take that come before schedules because there are no quick ones."""
_LATE_SHARE = 0.35
"""Of the time left for slow bounds, what is kept for the methods after them, where one applies."""
_POLISHED_SHARE = 0.5
"""Of the time left after slow bounds, what each method may take where the best schedule is to be improved after it."""
_SIMULATING_SHARE = 0.5
"""Of the time left, what one scheduler may take."""
MOST_REQUESTS, MOST_OUTPUT_TOKENS = 64, 2_000
"""Up to this size what is left of the time goes to the exact solver."""
_SMALL_SHARE = 0.2
"""Of the time left, what slow bounds, and each method after them, may take before it."""


@dataclass
class Search:
    """What is known so far; every step that improves it is reported.

    Parameters
    ----------
    until_gap
        Stop once (upper - lower) / upper is at most this.
    deadline
        Stop at this reading of `time.monotonic`.
    """

    instance: Instance
    cost: CostModel
    objective: str
    until_gap: float = 0.0
    deadline: float | None = None
    stop: threading.Event = field(default_factory=threading.Event)
    progress: Callable[[Ticks | None, Ticks | None], None] = lambda incumbent, lower: None
    bounds: list[Bound] = field(default_factory=list)
    best: Replay | None = None
    best_ticks: Ticks | None = None
    found_by: str | None = None
    solved: Result | None = None
    """The exact solver's answer, where it was asked."""
    tally: Tally = field(default_factory=Tally)
    """Of windows solved exactly."""
    solver_best: Ticks | None = None
    solver_lower: Ticks | None = None

    @property
    def lower(self) -> Bound | None:
        """The strongest bound so far."""
        return max(self.bounds, key=lambda bound: bound.value_ticks, default=None)

    @property
    def remaining_s(self) -> float | None:
        """Seconds left, at least a hundredth; None for no limit."""
        return None if self.deadline is None else max(0.01, self.deadline - time.monotonic())

    @property
    def late(self) -> bool:
        """Whether time is over."""
        return self.deadline is not None and time.monotonic() >= self.deadline

    @property
    def done(self) -> bool:
        """Whether to stop: asked to, out of time, or the gap is reached."""
        if self.stop.is_set() or self.late:
            return True
        best, lower = self.interval
        if lower is None or best is None:
            return False
        return best - lower <= Fraction(self.until_gap) * best

    @property
    def interval(self) -> tuple[Ticks | None, Ticks | None]:
        """Best value and strongest bound, those the exact solver has reported included."""
        lower = self.lower
        uppers = [x for x in (self.best_ticks, self.solver_best) if x is not None]
        lowers = [x for x in (None if lower is None else lower.value_ticks, self.solver_lower) if x is not None]
        return min(uppers, default=None), max(lowers, default=None)

    def add_bound(self, bound: Bound) -> None:
        """Note a lower bound."""
        self.bounds.append(bound)
        self._report()

    def offer(self, replay: Replay, found_by: str) -> bool:
        """Note a complete replayed schedule; whether it is the best so far."""
        value = load_objective(self.objective).value(replay, self.cost)
        better = self.best_ticks is None or value < self.best_ticks
        if better:
            self.best, self.best_ticks, self.found_by = replay, value, found_by
            self._report()
        return better

    def watch(self, incumbent: Ticks | None, lower: Ticks | None) -> None:
        """Progress of the exact solver."""
        if lower is not None:
            self.solver_lower = lower if self.solver_lower is None else max(self.solver_lower, lower)
        if incumbent is not None:
            self.solver_best = incumbent if self.solver_best is None else min(self.solver_best, incumbent)
        self._report()

    def _report(self) -> None:
        self.progress(*self.interval)


def find_interval(
    instance: Instance,
    schedulers: Sequence[str],
    *,
    objective: str = "makespan",
    cost: CostModel | None = None,
    time_limit_s: float | None = None,
    until_gap: float = 0.0,
    seed: int = 0,
    progress: Callable[[Ticks | None, Ticks | None], None] | None = None,
    stop: threading.Event | None = None,
) -> Comparison:
    """Lower bounds and good schedules until time runs out or the gap is small enough.

    Parameters
    ----------
    schedulers
        Names of schedulers to run; each is reported with its certified distance.
    until_gap
        Stop as soon as the gap is at most this fraction.

    Raises
    ------
    sim.errors.InputError
        If a name is unknown or a request can never fit.
    """
    began = time.monotonic()
    instance.require_feasible()
    search = Search(instance, cost or load_cost_model(instance.cost_model), objective, until_gap,
                    None if time_limit_s is None else began + time_limit_s)  # fmt: skip
    search.progress = progress or search.progress
    search.stop = stop or search.stop
    names = bound_names(objective)
    first = [name for name in names if name in QUICK]
    if first:
        for bound in iter_bounds(instance, search.cost, objective=objective, only=first):
            search.add_bound(bound)
    else:  # means have none, and a schedule without a bound says nothing
        _bound_slowly(search, _FIRST_SHARE, names)
    simulations = _simulate(search, schedulers)
    _improve(search, METHODS, _IMPROVING_SHARE)
    solvable = _small(instance) and not any(map(_has_empty_batches, simulations))
    cyclic = objective in cycles.OBJECTIVES and cycles.applies(instance)  # of little use: windows of equal requests
    polished = not (solvable or cyclic) and objective in windows.OBJECTIVES and windows.applies(instance, search.cost)
    late = polished or cyclic
    if first:
        _bound_slowly(search, _SMALL_SHARE if solvable else 1.0 - _LATE_SHARE if late else 1.0, names)
    _improve(search, LATE, _SMALL_SHARE if solvable else _POLISHED_SHARE if polished else 1.0)
    if not solvable:
        _polish(search)
    if solvable and not search.done:
        _solve(search, seed)
    result = _result(search, seed, time.monotonic() - began)
    return Comparison(instance, result, rows(simulations, result, search.cost), search.tally)


def first_schedule(
    instance: Instance, cost: CostModel, simulations: Sequence[Simulation], bounds: Sequence[Bound], seconds: float,
    stop: threading.Event | None = None,
) -> Search:  # fmt: skip
    """The best of some schedulers' schedules and of those that a short search for better ones finds (makespan)."""
    search = Search(instance, cost, "makespan", deadline=time.monotonic() + seconds, bounds=list(bounds))
    search.stop = stop or search.stop
    for simulation in simulations:
        if not simulation.stalled:
            search.offer(simulation.replay, simulation.scheduler)
    _improve(search, METHODS, 1.0)
    return search


def _simulate(search: Search, schedulers: Sequence[str]) -> list[Simulation]:
    """Run the schedulers one by one while there is time, until one finishes at least; a slow one is given up."""
    simulations: list[Simulation] = []
    for name in schedulers:
        left = search.remaining_s
        until = math.inf if left is None or search.best is None else time.monotonic() + _SIMULATING_SHARE * left

        def over(until: float = until) -> bool:
            return bool(simulations) and (search.stop.is_set() or time.monotonic() >= until)

        if over() or (search.best is not None and search.late):
            break
        try:
            simulation = simulate(search.instance, name, cost=search.cost, until=over)
        except StoppedError:
            continue
        simulations.append(simulation)
        if not simulation.stalled:
            search.offer(simulation.replay, name)
    return simulations


def _bound_slowly(search: Search, share: float, names: Sequence[str]) -> None:
    """The bounds that take long, within a share of the time left; but there is always one in the end."""
    left = search.remaining_s
    until = None if left is None else time.monotonic() + share * left
    for name in names:
        over = search.done or (until is not None and time.monotonic() >= until)
        if name in QUICK or search.stop.is_set() or (over and search.bounds):
            continue
        limit = None if until is None else max(0.01, until - time.monotonic())
        for bound in iter_bounds(search.instance, search.cost, objective=search.objective, only=[name],
                                 time_limit_s=limit):  # fmt: skip
            search.add_bound(bound)


def _improve(search: Search, names: Sequence[str], share: float) -> None:
    """Look for better schedules than those known, one method after the other, each within a share of the time left."""
    for _, method in methods(search.objective, names):
        if search.done:
            break
        left = search.remaining_s
        until = time.monotonic() + (DEFAULT_IMPROVING_S if left is None else share * left)

        def over(until: float = until) -> bool:
            return search.done or time.monotonic() >= until

        below = math.inf if search.best_ticks is None else float(search.best_ticks)
        for schedule, found_by in method(search.instance, search.cost, search.objective, over, below):
            search.offer(replay(search.instance, schedule, cost=search.cost), found_by)


def _polish(search: Search) -> None:
    """Improve the best schedule known, in the time left."""
    for name, method in improvers(search.objective):
        if search.done or search.best is None:
            break
        left, origin = search.remaining_s, search.found_by
        until = time.monotonic() + (DEFAULT_IMPROVING_S if left is None else left)

        def over(until: float = until) -> bool:
            return search.done or time.monotonic() >= until

        for schedule in method(search.best, search.cost, search.objective, over, tally=search.tally):
            exactly = f" ({search.tally.improved:,} exact)" if search.tally.improved else ""
            search.offer(replay(search.instance, schedule, cost=search.cost), f"{origin}, {name}{exactly}")


def _small(instance: Instance) -> bool:
    tokens = sum(request.output_tokens for request in instance.requests)
    return len(instance.requests) <= MOST_REQUESTS and tokens <= MOST_OUTPUT_TOKENS


def _has_empty_batches(simulation: Simulation) -> bool:
    """The solver knows no batches that process nothing: schedules with them may be faster than its optimum."""
    return any(not record.entries for record in simulation.replay.records)


def _solve(search: Search, seed: int) -> None:
    """The exact solver, for what is left of the time, from the best schedule known."""
    limit = DEFAULT_IMPROVING_S if search.remaining_s is None else search.remaining_s
    try:
        found = solve(
            search.instance, objective=search.objective, solver=SOLVER, time_limit_s=limit, cost=search.cost,
            seed=seed, warm_start=search.best, stop=StopWhen(lambda: search.done), progress=search.watch,
        )  # fmt: skip
    except InputError:  # prefilled requests, shared prefixes
        return
    search.solved = found
    if found.replay is not None:
        search.offer(found.replay, found.found_by or SOLVER)


def _result(search: Search, seed: int, runtime_s: float) -> Result:
    lower = search.lower
    value = None if lower is None else lower.value_ticks
    source = None if lower is None else lower.name
    exact, reason = False, "an interval: bounds and schedules, no exact search"
    solved = search.solved
    if (
        solved is not None
        and solved.lower_bound_ticks is not None
        and (value is None or value < solved.lower_bound_ticks)
    ):
        value, source, exact, reason = solved.lower_bound_ticks, SOLVER, solved.exact, solved.exact_reason
    if value is not None and search.best_ticks is not None and value > search.best_ticks:
        raise AssertionError(f"bound {source} = {value} exceeds a replayed schedule")
    optimal = value is not None and value == search.best_ticks
    status: Status = "OPTIMAL" if optimal else "UNKNOWN" if search.best is None else "FEASIBLE"
    return Result(
        status, search.objective, search.best_ticks, value, source, search.best, "bound", _version(), "relaxations",
        exact, reason, 1, seed, runtime_s,
        tuple(sorted(search.bounds, key=lambda bound: -bound.value_ticks)), search.found_by,
    )  # fmt: skip


def _version() -> str:
    from bounds.cli import package_version

    return package_version()
