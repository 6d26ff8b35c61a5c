"""A linear program that grows by columns, for column generation; HiGHS by highspy, floating point."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


class Master:
    """Minimise cost x over x >= 0 with equality rows; columns are added between solves.

    Parameters
    ----------
    right
        Right-hand side per row.
    """

    def __init__(self, right: Floats) -> None:
        import highspy

        with _quiet_stdout():
            self._highs: Any = highspy.Highs()  # type: ignore[no-untyped-call]
        self._highs.setOptionValue("output_flag", False)
        self._highs.setOptionValue("threads", 1)
        self._infinity = highspy.kHighsInf
        self.columns = 0
        nothing, none = np.array([], np.int32), np.array([], np.float64)
        for value in right:
            self._highs.addRow(float(value), float(value), 0, nothing, none)

    def add(self, cost: float, rows: npt.NDArray[np.int32], values: Floats) -> None:
        """Add a column."""
        self._highs.addCol(cost, 0.0, self._infinity, len(rows), rows, values)
        self.columns += 1

    def solve(self) -> tuple[float, Floats]:
        """Optimal value and row duals.

        Raises
        ------
        ArithmeticError
            If the solver does not end with an optimum.
        """
        import highspy

        self._highs.run()
        if self._highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            raise ArithmeticError(f"the master program ended {self._highs.getModelStatus().name}")
        value = self._highs.getInfo().objective_function_value
        return float(value), np.array(self._highs.getSolution().row_dual)

    def solution(self) -> Floats:
        """Value of each column."""
        return np.array(self._highs.getSolution().col_value)


@contextlib.contextmanager
def _quiet_stdout() -> Iterator[None]:
    """highspy's constructor prints a banner to the file descriptor, which would spoil JSON on standard output."""
    sys.stdout.flush()
    try:
        saved = os.dup(1)
    except OSError:
        yield
        return
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, 1)
        yield
    finally:
        os.dup2(saved, 1)
        os.close(null)
        os.close(saved)
