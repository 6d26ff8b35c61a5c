"""Compiled: a queue of requests, least rank first, as a heap in an array."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from csp.search._jit import compiled

Ints = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]


@compiled
def push(heap: Ints, size: int, i: int, rank: Reals) -> None:
    """Add to a heap of ``size`` requests."""
    at = size
    while at > 0 and rank[heap[(at - 1) // 2]] > rank[i]:
        heap[at] = heap[(at - 1) // 2]
        at = (at - 1) // 2
    heap[at] = i


@compiled
def pop(heap: Ints, size: int, rank: Reals) -> int:
    """Take the least out of a heap of ``size`` requests."""
    first, last = heap[0], heap[size - 1]
    at, size = 0, size - 1
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and rank[heap[child + 1]] < rank[heap[child]]:
            child += 1
        if rank[heap[child]] >= rank[last]:
            break
        heap[at] = heap[child]
        at = child
    heap[at] = last
    return int(first)
