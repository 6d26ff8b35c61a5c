"""Largest TPOT: time per output token after the first, over requests. Mostly used as a limit."""

from __future__ import annotations

import math
from fractions import Fraction

from csp.formulations import Formulated
from csp.objectives import Objective, Ticks, no_argument
from csp.program import Terms, plus, times
from csp.solvers import Problem
from sim.cost.model import CostModel
from sim.instance import Instance
from sim.replay import Replay, Rules


class MaxTpot(Objective):
    """Largest (last token - first token) / (O - 1); requests with one token do not count."""

    regular = False
    by_request = True
    exact = False
    limits_batches = False

    def value(self, replay: Replay, cost: CostModel | None = None) -> Fraction:
        """In ticks a token."""
        return max((ticks for ticks in replay.tpot_ticks() if ticks is not None), default=Fraction(0))

    def expression(self, formulated: Formulated, problem: Problem) -> Terms:
        """Whole ticks, at least every request's TPOT."""
        largest = formulated.program.variable(0, formulated.latest_ticks, "max_tpot", ticks=True)
        for t, (request, _) in enumerate(formulated.kinds):
            self._limit(formulated, t, {largest: request.output_tokens - 1}, 0)
        return {largest: 1}

    def at_most(self, formulated: Formulated, problem: Problem, most: Ticks) -> None:
        """A span per request, exact."""
        for t, (request, _) in enumerate(formulated.kinds):
            self._limit(formulated, t, {}, math.floor(most * (request.output_tokens - 1)))

    def below(self, formulated: Formulated, problem: Problem, value: Ticks) -> None:
        """A span per request that keeps its TPOT below the value, exact."""
        for t, (request, _) in enumerate(formulated.kinds):
            self._limit(formulated, t, {}, math.ceil(value * (request.output_tokens - 1)) - 1)

    def _limit(self, formulated: Formulated, t: int, allowed: Terms, constant: int) -> None:
        """F is at most the end of each batch by which the first token has come; j ends within the span after F unless
        all tokens came before.
        """
        program, latest, outputs = formulated.program, formulated.latest_ticks, formulated.kinds[t][0].output_tokens
        if outputs == 1:
            return
        first = program.variable(0, latest, f"first_{t}", ticks=True)
        for j, end in enumerate(formulated.end):
            came = times(-latest, formulated.generated(t, 1, j))
            program.at_least(plus(end, {first: -1}, came), -latest, f"first_by_{t}_{j}")
            waived = times(latest, formulated.generated(t, outputs, j - 1)) if j else {}
            program.at_least(plus(allowed, {first: 1}, times(-1, end), waived), -constant, f"span_{t}_{j}")

    def most_batches(self, instance: Instance, cost: CostModel, rules: Rules, most: Ticks) -> int | None:
        """Says nothing about how many."""
        return None


def objective(argument: str | None) -> Objective:
    """The largest TPOT."""
    no_argument("max_tpot", argument)
    return MaxTpot()
