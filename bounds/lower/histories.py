"""Histories: prices of memory that depend on when the last batches with fills were.

Proof: docstring of `csp.relaxations.histories`. `inputs["certificate"]` holds prices and potentials in ticks;
`csp.relaxations.certificate.recheck` proves the bound from them in exact integer arithmetic. Strong where some ten to
thirty requests fit, so that gathering their fills in few batches leaves memory free. Not for swapping, where residents
appear without a fill.
"""

from __future__ import annotations

import math
import time

from bounds.lower._programs import MOST_TYPES, prepared
from csp.relaxations.certificate import histories_certificate
from csp.relaxations.histories import Program, history_of, prove_histories
from csp.result import Bound
from sim.clock import TICKS_PER_MS
from sim.cost.model import CostModel
from sim.instance import Instance

OBJECTIVES = ("makespan",)
MOST_ROWS = 21_000
"""Of the program; it takes half a minute then."""
ROWS_PER_ROOT_SECOND = 3_300
"""Of the time limit: fewer rows where there is less time."""
FEW_FIT, ROWS_WHERE_FEW_FIT = 8, 3_000
"""Up to so many requests at their peaks in memory `levels` is stronger, and only small programs are tried; so are they
where a batch with fills costs little more than one without."""
LEAST_FILL_CHARGE = 0.25
"""Of a batch, in units of its least cost."""
DEFAULT_TIME_LIMIT_S = 60.0


def bound(
    instance: Instance, cost: CostModel, *, objective: str = "makespan", time_limit_s: float | None = None
) -> Bound | None:
    """The bound; None where the program would be too large or has no solution, or requests arrive prefilled."""
    began = time.monotonic()
    given = prepared(instance, cost, MOST_TYPES)
    if given is None:
        return None
    load, weights, charge = given
    limit = time_limit_s or DEFAULT_TIME_LIMIT_S
    peak = min(-(-(i + o - 1) // load.block_size) for i, o, _ in load.lengths)
    matters = load.kv_blocks // peak > FEW_FIT and charge.prefill_batch >= LEAST_FILL_CHARGE * charge.least
    most_rows = MOST_ROWS if matters else ROWS_WHERE_FEW_FIT
    seen = history_of(load, min(most_rows, ROWS_PER_ROOT_SECOND * math.sqrt(limit)))
    if seen is None:
        return None
    try:
        program = Program(load, charge, seen)
        solution = program.solve(max(0.1, began + limit - time.monotonic()))
        if solution is None:
            return None
        prices, potential = solution
        ticks = math.ceil(prove_histories(load, charge, seen, prices, potential))
    except ValueError:
        return None
    inputs = {
        "types": len(load.lengths), "histories": len(seen), "grid": seen.grid,
        "per_request_ms": ticks / TICKS_PER_MS / load.requests,
        "certificate": histories_certificate(load, weights, seen, prices, potential),
    }  # fmt: skip
    return Bound("histories", ticks, time.monotonic() - began, inputs)
