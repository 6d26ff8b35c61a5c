"""Volume: mean completion and mean TTFT by shortest volume first on one machine, with arrivals.

Proof: docstring of `csp.relaxations.volumes`. `inputs` says which resource shares the fixed charge and which of the two
forms was stronger.
"""

from __future__ import annotations

import time

from bounds.lower import counted
from csp.relaxations.volumes import mean_bound
from csp.result import Bound
from sim.cost.model import CostModel
from sim.instance import Instance

OBJECTIVES = ("mean_completion", "mean_ttft")


def bound(
    instance: Instance, cost: CostModel, *, objective: str = "mean_completion", time_limit_s: float | None = None
) -> Bound | None:
    """The bound; None where requests arrive prefilled."""
    began = time.perf_counter()
    load = counted(instance).load
    if load.prefilled:
        return None
    ticks, inputs = mean_bound(instance, load, cost, first_token=objective == "mean_ttft")
    return Bound("volume", ticks, time.perf_counter() - began, {**inputs, "requests": len(instance.requests)})
