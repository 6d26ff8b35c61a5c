"""What the bounds that solve programs over batch patterns begin with."""

from __future__ import annotations

from csp.relaxations.coarsen import coarsen
from csp.relaxations.combinatorial import additive_weights
from csp.relaxations.load import Load, load_of
from csp.relaxations.patterns import Charges, Weights, charges
from sim.cost.model import CostModel
from sim.instance import Instance

MOST_TYPES = 6
_LEAST_AREA = 0.75
"""Of the memory area, what rounding lengths down must leave for a program to have a chance against it."""


def prepared(
    instance: Instance, cost: CostModel, most_types: int | None = None
) -> tuple[Load, Weights, Charges] | None:  # fmt: skip
    """The load, with lengths rounded down to at most so many types if given, weights of cost pieces, and charges.

    None where the programs do not apply: requests arrive prefilled, batches have no charge, or rounding loses too much.
    """
    load = load_of(instance)
    if load.prefilled:
        return None
    if most_types is not None:
        whole, load = load, coarsen(load, most_types)
        if load.area_blocks() < _LEAST_AREA * whole.area_blocks():
            return None
    weights = additive_weights(load, cost)
    charge = charges(load, cost, weights)
    return (load, weights, charge) if charge.least > 0 else None
