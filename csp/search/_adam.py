"""Compiled: one step of Adam (Kingma, Ba 2015) for one price, shared by all ascents of Lagrangian bounds."""

from __future__ import annotations

from typing import Any

import numpy as np

from csp.search._jit import compiled

MEAN = 0.9
"""What the mean of slopes keeps at each step."""


@compiled
def pace(
    slope: float, at: int, early: float, early_square: float, mean: Any, square: Any, keep: float, least: float
) -> float:
    """The mean of a price's slopes over their spread, both corrected for having begun at 0.

    Parameters
    ----------
    early, early_square
        1 - `MEAN` and 1 - ``keep``, each to the power of steps so far.
    mean, square
        First and second moments, changed at ``at``.
    keep
        What the second moment keeps at each step.
    least
        Added to the spread.
    """
    mean[at] = MEAN * mean[at] + (1 - MEAN) * slope
    square[at] = keep * square[at] + (1 - keep) * slope * slope
    return float(mean[at] / early / (np.sqrt(square[at] / early_square) + least))
