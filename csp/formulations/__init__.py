"""Formulations, one file each: a scheduling problem as an integer linear program.

A file defines ``formulate(problem, control) -> Formulated``; the objective is then set by the objective's own file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from csp.program import Program, Terms
from sim.clock import TICKS_PER_MS
from sim.instance import Request
from sim.registry import load
from sim.replay import Replay
from sim.schedule import Schedule

if TYPE_CHECKING:
    from csp.solvers import Control, Problem


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
        Turns a replayed schedule into variable values; None where it cannot be expressed.
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
    exact: bool
    exact_reason: str


def formulate(problem: Problem, control: Control) -> Formulated:
    """Build a problem's program with its objective.

    Raises
    ------
    sim.errors.InputError
        If the formulation or the objective is unknown.
    """
    from csp.objectives import load_objective

    module = load("csp.formulations", problem.formulation, what="formulation")
    formulated = cast(Formulated, module.formulate(problem, control))
    load_objective(problem.objective).minimise(formulated, problem)
    formulated.program.float_unit_ticks = _float_unit_ticks(problem)
    return formulated


def _float_unit_ticks(problem: Problem) -> int:
    """A ms; where the incumbent's mean batch takes less, the power of ten below that."""
    if problem.incumbent is None:
        return TICKS_PER_MS
    busy = [r.end_ticks - r.start_ticks for r in problem.incumbent.records]
    mean = sum(busy) // max(1, len(busy))
    return min(TICKS_PER_MS, int(10 ** (len(str(mean)) - 1)))
