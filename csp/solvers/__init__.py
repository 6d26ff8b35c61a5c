"""Solver backends, one file each: how a problem is solved.

A file defines ``run(problem, control) -> Answer`` (`Backend` below). Backends that want an integer linear program take
it from ``problem.build()``; others (a search over states, say) read the instance itself. `csp.solve` replays whatever
comes back, adds the combinatorial bounds and words the result; a backend only says what it found and what it proved.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Protocol, cast

from csp.result import Status
from sim.cost.model import CostModel
from sim.instance import Instance
from sim.registry import load
from sim.replay import PAPER_RULES, Replay, Rules
from sim.schedule import Schedule

if TYPE_CHECKING:
    from csp.boundary import Boundary
    from csp.formulations import Formulated
    from csp.objectives import Objective

Ticks = int | Fraction


@dataclass(frozen=True, slots=True)
class Problem:
    """What is to be solved.

    Parameters
    ----------
    cost
        The instance's cost model, loaded.
    objective
        Name of the objective (`csp.objectives`), to be minimised.
    formulation
        Name of the formulation, for backends that solve an integer program.
    incumbent
        Best schedule known, already replayed; None without one.
    incumbent_value
        Its objective.
    lower_bound
        Best valid lower bound known for every schedule (combinatorial), in the objective's unit.
    """

    instance: Instance
    cost: CostModel
    rules: Rules = PAPER_RULES
    objective: str = "makespan"
    formulation: str = "flow"
    incumbent: Replay | None = None
    incumbent_value: Ticks | None = None
    lower_bound: Ticks = 0
    cutoff: Ticks | None = None
    """Only schedules of at most this value are asked for; None for no such wish. Mostly the incumbent's value."""
    below: Ticks | None = None
    """Only schedules of less than this value are asked for; where an objective is not `exact` in a program."""
    limits: tuple[tuple[str, Ticks], ...] = ()
    """Side constraints (objective name, value): every schedule's value of that objective is at most this."""
    question: bool = False
    """Whether only a schedule within the cutoff, or the proof that there is none, is asked for."""
    boundary: Boundary | None = None
    """States to begin and to end in, for a part of a schedule (incumbent and values are then the part's); None for a
    whole one. Only `flow` can."""

    @property
    def goals(self) -> list[Objective]:
        """The objective and the objectives that limits speak of."""
        from csp.objectives import load_objective

        return [load_objective(name) for name in (self.objective, *(name for name, _ in self.limits))]

    def build(self, control: Control | None = None) -> Formulated:
        """The integer program of the chosen formulation with the objective set.

        Raises
        ------
        csp.program.OutOfTime
            If the control's time ends first.
        """
        from csp.formulations import formulate

        return formulate(self, control or Control())


class StopWhen(threading.Event):
    """Set once a condition holds, for what is told to stop by an event; never waited for."""

    def __init__(self, condition: Callable[[], bool]) -> None:
        super().__init__()
        self.condition = condition

    def is_set(self) -> bool:
        """Whether the condition holds, or it was set."""
        return super().is_set() or self.condition()


@dataclass(slots=True)
class Control:
    """How long and how hard to try, and whom to tell.

    Parameters
    ----------
    deadline
        `time.monotonic` time to stop at; None for no limit.
    workers, seed
        Threads to use; random seed.
    stop
        Set from outside (Ctrl-C, a portfolio) to end early; backends look at it at least every 0.2 s.
    report
        Called with (incumbent value or None, lower bound or None) whenever either improves; any thread.
    """

    deadline: float | None = None
    workers: int = 2
    seed: int = 0
    stop: threading.Event = field(default_factory=threading.Event)
    report: Callable[[Ticks | None, Ticks | None], None] = lambda incumbent, bound: None

    @property
    def remaining_s(self) -> float | None:
        """Seconds left, at least 0; None without a limit."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())

    @property
    def stopped(self) -> bool:
        """Whether to end now."""
        return self.stop.is_set() or (self.deadline is not None and time.monotonic() >= self.deadline)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a backend found and proved.

    Parameters
    ----------
    status
        OPTIMAL: the schedule (or, if None, the problem's incumbent) is proven best among what the backend searched.
        INFEASIBLE: nothing better than, or as good as, the incumbent exists there. FEASIBLE, UNKNOWN as usual.
    schedule
        Best schedule found; None if none (then the incumbent stands).
    value
        Its objective as the solver claims it; checked against the replay.
    lower_bound
        Proven for everything searched: a number in the objective's unit; None if there is none.
    exact
        Whether what was searched contains an optimal schedule, so that the bound and the proof hold for every schedule.
    exact_reason
        Why, or why not, in one sentence.
    solver_version
        "cp-sat 9.15", for the result.
    tolerance
        Relative error of value, bound and proof: 0 for solvers that compute in integers.
    """

    status: Status
    schedule: Schedule | None
    value: Ticks | None
    lower_bound: Ticks | None
    exact: bool
    exact_reason: str
    solver_version: str
    tolerance: float = 0.0


class Backend(Protocol):
    """A solver module."""

    def run(self, problem: Problem, control: Control) -> Answer:
        """Solve until proven, stopped, or out of time (`csp.program.OutOfTime` means without an answer)."""


def load_backend(name: str) -> Backend:
    """A backend by name.

    Raises
    ------
    sim.errors.InputError
        If there is no such solver.
    """
    return cast(Backend, load("csp.solvers", name, what="solver"))
