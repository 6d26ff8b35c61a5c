"""Every scheduler beside the optimum and the lower bounds, on one instance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from bounds.upper._exact import Tally
from csp.objectives import load_objective
from csp.result import Bound, Result
from sim.cost.model import CostModel
from sim.engine import Simulation
from sim.instance import Instance
from sim.metrics import Summary, summary

DEFAULT_SCHEDULERS = ("vllm", "vllm_pf", "vllm_srf", "sarathi", "sarathi_pf", "sarathi_srf")


RANKED = ("makespan", "mean_completion", "mean_ttft")
"""Objectives in which schedulers are set beside the bound."""


@dataclass(frozen=True, slots=True)
class Row:
    """One scheduler's line.

    Parameters
    ----------
    gap
        (value - best lower bound) / value: the most that any better schedule could save, in the objective.
    ratio_to_best
        Value over that of the best schedule known.
    value_ticks
        The objective in ticks; None where the scheduler does not finish, or for objectives that are no mean or end.
    """

    simulation: Simulation
    summary: Summary
    gap: float | None
    ratio_to_best: float | None
    value_ticks: int | Fraction | None = None

    @property
    def finished(self) -> bool:
        """Whether the scheduler finished every request."""
        return not self.simulation.stalled and not self.simulation.infeasible

    @property
    def title(self) -> str:
        """The scheduler, marked where it never finishes."""
        return self.simulation.scheduler + ("" if self.finished else f" (stalled: {len(self.simulation.stalled)})")

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        s = self.summary
        data: dict[str, Any] = {"name": self.simulation.scheduler, "makespan_ms": s.makespan_ms, "batches": s.batches,
                "preemptions": s.preemptions, "refilled_tokens": s.refilled_tokens, "ttft_mean_ms": s.ttft_mean_ms,
                "tpot_mean_ms": s.tpot_mean_ms, "gap": self.gap, "ratio_to_best": self.ratio_to_best}  # fmt: skip
        if self.simulation.stalled:
            data["stalled"] = len(self.simulation.stalled)
        return data


@dataclass(frozen=True, slots=True)
class Comparison:
    """Schedulers, the best schedule and the interval the optimum lies in."""

    instance: Instance
    result: Result
    rows: tuple[Row, ...]
    windows: Tally | None = None
    """What became of windows of the best schedule that were solved exactly."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON form: the result's fields, the schedulers and, where there were any, exact windows."""
        windows = {"exact_windows": self.windows.to_dict()} if self.windows and self.windows.total else {}
        return self.result.to_dict() | {"schedulers": [row.to_dict() for row in self.rows]} | windows


def with_bounds(result: Result, bounds: Sequence[Bound]) -> Result:
    """The result with these bounds reported, and its lower bound raised where one of them is better.

    Raises
    ------
    AssertionError
        If a bound exceeds the replayed objective: a defect, never an answer.
    """
    best = max(bounds, key=lambda bound: bound.value_ticks, default=None)
    result = replace(result, bounds=tuple(bounds))
    if best is None or (result.lower_bound_ticks is not None and best.value_ticks <= result.lower_bound_ticks):
        return result
    if result.objective_ticks is not None and best.value_ticks > result.objective_ticks:
        raise AssertionError(f"bound {best.name} = {best.value_ticks} exceeds a replayed schedule")
    status = "OPTIMAL" if best.value_ticks == result.objective_ticks else result.status
    return replace(result, lower_bound_ticks=best.value_ticks, lower_bound_source=best.name, status=status)


def rows(simulations: list[Simulation], result: Result, cost: CostModel | None = None) -> tuple[Row, ...]:
    """Put each simulation beside the result's interval; stalled schedulers have neither gap nor ratio."""
    ranked = result.objective in RANKED
    best = result.objective_ticks if ranked else None
    lower = result.lower_bound_ticks if ranked else None
    lines = []
    for simulation in simulations:
        complete = not simulation.stalled and not simulation.infeasible
        value = load_objective(result.objective).value(simulation.replay, cost) if ranked and complete else None
        gap = float(Fraction(value - lower) / value) if value and lower is not None else None
        ratio = float(Fraction(value) / best) if value and best else None
        lines.append(Row(simulation, summary(simulation), gap, ratio, value))
    return tuple(lines)
