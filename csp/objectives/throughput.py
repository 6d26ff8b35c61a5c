"""Throughput, as time per generated token (makespan over all output tokens); give a TPOT limit beside it."""

from __future__ import annotations

from fractions import Fraction

from csp.objectives import Objective, no_argument
from csp.objectives.makespan import Makespan
from csp.solvers import Problem
from sim.cost.model import CostModel
from sim.instance import Instance
from sim.replay import Replay, Rules


def _tokens(instance: Instance) -> int:
    return sum(r.output_tokens for r in instance.requests)


class Throughput(Makespan):
    """Makespan over output tokens, in ms a token: the inverse of tokens per second."""

    def value(self, replay: Replay, cost: CostModel | None = None) -> Fraction:
        """In ticks a token."""
        return Fraction(replay.makespan_ticks, _tokens(replay.instance))

    def divisor(self, problem: Problem) -> int:
        """All output tokens."""
        return _tokens(problem.instance)

    def most_batches(self, instance: Instance, cost: CostModel, rules: Rules, most: int | Fraction) -> int | None:
        """As for the makespan."""
        return super().most_batches(instance, cost, rules, most * _tokens(instance))


def objective(argument: str | None) -> Objective:
    """The time per token."""
    no_argument("throughput", argument)
    return Throughput()
