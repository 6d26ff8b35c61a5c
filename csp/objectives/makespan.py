"""Makespan: the end of the last batch (the paper's latency of a workload)."""

from __future__ import annotations

from csp.formulations import Formulated
from csp.solvers import Problem
from sim.replay import Replay

UNIT = "ms"


def value(replay: Replay) -> int:
    """End of the last batch in ticks."""
    return replay.makespan_ticks


def minimise(formulated: Formulated, problem: Problem) -> None:
    """End of the last batch: the sum of all batch times where they run back to back."""
    formulated.program.objective = formulated.end[-1]
