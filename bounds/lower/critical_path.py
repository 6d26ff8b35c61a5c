"""Critical path: a request generates at most one token a batch, so J >= max (ceil(I / C) + O - 1).

Proof. The first token ends a fill of I tokens, at most C a batch: ceil(I / C) batches; each of the other O - 1 tokens
needs a batch of its own. Into time: `csp.relaxations.aggregate`.
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
    """The bound; always applies."""
    return makespan_bound(counted(instance), cost, "critical_path")
