"""Largest batch time: no token of a running request waits longer for its batch. Mostly used as a limit."""

from __future__ import annotations

import math

from csp.formulations import Formulated
from csp.objectives import Objective, Ticks, no_argument
from csp.program import Terms, plus, times
from csp.solvers import Problem
from sim.cost.model import CostModel
from sim.instance import Instance
from sim.replay import Replay, Rules


class MaxBatchTime(Objective):
    """Time of the longest batch."""

    regular = False
    limits_batches = False

    def value(self, replay: Replay, cost: CostModel | None = None) -> int:
        """In ticks."""
        return max(record.end_ticks - record.start_ticks for record in replay.records)

    def expression(self, formulated: Formulated, problem: Problem) -> Terms:
        """A time that is at least every batch's."""
        program = formulated.program
        longest = program.variable(0, formulated.longest_ticks, "max_batch_time", ticks=True)
        for j, length in enumerate(formulated.duration):
            program.at_least(plus({longest: 1}, times(-1, length)), 0, f"longest_{j}")
        return {longest: 1}

    def at_most(self, formulated: Formulated, problem: Problem, most: Ticks) -> None:
        """One row per batch."""
        for j, length in enumerate(formulated.duration):
            formulated.program.at_most(length, math.floor(most), f"batch_time_{j}")

    def most_batches(self, instance: Instance, cost: CostModel, rules: Rules, most: Ticks) -> int | None:
        """Says nothing about how many."""
        return None


def objective(argument: str | None) -> Objective:
    """The largest batch time."""
    no_argument("max_batch_time", argument)
    return MaxBatchTime()
