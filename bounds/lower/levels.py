"""Levels: potentials of requests and of the memory level, by column generation over batch patterns.

Proof: docstring of `csp.relaxations.levels`. `inputs["certificate"]` holds the potentials in ticks;
`csp.relaxations.certificate.recheck` proves the bound from them in exact integer arithmetic. Strong where few requests
fit, when the plain area forgets that they do not fit exactly. Not for swapping, where residents appear unprocessed.
"""

from __future__ import annotations

import math
import time

from csp.relaxations.certificate import PotentialsTooLargeError, levels_certificate, prove
from csp.relaxations.coarsen import coarsen
from csp.relaxations.combinatorial import additive_weights
from csp.relaxations.levels import Levels, solve_levels
from csp.relaxations.load import Load, load_of
from csp.relaxations.patterns import charges
from csp.result import Bound
from sim.cost.model import CostModel
from sim.instance import Instance

OBJECTIVES = ("makespan",)
MOST_WORK = 250_000_000
"""Knapsack cells times items of one pricing round; beyond it the bound is left out."""
MOST_TYPES = 6
DEFAULT_TIME_LIMIT_S = 60.0
_ALL_LEVELS = 200


def bound(
    instance: Instance, cost: CostModel, *, objective: str = "makespan", time_limit_s: float | None = None
) -> Bound | None:
    """The bound; None where knapsacks or ticks would be too large, the LP fails, or requests arrive prefilled."""
    began = time.monotonic()
    whole = load_of(instance)
    if whole.prefilled:
        return None
    load = coarsen(whole, MOST_TYPES)
    weights = additive_weights(load, cost)
    charge = charges(load, cost, weights)
    if (load.kv_blocks + 1) ** 2 * sum(o for _, o, _ in load.lengths) > MOST_WORK or charge.least <= 0:
        return None
    try:
        levels = Levels(load, charge, _breaks(load))
        duals, converged = solve_levels(levels, time_limit_s=time_limit_s or DEFAULT_TIME_LIMIT_S, began=began)
        potentials = levels.potentials(duals)
        ticks = math.ceil(prove(load, charge, potentials))
    except (PotentialsTooLargeError, ArithmeticError):
        return None
    inputs = {
        "types": len(load.lengths), "items": len(levels.items), "columns": levels.master.columns,
        "converged": converged, "per_request_ms": ticks / 1e11 / load.requests,
        "certificate": levels_certificate(load, weights, potentials),
    }  # fmt: skip
    return Bound("levels", ticks, time.monotonic() - began, inputs)


def _breaks(load: Load) -> range | None:
    """Every level where there are few, else some 50 of them."""
    return None if load.kv_blocks <= _ALL_LEVELS else range(0, load.kv_blocks, -(-load.kv_blocks // 50))
