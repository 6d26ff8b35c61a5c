"""Configuration: packing by the configuration LP, column generation over the sets of tokens that fit in one batch.

Proof: docstring of `csp.relaxations.configuration`; into time as `aggregate`. `inputs["certificate"]` holds whole
weights per size; their knapsack is solved exactly when rechecked. At least as strong as dual feasible functions.
"""

from __future__ import annotations

import time
from dataclasses import replace

from bounds.lower import counted
from csp.relaxations.combinatorial import AGGREGATE, makespan_bound
from csp.relaxations.configuration import batches_from_weights, solve_configuration
from csp.result import Bound
from sim.cost.model import CostModel
from sim.instance import Instance

OBJECTIVES = ("makespan",)
DEFAULT_TIME_LIMIT_S = 30.0


def bound(
    instance: Instance, cost: CostModel, *, objective: str = "makespan", time_limit_s: float | None = None
) -> Bound | None:
    """The bound; None where the knapsacks would be too large."""
    began = time.monotonic()
    known = counted(instance)
    try:
        weights = solve_configuration(known.load, time_limit_s=time_limit_s or DEFAULT_TIME_LIMIT_S)
    except ArithmeticError:
        return None
    if weights is None:
        return None
    batches = batches_from_weights(known.load, weights)
    found = makespan_bound(
        replace(known, least=replace(known.least, packing=max(batches, known.least.packing))), cost, AGGREGATE
    )
    assert found is not None
    certificate = {"kind": "configuration", "weights": [[s, u] for s, u in sorted(weights.items())]}
    inputs = {**found.inputs, "packing_function": "configuration LP", "certificate": certificate}
    return Bound("configuration", found.value_ticks, time.monotonic() - began, inputs)
