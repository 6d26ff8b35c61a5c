"""Levels: potentials of requests and of what memory holds, by column generation over batch patterns.

Proof: docstring of `csp.relaxations.levels`. `inputs["certificate"]` holds the potentials in ticks;
`csp.relaxations.certificate.recheck` proves the bound from them in exact integer arithmetic. Strong where few requests
fit, when the plain area forgets that they do not fit exactly. Where memory is small, a second program also tells apart
how many requests hold it. Not for swapping, where residents appear unprocessed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from fractions import Fraction

from bounds.lower._programs import MOST_TYPES, prepared
from csp.relaxations.certificate import PotentialsTooLargeError, levels_certificate, prove
from csp.relaxations.levels import Floats, Levels, solve_levels
from csp.relaxations.load import Load
from csp.relaxations.patterns import Charges
from csp.result import Bound
from sim.clock import TICKS_PER_MS
from sim.cost.model import CostModel
from sim.instance import Instance

OBJECTIVES = ("makespan",)
MOST_WORK = 250_000_000
"""Knapsack cells times items of one pricing round; beyond it the bound is left out."""
DEFAULT_TIME_LIMIT_S = 60.0
_ALL_LEVELS = 200
_LEAST_RESIDENTS, MOST_RESIDENTS, MOST_FINE_WORK = 2, 12, 100_000_000
"""Numbers of residents told apart, as far as knapsacks stay so small."""
_FINE_LEVELS, _FINE_TOLERANCE = 400, 1e-4


def bound(
    instance: Instance, cost: CostModel, *, objective: str = "makespan", time_limit_s: float | None = None
) -> Bound | None:
    """The bound; None where knapsacks or ticks would be too large, the LP fails, or requests arrive prefilled."""
    began = time.monotonic()
    given = prepared(instance, cost, MOST_TYPES)
    if given is None:
        return None
    load, weights, charge = given
    if (load.kv_blocks + 1) ** 2 * sum(o for _, o, _ in load.lengths) > MOST_WORK:
        return None
    limit, best, ticks, each = time_limit_s or DEFAULT_TIME_LIMIT_S, None, Fraction(-1), {}
    try:
        for levels, duals, converged in _programs(load, charge, limit, began):
            potentials = levels.potentials(duals)
            proven = prove(load, charge, potentials)
            each[str(levels.residents)] = float(proven) / TICKS_PER_MS / load.requests
            if proven > ticks:
                best, ticks = (levels, potentials, converged), proven
    except (PotentialsTooLargeError, ArithmeticError):
        pass
    if best is None:
        return None
    levels, potentials, converged = best
    inputs = {
        "types": len(load.lengths), "residents": levels.residents, "items": len(levels.items),
        "columns": levels.master.columns, "converged": converged,
        "per_request_ms": each,
        "certificate": levels_certificate(load, weights, potentials),
    }  # fmt: skip
    return Bound("levels", math.ceil(ticks), time.monotonic() - began, inputs)


def _programs(
    load: Load, charge: Charges, time_limit_s: float, began: float
) -> Iterator[tuple[Levels, Floats, bool]]:  # fmt: skip
    """Programs, each finer than the one before, with their duals and whether they converged."""
    levels = Levels(load, charge, _breaks(load.kv_blocks, _ALL_LEVELS, 50))
    duals, converged = solve_levels(levels, time_limit_s=time_limit_s, began=began)
    yield levels, duals, converged
    residents = _residents(load)
    if converged and residents:
        most = _FINE_LEVELS // (residents + 1)
        fine = Levels(load, charge, _breaks(load.kv_blocks, most, most), residents)
        yield fine, *solve_levels(fine, time_limit_s=time_limit_s, began=began, start=(levels, duals),
                                  tolerance=_FINE_TOLERANCE)  # fmt: skip


def _breaks(limit: int, most: int, else_: int) -> range:
    """Every number of blocks where there are at most so many, else about so many of them."""
    return range(0, limit + 1, 1 if limit <= most else -(-limit // else_))


def _residents(load: Load) -> int:
    """Numbers of residents worth telling apart."""
    fit = load.kv_blocks // min(-(-i // load.block_size) for i, _, _ in load.lengths)
    work = (load.kv_blocks + 1) ** 2 * sum(o for _, o, _ in load.lengths)
    told_apart = min(fit, MOST_RESIDENTS, math.isqrt(MOST_FINE_WORK // work) - 1)
    return told_apart if told_apart >= _LEAST_RESIDENTS else 0
