"""Mean latency: completion minus arrival, averaged over requests (mean E2E)."""

from __future__ import annotations

from csp.objectives import Objective, no_argument
from csp.objectives.weighted_completion import WeightedCompletion
from sim.instance import Request


class MeanCompletion(WeightedCompletion):
    """All weights one."""

    def weight(self, request: Request, largest: int) -> int:
        """One."""
        return 1


def objective(argument: str | None) -> Objective:
    """The mean latency."""
    no_argument("mean_completion", argument)
    return MeanCompletion()
