"""Crowding: mean completion by prices of machine time, memory and company: shared batches are cheaper, but longer.

Proof: docstring of `csp.relaxations.crowding`. `inputs` says which resource shares the fixed charge and up to which
multiple of a full batch company is charged.
"""

from __future__ import annotations

import time

from bounds.lower import counted
from csp.relaxations.crowding import crowding_bound
from csp.result import Bound
from sim.cost.model import CostModel
from sim.instance import Instance

OBJECTIVES = ("mean_completion",)


def bound(
    instance: Instance, cost: CostModel, *, objective: str = "mean_completion", time_limit_s: float | None = None
) -> Bound | None:
    """The bound; None where requests arrive prefilled, batches have no fixed charge, or time is over too soon."""
    began = time.perf_counter()
    load = counted(instance).load
    if load.prefilled:
        return None
    found = crowding_bound(
        instance, load, cost, lambda: time_limit_s is not None and time.perf_counter() - began > time_limit_s
    )
    if found is None:
        return None
    return Bound("crowding", found[0], time.perf_counter() - began, {**found[1], "requests": len(instance.requests)})
