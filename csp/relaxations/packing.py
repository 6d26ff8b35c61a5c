"""How many bins a multiset of sizes needs at least: dual feasible functions, exact in integers.

A function f on [0, 1] is dual feasible if numbers x with sum <= 1 always have sum f(x) <= 1. Then each bin takes
items of total f at most 1, so the sum of f over all items bounds the number of bins (Fekete and Schepers, 2001). Two
families: Martello and Toth's thresholds (with alpha <= 1/2: x > 1 - alpha counts 1, x < alpha counts 0, the rest
counts x) and rounding u_k (x if (k + 1) x is whole, else floor((k + 1) x) / k).
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import numpy as np

_MAX_THRESHOLDS = 256
_MAX_ROUNDING = 64


def least_bins(counts: Mapping[int, int], capacity: int) -> tuple[int, str]:
    """Least number of bins of a capacity for items of sizes 1..capacity.

    Parameters
    ----------
    counts
        Size -> number of items.

    Returns
    -------
    The bound and the function that gives it ("area", "threshold 40", "rounding 2").

    Examples
    --------
    Three items of 5 need three bins of 8, though their area fits in two.

    >>> least_bins({5: 3}, 8)
    (3, 'threshold 4')
    """
    area = sum(s * n for s, n in counts.items())
    best = -(-area // capacity), "area"
    for bound, name in (_thresholds(counts, capacity), _rounding(counts, capacity)):
        if bound > best[0]:
            best = bound, name
    return best


def _thresholds(counts: Mapping[int, int], capacity: int) -> tuple[int, str]:
    """Best Martello-Toth threshold: items > capacity - alpha fill a bin each, those below alpha are left out."""
    sizes = sorted(counts)
    alphas = _spread(sorted({min(s, capacity - s + 1) for s in sizes} | {capacity // 2}), _MAX_THRESHOLDS)
    number, volume = [0], [0]
    for s in sizes:
        number.append(number[-1] + counts[s])
        volume.append(volume[-1] + counts[s] * s)
    best = 0, "area"
    low, high = 0, len(sizes)
    for alpha in alphas:
        if not 0 < alpha <= capacity // 2:
            continue
        while low < len(sizes) and sizes[low] < alpha:
            low += 1
        while high > 0 and sizes[high - 1] > capacity - alpha:
            high -= 1
        middle = volume[max(high, low)] - volume[low]
        bound = number[-1] - number[high] + -(-middle // capacity)
        if bound > best[0]:
            best = bound, f"threshold {alpha}"
    return best


def _rounding(counts: Mapping[int, int], capacity: int) -> tuple[int, str]:
    """Best rounding function u_k."""
    best = 0, "area"
    largest, total = max(counts, default=0), sum(counts.values())
    dtype = np.int64 if (_MAX_ROUNDING + 1) * largest * total < 2**62 else object
    sizes, numbers = np.array(list(counts), dtype), np.array(list(counts.values()), dtype)
    for k in range(1, min(_MAX_ROUNDING, capacity)):
        if (k + 1) * largest < capacity:
            continue
        scaled = (k + 1) * sizes
        is_whole = scaled % capacity == 0
        whole = int((numbers[is_whole] * sizes[is_whole]).sum())
        floors = int((numbers[~is_whole] * (scaled[~is_whole] // capacity)).sum())
        bound = -(-(Fraction(whole, capacity) + Fraction(floors, k)) // 1)
        if bound > best[0]:
            best = bound, f"rounding {k}"
    return best


def _spread(values: list[int], most: int) -> list[int]:
    """At most so many of the values, evenly spread, ends included."""
    if len(values) <= most:
        return values
    return [values[i * (len(values) - 1) // (most - 1)] for i in range(most)]
