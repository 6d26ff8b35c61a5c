"""What a solver's answer says: never more than it proves."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

from sim.clock import ms_from_ticks
from sim.replay import Replay
from sim.schedule import schedule_to_dict

Status = Literal["OPTIMAL", "FEASIBLE", "INFEASIBLE", "UNKNOWN"]


@dataclass(frozen=True, slots=True)
class Bound:
    """A lower bound that holds for every schedule.

    Parameters
    ----------
    name
        Of the bound, as on the command line.
    value_ticks
        Exact or rounded down; in ticks (1e-11 ms) for time objectives.
    runtime_s
        Seconds spent on it.
    inputs
        The numbers a reader needs to recompute it by hand.
    """

    name: str
    value_ticks: Fraction | int
    runtime_s: float = 0.0
    inputs: dict[str, Any] = field(default_factory=dict)

    @property
    def value_ms(self) -> float:
        """In milliseconds."""
        return ms_from_ticks(self.value_ticks)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {"name": self.name, "value_ms": self.value_ms, "runtime_s": self.runtime_s, "inputs": self.inputs}


@dataclass(frozen=True, slots=True)
class Result:
    """The answer to "what is the best schedule?".

    Parameters
    ----------
    status
        OPTIMAL only where the lower bound equals the objective; UNKNOWN keeps its bound.
    objective
        Name of the objective.
    objective_ticks
        Of the replayed schedule; None without one.
    lower_bound_ticks
        Best proven lower bound; None if there is none.
    lower_bound_source
        Whose bound it is ("cpsat", "packing", ...).
    replay
        The best schedule, replayed; None without one.
    exact
        Whether this formulation can prove optimality on this instance.
    """

    status: Status
    objective: str
    objective_ticks: Fraction | int | None
    lower_bound_ticks: Fraction | int | None
    lower_bound_source: str | None
    replay: Replay | None
    solver: str
    solver_version: str
    formulation: str
    exact: bool
    exact_reason: str
    workers: int
    seed: int
    runtime_s: float
    bounds: tuple[Bound, ...] = ()
    found_by: str | None = None
    """Who found the schedule: the solver or a heuristic scheduler."""
    unit: str = "ms"
    """Of the objective: "ms" for times, which are kept in ticks; else a word, and values are plain numbers."""
    stages: tuple[Result, ...] = ()
    """For objectives one after the other: the result of each; the fields above are the last one's."""

    @property
    def gap(self) -> float | None:
        """(objective - lower bound) / objective; None where either is unknown."""
        if self.objective_ticks is None or self.lower_bound_ticks is None:
            return None
        if self.objective_ticks == 0:
            return 0.0
        return float(Fraction(self.objective_ticks - self.lower_bound_ticks) / self.objective_ticks)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form that interfaces are written against."""
        replay = self.replay
        schedule = None
        if replay is not None:
            schedule = schedule_to_dict(replay.schedule, replay.instance, replay.times_ns)
        stages = {"stages": [stage.to_dict() | {"schedule": None} for stage in self.stages]} if self.stages else {}
        return {
            "schema_version": 1, "status": self.status, "objective": self.objective,
            "objective_ms": self._shown(ms=True), "lower_bound_ms": self._shown(lower=True, ms=True),
            "objective_value": self._shown(), "lower_bound_value": self._shown(lower=True), "unit": self.unit,
            "lower_bound_source": self.lower_bound_source, "gap": self.gap,
            "bounds": [bound.to_dict() for bound in self.bounds], "solver": self.solver,
            "solver_version": self.solver_version, "formulation": self.formulation, "exact": self.exact,
            "exact_reason": self.exact_reason, "found_by": self.found_by, "workers": self.workers, "seed": self.seed,
            "runtime_s": self.runtime_s, "batches": None if replay is None else len(replay.records),
            "schedule": schedule,
        } | stages  # fmt: skip

    def _shown(self, *, lower: bool = False, ms: bool = False) -> float | None:
        """Objective or bound as a number: in ms for times; with ``ms`` None for other units."""
        value = self.lower_bound_ticks if lower else self.objective_ticks
        if value is None or (ms and self.unit != "ms"):
            return None
        return ms_from_ticks(value) if self.unit == "ms" else float(value)
