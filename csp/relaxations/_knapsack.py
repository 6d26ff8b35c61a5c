"""Two-dimensional knapsacks over (blocks before, blocks after), compiled on first use; floating point."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

NONE = -1e18
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def _close(value: Floats, choice: Ints, before: Ints, after: Ints, profit: Floats, names: Ints) -> None:
    """Add any number of the items to what the table holds; ``choice`` notes the item added last.

    Row by row: the rows above are final. Loops run over slices without branches, which the compiler turns into vector
    instructions.
    """
    side = value.shape[0]
    for w in range(side):
        for first in (True, False):
            for q in range(len(profit)):
                a, b, x, name = before[q], after[q], profit[q], names[q]
                if a > w or (a > 0) != first:
                    continue
                source, best, last = value[w - a, : side - b], value[w, b:], choice[w, b:]
                for m in range(len(best)):
                    y = source[m] + x
                    better = y > best[m]
                    best[m] = y if better else best[m]
                    last[m] = name if better else last[m]


def _one_more(value: Floats, before: Ints, after: Ints, profit: Floats, names: Ints) -> tuple[Floats, Ints]:
    """The table with exactly one of the items added."""
    side = value.shape[0]
    table = np.full_like(value, -1e18)
    choice = np.full(value.shape, -1, np.int64)
    for w in range(side):
        for q in range(len(profit)):
            a, b, x, name = before[q], after[q], profit[q], names[q]
            if a > w:
                continue
            source, best, last = value[w - a, : side - b], table[w, b:], choice[w, b:]
            for m in range(len(best)):
                y = source[m] + x
                better = y > best[m]
                best[m] = y if better else best[m]
                last[m] = name if better else last[m]
    return table, choice


@cache
def kernels() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """(close, one_more), compiled."""
    import numba

    compile_ = numba.njit(cache=True)
    return compile_(_close), compile_(_one_more)
