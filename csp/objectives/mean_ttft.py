"""Mean TTFT: end of the batch with the first token minus arrival, averaged over requests."""

from __future__ import annotations

from fractions import Fraction

from csp.formulations import Formulated
from csp.horizon import batches_to_first_tokens
from csp.objectives import Objective, Ticks, no_argument
from csp.objectives._elapsed import alone_floor_ticks, sum_of_times
from csp.program import Terms
from csp.solvers import Problem
from sim.clock import TICKS_PER_NS
from sim.cost.model import CostModel
from sim.instance import Instance
from sim.replay import Replay, Rules


class MeanTtft(Objective):
    """Sum of TTFT over the number of requests."""

    limits_batches = False

    def value(self, replay: Replay, cost: CostModel | None = None) -> Fraction:
        """In ticks."""
        spent = replay.ttft_ticks()
        assert all(ticks is not None for ticks in spent)
        return Fraction(sum(ticks or 0 for ticks in spent), len(spent))

    def divisor(self, problem: Problem) -> int:
        """Number of requests."""
        return len(problem.instance.requests)

    def expression(self, formulated: Formulated, problem: Problem) -> Terms:
        """Requests without a first token times batch lengths, less the arrivals."""
        total = sum_of_times(formulated, "first", dict.fromkeys(range(len(formulated.kinds)), 1))
        arrivals = sum(r.arrival_ns for r in problem.instance.requests)
        return total | {formulated.one(): -arrivals * TICKS_PER_NS} if arrivals else total

    def lower_bound(self, instance: Instance, cost: CostModel, rules: Rules) -> Fraction:
        """Every request as if alone."""
        return Fraction(sum(alone_floor_ticks(r, instance, cost, 1) for r in instance.requests),
                        len(instance.requests))  # fmt: skip

    def most_batches(self, instance: Instance, cost: CostModel, rules: Rules, most: Ticks) -> int | None:
        """Until the last first token, then the rest in the fewest batches: how long those take does not matter."""
        alone = [alone_floor_ticks(r, instance, cost, 1) for r in instance.requests]
        rest = int(most * len(alone)) - sum(alone)
        latest = max(r.arrival_ns * TICKS_PER_NS + a + rest for r, a in zip(instance.requests, alone, strict=True))
        return batches_to_first_tokens(instance, cost, rules, latest)


def objective(argument: str | None) -> Objective:
    """The mean TTFT."""
    no_argument("mean_ttft", argument)
    return MeanTtft()
