"""Tokens: every token but a request's last is processed, so J >= ceil(sum (I + O - 1) / C).

Proof. After generating its last token a request holds I + O - 1 KVs, each of which was processed since it was last
absent; a batch processes at most C. Into time: `csp.relaxations.aggregate`.
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
    return makespan_bound(counted(instance), cost, "tokens")
