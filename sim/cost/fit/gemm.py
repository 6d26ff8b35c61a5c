"""Times of matrix products between the shapes of a measured table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import numpy as np

from sim.errors import InputError

if TYPE_CHECKING:
    from pandas import DataFrame, Series

_SMALLEST_SHAPE = 4096


class GemmTable:
    """Median times of (m x k) by (k x n) products in ms.

    Parameters
    ----------
    rows
        Columns m, n, k, latency (ms).
    source
        File, for messages.
    """

    def __init__(self, rows: DataFrame, source: str) -> None:
        table = rows.pivot_table(index="m", columns=["n", "k"], values="latency", aggfunc="median")
        shapes = cast("list[tuple[int, int]]", table.columns.to_list())
        self._times: dict[tuple[int, int], Series[float]] = {shape: table[shape].dropna() for shape in shapes}
        self._source = source

    def time_ms(self, n: int, k: int) -> tuple[Series[float], bool]:
        """Time over m, bilinear between the neighbouring measured shapes, and whether the shape itself was measured.

        Raises
        ------
        InputError
            If the table does not surround the shape.
        """
        corners = [(i, j, wi * wj) for i, wi in self._neighbours(0, n) for j, wj in self._neighbours(1, k)]
        missing = [(i, j) for i, j, _ in corners if (i, j) not in self._times]
        if missing:
            raise InputError(f"lacks the shape n, k = {missing[0]}", source=self._source)
        parts = [self._times[i, j] * weight for i, j, weight in corners]
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return total.dropna(), len(corners) == 1

    def left_out_error(self) -> float:
        """Mean relative error when each measured shape is left out and taken from its neighbours in n and in k."""
        errors = []
        for axis in (0, 1):
            for shape in self._times:
                line = sorted(s[axis] for s in self._times if s[1 - axis] == shape[1 - axis])
                at = line.index(shape[axis])
                if min(shape) < _SMALLEST_SHAPE or not 0 < at < len(line) - 1:
                    continue
                left, right = line[at - 1], line[at + 1]
                share = (shape[axis] - left) / (right - left)
                ends = [(end, shape[1]) if axis == 0 else (shape[0], end) for end in (left, right)]
                guess = self._times[ends[0]] * (1 - share) + self._times[ends[1]] * share
                errors.append(((guess - self._times[shape]).abs() / self._times[shape]).mean())
        return float(np.mean(errors))

    def _neighbours(self, axis: int, wanted: int) -> Sequence[tuple[int, float]]:
        grid = np.array(sorted({shape[axis] for shape in self._times}))
        if not grid[0] <= wanted <= grid[-1]:
            raise InputError(f"covers {grid[0]} to {grid[-1]} only, not {wanted}", source=self._source,
                             field="nk"[axis])  # fmt: skip
        right = int(np.searchsorted(grid, wanted))
        if grid[right] == wanted:
            return [(wanted, 1.0)]
        share = float((wanted - grid[right - 1]) / (grid[right] - grid[right - 1]))
        return [(int(grid[right - 1]), 1 - share), (int(grid[right]), share)]
