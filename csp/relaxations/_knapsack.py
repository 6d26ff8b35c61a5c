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
    """Add any number of the items to what the table holds; ``choice`` notes the item added last."""
    limit = value.shape[0] - 1
    for q in range(len(profit)):
        a, b, x = before[q], after[q], profit[q]
        for w in range(a, limit + 1):
            for m in range(b, limit + 1):
                y = value[w - a, m - b] + x
                if y > value[w, m] + 1e-9 * abs(y):
                    value[w, m] = y
                    choice[w, m] = names[q]


def _one_more(value: Floats, before: Ints, after: Ints, profit: Floats, names: Ints) -> tuple[Floats, Ints]:
    """The table with exactly one of the items added."""
    limit = value.shape[0] - 1
    best = np.full_like(value, -1e18)
    choice = np.full(value.shape, -1, np.int64)
    for q in range(len(profit)):
        a, b, x = before[q], after[q], profit[q]
        for w in range(a, limit + 1):
            for m in range(b, limit + 1):
                y = value[w - a, m - b] + x
                if y > best[w, m]:
                    best[w, m] = y
                    choice[w, m] = names[q]
    return best, choice


@cache
def kernels() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """(close, one_more), compiled."""
    import numba

    compile_ = numba.njit(cache=True)
    return compile_(_close), compile_(_one_more)
