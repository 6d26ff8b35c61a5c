"""Largest TTFT of a priority class: "max_ttft:0" for priority 0, "max_ttft:all", or the most urgent class there is."""

from __future__ import annotations

from csp.formulations import Formulated
from csp.horizon import batches_to_first_tokens
from csp.objectives import Objective, Ticks
from csp.objectives._elapsed import alone_floor_ticks, within
from csp.program import Terms
from csp.solvers import Problem
from sim.clock import TICKS_PER_NS
from sim.cost.model import CostModel
from sim.errors import InputError
from sim.instance import Instance
from sim.replay import Replay, Rules


class MaxTtft(Objective):
    """Largest TTFT among the class.

    Parameters
    ----------
    priority
        Of the class; "all" for everybody, None for the smallest number (most urgent) there is.
    """

    limits_batches = False

    def __init__(self, priority: int | str | None) -> None:
        self.priority = priority

    def members(self, instance: Instance) -> set[int]:
        """Indices of the class."""
        wanted = min(r.priority for r in instance.requests) if self.priority is None else self.priority
        found = {i for i, r in enumerate(instance.requests) if wanted in ("all", r.priority)}
        if not found:
            raise InputError("no request has this priority", field="objective max_ttft", value=self.priority)
        return found

    def value(self, replay: Replay, cost: CostModel | None = None) -> int:
        """In ticks."""
        spent = replay.ttft_ticks()
        return max(spent[i] or 0 for i in self.members(replay.instance))

    def expression(self, formulated: Formulated, problem: Problem) -> Terms:
        """A time that is at least every member's."""
        members = self.members(problem.instance)
        largest = formulated.program.variable(0, formulated.latest_ticks, "max_ttft", ticks=True)
        for t, (_, copies) in enumerate(formulated.kinds):
            if copies[0] in members:
                within(formulated, t, "first", {largest: 1}, 0)
        return {largest: 1}

    def lower_bound(self, instance: Instance, cost: CostModel, rules: Rules) -> int:
        """The member that takes longest alone."""
        return max(alone_floor_ticks(instance.requests[i], instance, cost, 1) for i in self.members(instance))

    def most_batches(self, instance: Instance, cost: CostModel, rules: Rules, most: Ticks) -> int | None:
        """Until the last first token of the class, then the rest in the fewest batches."""
        latest = max(instance.requests[i].arrival_ns for i in self.members(instance)) * TICKS_PER_NS + int(most)
        return batches_to_first_tokens(instance, cost, rules, latest)


def objective(argument: str | None) -> Objective:
    """The largest TTFT of the class the argument names."""
    if argument in (None, "all"):
        return MaxTtft(argument)
    try:
        return MaxTtft(int(argument or ""))
    except ValueError:
        raise InputError(
            'the class is a priority number or "all"', field="objective max_ttft", value=argument
        ) from None
