"""Makespan: the end of the last batch (the paper's latency of a workload)."""

from __future__ import annotations

from csp.formulations import Formulated
from csp.horizon import most_batches
from csp.objectives import Objective, Ticks, no_argument
from csp.program import Terms
from csp.solvers import Problem
from sim.cost.model import CostModel
from sim.instance import Instance
from sim.replay import Replay, Rules


class Makespan(Objective):
    """End of the last batch."""

    def value(self, replay: Replay, cost: CostModel | None = None) -> Ticks:
        """In ticks."""
        return replay.makespan_ticks

    def expression(self, formulated: Formulated, problem: Problem) -> Terms:
        """End of the last batch: the sum of all batch times where they run back to back."""
        return formulated.end[-1]

    def most_batches(self, instance: Instance, cost: CostModel, rules: Rules, most: Ticks) -> int | None:
        """All batches end by then."""
        return most_batches(instance, cost, int(most))


def objective(argument: str | None) -> Objective:
    """The makespan."""
    no_argument("makespan", argument)
    return Makespan()
