"""An independent exact search the solvers, bounds and the rules module are checked against.

Written from the rules alone (Kim et al., arXiv:2411.07447, equations 7-10): of the project it reads only the fields of
`sim.instance.Instance` and the coefficients of a cost model, and it returns schedules in the common form. Nothing here
imports `csp` or `bounds`, nor how `sim` replays.
"""

from tests.oracle.objectives import (
    Makespan,
    MaxSlowdown,
    MaxTtft,
    MeanTtft,
    Objective,
    WeightedCompletion,
)
from tests.oracle.search import Optimum, TooLargeError, optimum
from tests.oracle.slots import Limits, Swap

__all__ = [
    "Limits", "Makespan", "MaxSlowdown", "MaxTtft", "MeanTtft", "Objective", "Optimum", "Swap", "TooLargeError",
    "WeightedCompletion", "optimum",
]  # fmt: skip
