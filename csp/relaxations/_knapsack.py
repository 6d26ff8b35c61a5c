"""Four-dimensional knapsacks over (residents, blocks) before and after a batch, compiled; floating point.

Axes of a table: residents before, blocks before, residents after, blocks after. The last index of residents stands for
that many or more.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from csp.search._jit import compiled

NONE = -1e18
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@compiled
def first_source(n: int, joins: bool) -> int:
    """Fewest residents from which there are ``n`` with one more, or with nobody more."""
    return max(0, n - 1) if joins else n


@compiled
def end_source(n: int, joins: bool, most: int) -> int:
    """One more than the most residents from which there are ``n``."""
    return n if joins and n < most else n + 1


@compiled
def ends(table: Floats) -> Ints:
    """Per (residents before, blocks before, residents after): one more than the most blocks after, 0 for none."""
    found = np.zeros(table.shape[:3], np.int64)
    for n, w, m in np.ndindex(found.shape):
        for u in range(table.shape[3]):
            if table[n, w, m, u] > 0.5 * NONE:
                found[n, w, m] = u + 1
    return found


@compiled
def close(table: Floats, before: Ints, after: Ints, profit: Floats) -> None:
    """Add any number of the items to what the table holds.

    Row by row of blocks before: the rows above are final. The innermost loop runs over slices without branches, which
    the compiler turns into vector instructions.
    """
    most, side = table.shape[0] - 1, table.shape[1]
    end = ends(table)
    for w in range(side):
        for resident in (True, False):
            for q in range(len(profit)):
                a, b, x = before[q], after[q], profit[q]
                if a > w or (a > 0) != resident:
                    continue
                for n in range(most + 1):
                    for n0 in range(first_source(n, a > 0), end_source(n, a > 0, most)):
                        for m in range(most + 1):
                            for m0 in range(first_source(m, b > 0), end_source(m, b > 0, most)):
                                last = end[n0, w - a, m0]
                                if a == 0 and m0 == m and last > 0:
                                    last = side
                                last = min(last, side - b)
                                if last <= 0:
                                    continue
                                end[n, w, m] = max(end[n, w, m], last + b)
                                source, best = table[n0, w - a, m0, :last], table[n, w, m, b : b + last]
                                for u in range(last):
                                    y = source[u] + x
                                    best[u] = y if y > best[u] else best[u]


@compiled
def trace(
    table: Floats, before: Ints, after: Ints, profit: Floats, n: int, w: int, m: int, u: int
) -> Ints:  # fmt: skip
    """How often each item is in the best pattern of a cell of a closed table."""
    most = table.shape[0] - 1
    counts = np.zeros(len(profit), np.int64)
    while n + w + m + u > 0:
        best, last, n_last, m_last = NONE, -1, 0, 0
        for q in range(len(profit)):
            a, b = before[q], after[q]
            if a > w or b > u:
                continue
            for n0 in range(first_source(n, a > 0), end_source(n, a > 0, most)):
                for m0 in range(first_source(m, b > 0), end_source(m, b > 0, most)):
                    y = table[n0, w - a, m0, u - b] + profit[q]
                    if y > best:
                        best, last, n_last, m_last = y, q, n0, m0
        if last < 0:
            break
        counts[last] += 1
        n, w, m, u = n_last, w - before[last], m_last, u - after[last]
    return counts


@compiled
def best_cells(table: Floats, taken: Floats, left: Floats) -> tuple[Floats, Ints, Ints]:
    """Cells with the largest table + taken before - left after, of each level before and of each level after.

    Returns
    -------
    Their values, levels before and levels after, numbered row by row of ``taken`` and ``left``.
    """
    (numbers, side), width = taken.shape, left.shape[1]
    befores, afters = numbers * side, numbers * width
    value = np.full(befores + afters, NONE)
    before, after = np.arange(befores + afters), np.arange(befores + afters) - befores
    for n in range(numbers):
        for w in range(side):
            at = n * side + w
            for m in range(numbers):
                for u in range(width):
                    y, to = table[n, w, m, u] + taken[n, w] - left[m, u], m * width + u
                    if y > value[at]:
                        value[at], after[at] = y, to
                    if y > value[befores + to]:
                        value[befores + to], before[befores + to] = y, at
    return value, before, after
