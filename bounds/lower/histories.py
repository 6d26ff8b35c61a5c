"""Histories: prices of memory that depend on when the last batches with fills were.

Proof: docstring of `csp.relaxations.histories`. `inputs["certificate"]` holds prices and potentials in ticks;
`csp.relaxations.certificate.recheck` proves the bound from them in exact integer arithmetic. Strong where some ten to
thirty requests fit, so that gathering their fills in few batches leaves memory free. Not for swapping, where residents
appear without a fill.
"""

from __future__ import annotations

import math
import time

from csp.relaxations.certificate import histories_certificate
from csp.relaxations.coarsen import coarsen
from csp.relaxations.combinatorial import additive_weights
from csp.relaxations.histories import Program, history_of, prove_histories
from csp.relaxations.load import load_of
from csp.relaxations.patterns import charges
from csp.result import Bound
from sim.cost.model import CostModel
from sim.instance import Instance

OBJECTIVES = ("makespan",)
MOST_ROWS = 21_000
"""Of the program; it takes 20 to 40 s then."""
ROWS_PER_ROOT_SECOND = 2_500
"""Of the time limit: fewer rows where there is less time."""
MOST_TYPES = 6
DEFAULT_TIME_LIMIT_S = 60.0


def bound(
    instance: Instance, cost: CostModel, *, objective: str = "makespan", time_limit_s: float | None = None
) -> Bound | None:
    """The bound; None where the program would be too large or has no solution, or requests arrive prefilled."""
    began = time.monotonic()
    whole = load_of(instance)
    if whole.prefilled:
        return None
    load = coarsen(whole, MOST_TYPES)
    weights = additive_weights(load, cost)
    charge = charges(load, cost, weights)
    limit = time_limit_s or DEFAULT_TIME_LIMIT_S
    seen = history_of(load, min(MOST_ROWS, ROWS_PER_ROOT_SECOND * math.sqrt(limit)))
    if seen is None or charge.least <= 0:
        return None
    program = Program(load, charge, seen)
    solution = program.solve(max(0.1, began + limit - time.monotonic()))
    if solution is None:
        return None
    prices, potential = solution
    try:
        ticks = math.ceil(prove_histories(load, charge, seen, prices, potential))
    except ValueError:
        return None
    inputs = {
        "types": len(load.lengths), "histories": len(seen), "grid": seen.grid,
        "per_request_ms": ticks / 1e11 / load.requests,
        "certificate": histories_certificate(load, weights, seen, prices, potential),
    }  # fmt: skip
    return Bound("histories", ticks, time.monotonic() - began, inputs)
