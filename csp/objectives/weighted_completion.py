"""Weighted mean latency: completion minus arrival, weighted by 1 + (largest priority number here) - priority."""

from __future__ import annotations

from fractions import Fraction

from csp.formulations import Formulated
from csp.horizon import most_batches
from csp.objectives import Objective, Ticks, no_argument
from csp.objectives._elapsed import alone_floor_ticks, sum_of_times
from csp.program import Terms
from csp.solvers import Problem
from sim.clock import TICKS_PER_NS
from sim.cost.model import CostModel
from sim.instance import Instance, Request
from sim.replay import Replay, Rules


class WeightedCompletion(Objective):
    """Sum of weight x (completion - arrival) over the sum of weights."""

    def weights(self, instance: Instance) -> list[int]:
        """Per request; smaller priority numbers are more urgent and weigh more."""
        largest = max(r.priority for r in instance.requests)
        return [self.weight(r, largest) for r in instance.requests]

    def weight(self, request: Request, largest: int) -> int:
        """Of one request, given the largest priority number of the instance."""
        return 1 + largest - request.priority

    def value(self, replay: Replay, cost: CostModel | None = None) -> Fraction:
        """In ticks."""
        weights = self.weights(replay.instance)
        spent = replay.e2e_ticks()
        assert all(ticks is not None for ticks in spent)
        return Fraction(sum(w * (ticks or 0) for w, ticks in zip(weights, spent, strict=True)), sum(weights))

    def divisor(self, problem: Problem) -> int:
        """Sum of weights."""
        return sum(self.weights(problem.instance))

    def expression(self, formulated: Formulated, problem: Problem) -> Terms:
        """Waiting requests' weights times batch lengths, less the arrivals."""
        largest = max(r.priority for r in problem.instance.requests)
        weights = {t: self.weight(request, largest) for t, (request, _) in enumerate(formulated.kinds)}
        total = sum_of_times(formulated, "last", weights)
        arrivals = sum(weights[t] * len(who) * r.arrival_ns for t, (r, who) in enumerate(formulated.kinds))
        return total | {formulated.one(): -arrivals * TICKS_PER_NS} if arrivals else total

    def lower_bound(self, instance: Instance, cost: CostModel, rules: Rules) -> Fraction:
        """Every request as if alone."""
        weights = self.weights(instance)
        return Fraction(sum(w * alone_floor_ticks(r, instance, cost)
                            for w, r in zip(weights, instance.requests, strict=True)), sum(weights))  # fmt: skip

    def most_batches(self, instance: Instance, cost: CostModel, rules: Rules, most: Ticks) -> int | None:
        """The last to complete has what the others, each at least as if alone, leave of the sum."""
        weights = self.weights(instance)
        alone = [alone_floor_ticks(r, instance, cost) for r in instance.requests]
        rest = most * sum(weights) - sum(w * a for w, a in zip(weights, alone, strict=True))
        ends = (r.arrival_ns * TICKS_PER_NS + a + rest / w
                for w, a, r in zip(weights, alone, instance.requests, strict=True))  # fmt: skip
        return most_batches(instance, cost, int(max(ends)))


def objective(argument: str | None) -> Objective:
    """The weighted mean latency."""
    no_argument("weighted_completion", argument)
    return WeightedCompletion()
