"""Packing: the items of the memory area as bin packing, by dual feasible functions (no solver).

Proof. The requests that generate in one batch have sizes I + k - 1 that sum to at most M, so the batches that
generate are bins of capacity M; any function f with sum f(x) <= 1 wherever sum x <= 1 gives J >= sum f(size / M). See
`csp.relaxations.packing` for the functions; `inputs` names the one that was best. Into time:
`csp.relaxations.aggregate`.
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
    return makespan_bound(counted(instance), cost, "packing")
