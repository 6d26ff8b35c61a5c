"""Slots: with max_num_seqs = S, J >= ceil(sum (ceil(I / C) + O - 1) / S).

Proof. Each request is processed in at least ceil(I / C) + O - 1 batches (see critical path), and a batch processes at
most S requests. Into time: `csp.relaxations.aggregate`.
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
    """The bound; None without a cap."""
    return makespan_bound(counted(instance), cost, "sequences")
