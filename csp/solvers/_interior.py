"""Prices of a sparse linear program by an interior point method: HiGHS by highspy, one thread, no basis afterwards."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csc_array

from csp.solvers._master import _quiet_stdout

Floats = npt.NDArray[np.float64]


def interior_duals(
    cost: Floats, matrix: csc_array, lower: Floats, upper: Floats, *, time_limit_s: float, tolerance: float = 1e-3
) -> Floats | None:  # fmt: skip
    """Row duals of: minimise cost x over x >= 0 with lower <= matrix x <= upper.

    They need not be optimal, nor quite feasible: whoever uses them proves what they are worth. None if there are none.

    Parameters
    ----------
    tolerance
        Relative gap between primal and dual value at which to stop.
    """
    import highspy

    with _quiet_stdout():
        highs: Any = highspy.Highs()  # type: ignore[no-untyped-call]
    options = {"output_flag": False, "threads": 1, "solver": "ipm", "run_crossover": "off",
               "time_limit": float(time_limit_s), "ipm_optimality_tolerance": tolerance,
               "kkt_tolerance": tolerance}  # fmt: skip
    for name, value in options.items():
        highs.setOptionValue(name, value)
    program = highspy.HighsLp()
    program.num_row_, program.num_col_ = matrix.shape
    program.col_cost_ = cost
    program.col_lower_, program.col_upper_ = np.zeros(len(cost)), np.full(len(cost), highspy.kHighsInf)
    program.row_lower_, program.row_upper_ = lower, upper
    program.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    program.a_matrix_.start_, program.a_matrix_.index_ = matrix.indptr, matrix.indices
    program.a_matrix_.value_ = matrix.data
    highs.passModel(program)
    highs.run()
    duals = np.array(highs.getSolution().row_dual)
    return duals if len(duals) == matrix.shape[0] and np.isfinite(duals).all() else None
