"""Times of batches in compiled code, from tables of a cost model's pieces."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from csp.search._jit import compiled
from sim.cost.model import CostModel, Features

Reals = npt.NDArray[np.float64]


def cost_pieces(cost: CostModel) -> Reals:
    """Coefficients (groups, pieces, features), filled up with pieces of 0, which are never the largest."""
    table = np.zeros((len(cost.groups), max(len(g.pieces) for g in cost.groups), len(Features._fields)))
    for rows, group in zip(table, cost.groups, strict=True):
        rows[: len(group.pieces)] = group.pieces
    return table


@compiled
def batch_ticks(pieces: Reals, f: Reals) -> float:
    """Time of a batch with features f, in ticks."""
    total = 0.0
    for group in range(pieces.shape[0]):
        most = 0.0
        for piece in range(pieces.shape[1]):
            here = 0.0
            for x in range(pieces.shape[2]):
                here += pieces[group, piece, x] * f[x]
            most = max(most, here)
        total += most
    return total
