"""Aggregate: the best batch count with prices on memory, tokens and slots, decoding or refilling each token.

Proof: docstring of `csp.relaxations.aggregate`. `inputs` holds the weights and prices; they prove the bound in exact
arithmetic, whoever found them.
"""

from __future__ import annotations

from bounds.lower import counted
from csp.relaxations import makespan_bound
from csp.result import Bound
from sim.cost.model import CostModel
from sim.instance import Instance

OBJECTIVES = ("makespan",)


def bound(
    instance: Instance, cost: CostModel, *, objective: str = "makespan", time_limit_s: float | None = None
) -> Bound | None:
    """The bound; always applies and is at least as strong as the batch counts alone."""
    return makespan_bound(counted(instance), cost, "aggregate")
