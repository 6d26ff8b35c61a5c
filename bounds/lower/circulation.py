"""Circulation: potentials of whole resident sets, where memory is so small that all sets can be listed.

Proof: docstring of `csp.relaxations.circulation`. `inputs["certificate"]` holds the potentials in ticks, rechecked in
exact integer arithmetic. The strongest bound here for many identical requests of which two or three fit. Not for
swapping.
"""

from __future__ import annotations

import math
import time

from bounds.lower._programs import prepared
from csp.relaxations.certificate import circulation_certificate
from csp.relaxations.circulation import MOST_ARCS, TooManyError, network, prove_circulation, solve_circulation
from csp.result import Bound
from sim.clock import TICKS_PER_MS
from sim.cost.model import CostModel
from sim.instance import Instance

OBJECTIVES = ("makespan",)
DEFAULT_TIME_LIMIT_S = 60.0


def bound(
    instance: Instance, cost: CostModel, *, objective: str = "makespan", time_limit_s: float | None = None
) -> Bound | None:
    """The bound; None where there are too many resident sets, requests arrive prefilled, or time is too short."""
    began = time.monotonic()
    given = prepared(instance, cost)
    if given is None:
        return None
    load, weights, charge = given
    try:
        net = network(load, charge, most_arcs=MOST_ARCS)
        found = solve_circulation(load, net, time_limit_s=time_limit_s or DEFAULT_TIME_LIMIT_S)
        if found is None:
            return None
        potential, outside = ([round(x * TICKS_PER_MS) for x in part] for part in (found.potential, found.outside))
        ticks = math.ceil(prove_circulation(load, charge, potential, outside, net))
    except (TooManyError, ArithmeticError, ValueError):
        return None
    inputs = {
        "resident_sets": len(net.states), "batches_between_them": len(net.source),
        "per_request_ms": ticks / TICKS_PER_MS / load.requests,
        "certificate": circulation_certificate(load, weights, potential, outside),
    }  # fmt: skip
    return Bound("circulation", ticks, time.monotonic() - began, inputs)
