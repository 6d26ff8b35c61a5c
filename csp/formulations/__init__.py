"""Formulations, one file each: a scheduling problem as an integer linear program.

A file defines ``formulate(problem, control) -> Formulated``; the objective is then set by the objective's own file.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from csp.program import Program, Terms, plus, times
from sim.clock import TICKS_PER_MS
from sim.errors import InputError
from sim.instance import Request
from sim.registry import load
from sim.replay import Replay
from sim.schedule import Schedule

if TYPE_CHECKING:
    from csp.solvers import Control, Problem


TOO_FEW = "a better schedule with more batches than the program has cannot be ruled out"


@dataclass(slots=True)
class Formulated:
    """An integer program with the handles that objectives and side constraints are written in.

    Attributes
    ----------
    program
        Variables and constraints; the objective is set by `csp.objectives`.
    horizon
        J, most batches a schedule may have.
    kinds
        (request, its copies' indices) of each group of identical requests; one each where nothing is aggregated.
    used
        Per batch, the binary that is 1 if it processes anything.
    duration
        Per batch, its time in ticks as a linear expression (a lower bound that an objective presses down).
    end
        Per batch, when it ends, likewise; the last one's is the makespan.
    generated
        ``generated(kind, k, j)``: how many of a kind have their k-th token by the end of batch j (j = -1: none).
    decode
        Turns variable values into a schedule.
    encode
        Turns a replayed schedule into variable values (of the variables there are before the objective adds its own);
        None where it cannot be expressed.
    back_to_back
        Whether batches follow each other without idle time.
    constant_ticks
        Time of every batch where all take the same and follow each other; else None.
    longest_ticks
        No batch, with the idle time before it, takes longer.
    latest_ticks
        No batch of a schedule worth finding ends later.
    exact, exact_reason
        Whether an optimal schedule is among what the program expresses, and why.
    """

    program: Program
    horizon: int
    kinds: list[tuple[Request, tuple[int, ...]]]
    used: list[int]
    duration: list[Terms]
    end: list[Terms]
    generated: Callable[[int, int, int], Terms]
    decode: Callable[[list[int]], Schedule]
    encode: Callable[[Replay], list[int] | None]
    back_to_back: bool
    constant_ticks: int | None
    longest_ticks: int
    latest_ticks: int
    exact: bool
    exact_reason: str
    reached: dict[tuple[int, str, int], int] = field(default_factory=dict)
    """Binaries made by objectives; see `csp.objectives._elapsed`."""
    _one: int | None = None

    def one(self) -> int:
        """A variable fixed at 1, for constants."""
        if self._one is None:
            self._one = self.program.variable(1, 1, "one")
        return self._one

    def lengths(self) -> list[Terms]:
        """Time from the end of the batch before to the end of each batch: its own time and the idle time before."""
        if self.back_to_back:
            return self.duration
        return [plus(end, times(-1, self.end[j - 1] if j else {})) for j, end in enumerate(self.end)]


def formulate(problem: Problem, control: Control) -> Formulated:
    """Build a problem's program with its objective.

    Raises
    ------
    sim.errors.InputError
        If the formulation or the objective is unknown.
    """
    if problem.boundary is not None and problem.formulation != "flow":
        raise InputError("only flow can begin and end in given states", field="formulation", value=problem.formulation)
    module = load("csp.formulations", problem.formulation, what="formulation")
    formulated = cast(Formulated, module.formulate(problem, control))
    goal, *others = problem.goals
    program = formulated.program
    program.objective = goal.expression(formulated, problem)
    program.objective_divisor = goal.divisor(problem)
    program.objective_in_ticks = goal.unit == "ms"
    if problem.cutoff is not None and problem.cutoff != problem.incumbent_value:
        program.at_most(program.objective, math.floor(problem.cutoff * program.objective_divisor), "cutoff")
    if problem.below is not None:
        goal.below(formulated, problem, problem.below)
    for other, (_, most) in zip(others, problem.limits, strict=True):
        other.at_most(formulated, problem, most)
    program.float_unit_ticks = _float_unit_ticks(problem)
    return formulated


def _float_unit_ticks(problem: Problem) -> int:
    """A ms; where the incumbent's mean batch takes less, the power of ten below that."""
    if problem.incumbent is None:
        return TICKS_PER_MS
    busy = [r.end_ticks - r.start_ticks for r in problem.incumbent.records]
    mean = sum(busy) // max(1, len(busy))
    return min(TICKS_PER_MS, int(10 ** (len(str(mean)) - 1)))
