"""Memory area: J >= ceil(sum over requests and k of (I + k - 1) / M), with preemption or without.

Proof. In the batch in which a request generates its k-th token it ends a fill of, or decodes at, s = I + k - 1
tokens, and holds exactly s KVs (ceil(s / b) blocks) after it. These O batches are different, and a batch's KVs sum to
at most M. A prompt longer than C also has ceil(I / C) - 1 earlier chunks; j chunks before the last it holds at least
I - jC KVs. Into time: `csp.relaxations.aggregate`.
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
    return makespan_bound(counted(instance), cost, "memory_area")
