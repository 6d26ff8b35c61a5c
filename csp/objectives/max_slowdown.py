"""Largest slowdown: (completion - arrival) over the time the request takes alone, filled in chunks of at most C."""

from __future__ import annotations

import math
from fractions import Fraction

from csp.formulations import Formulated
from csp.horizon import most_batches
from csp.objectives import Objective, Ticks, no_argument
from csp.objectives._elapsed import alone_floor_ticks, within
from csp.program import Terms
from csp.solvers import Problem
from csp.warm import serial_schedule
from sim.clock import TICKS_PER_NS
from sim.cost.model import CostModel, load_cost_model
from sim.instance import Instance, Request
from sim.replay import Replay, Rules, replay

_UNITS = 10**4
"""A program counts slowdowns in ten-thousandths; the proof of an optimum does not (`Objective.exact`)."""


class MaxSlowdown(Objective):
    """Largest ratio over requests; fairness. A plain number, at least 1 for requests that cannot beat being alone."""

    unit = "x"
    exact = False

    def value(self, replay: Replay, cost: CostModel | None = None) -> Fraction:
        """Exact ratio."""
        alone = alone_ticks(replay.instance, cost or load_cost_model(replay.instance.cost_model))
        return max(Fraction(spent or 0, alone[i]) for i, spent in enumerate(replay.e2e_ticks()))

    def divisor(self, problem: Problem) -> int:
        """Ten-thousandths."""
        return _UNITS

    def expression(self, formulated: Formulated, problem: Problem) -> Terms:
        """A number of ten-thousandths that is at least every request's."""
        alone = alone_ticks(problem.instance, problem.cost)
        most = -(-formulated.latest_ticks * _UNITS // min(alone))
        largest = formulated.program.variable(0, most, "max_slowdown")
        for t, (_, copies) in enumerate(formulated.kinds):
            within(formulated, t, "last", {largest: alone[copies[0]]}, 0, scale=_UNITS)
        return {largest: 1}

    def at_most(self, formulated: Formulated, problem: Problem, most: Ticks) -> None:
        """A deadline per request, exact."""
        alone = alone_ticks(problem.instance, problem.cost)
        for t, (_, copies) in enumerate(formulated.kinds):
            within(formulated, t, "last", {}, math.floor(most * alone[copies[0]]))

    def below(self, formulated: Formulated, problem: Problem, value: Ticks) -> None:
        """A deadline per request that keeps its slowdown below the value, exact."""
        alone = alone_ticks(problem.instance, problem.cost)
        for t, (_, copies) in enumerate(formulated.kinds):
            within(formulated, t, "last", {}, math.ceil(value * alone[copies[0]]) - 1)

    def lower_bound(self, instance: Instance, cost: CostModel, rules: Rules) -> Fraction:
        """As if alone, by the additive costs below the true one."""
        alone = alone_ticks(instance, cost)
        return max(Fraction(alone_floor_ticks(r, instance, cost), alone[i]) for i, r in enumerate(instance.requests))

    def most_batches(self, instance: Instance, cost: CostModel, rules: Rules, most: Ticks) -> int | None:
        """Every request has a deadline."""
        alone = alone_ticks(instance, cost)
        ends = (r.arrival_ns * TICKS_PER_NS + most * alone[i] for i, r in enumerate(instance.requests))
        return most_batches(instance, cost, int(max(ends)))


def alone_ticks(instance: Instance, cost: CostModel) -> list[int]:
    """Time of each request on the empty machine, in ticks."""
    known: dict[tuple[int, int], int] = {}
    for r in instance.requests:
        key = r.input_tokens, r.output_tokens
        if key not in known:
            single = instance.replace(requests=(Request(*key),))
            schedule = serial_schedule(single, Rules())
            assert schedule is not None
            known[key] = replay(single, schedule, cost=cost).makespan_ticks
    return [known[r.input_tokens, r.output_tokens] for r in instance.requests]


def objective(argument: str | None) -> Objective:
    """The largest slowdown."""
    no_argument("max_slowdown", argument)
    return MaxSlowdown()
