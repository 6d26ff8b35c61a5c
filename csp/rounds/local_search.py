"""Schedules in rounds: orders of requests, each started as early as it fits, improved by simulated annealing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

_STEPS_AT_ONCE = 20_000


def start_rounds(requests: Sequence[tuple[int, int]], memory: int, order: Sequence[int]) -> tuple[int, list[int]]:
    """(sum of completion rounds, start of each request) of an order.

    >>> start_rounds([(2, 3), (2, 1)], 5, [1, 0])
    (4, [0, 0])
    """
    from csp.rounds._kernels import earliest_fit

    inputs, outputs = _arrays(requests)
    used, starts = np.zeros(int(outputs.sum()) * 2 + 2, np.int64), np.zeros(len(requests), np.int64)
    total = earliest_fit(np.array(order, np.int64), inputs, outputs, memory, used, starts)
    return int(total), [int(t) for t in starts]


def improve(
    requests: Sequence[tuple[int, int]], memory: int, order: Sequence[int], *, runs: int, seed: int,
    found: Callable[[int, list[int]], None] = lambda total, order: None, stopped: Callable[[], bool] = lambda: False,
) -> tuple[int, list[int]]:  # fmt: skip
    """The best (sum of completion rounds, order) after some annealing runs, each from the best so far.

    Parameters
    ----------
    found
        Told of each improvement.
    """
    from csp.rounds._kernels import anneal

    inputs, outputs = _arrays(requests)
    used = np.zeros(int(outputs.sum()) * 2 + 2, np.int64)
    generator = np.random.default_rng(seed)
    best_order = np.array(order, np.int64)
    best, _ = start_rounds(requests, memory, order)
    hot = max(2.0, best / len(requests) / 4)
    for run in range(runs):
        if stopped():
            break
        heat = hot if run % 2 == 0 else hot / 8
        total, tried = anneal(best_order, inputs, outputs, memory, used, _STEPS_AT_ONCE, heat, 0.3,
                              generator)  # fmt: skip
        if total < best:
            best, best_order = int(total), tried
            found(best, best_order.tolist())
    return best, best_order.tolist()


def _arrays(requests: Sequence[tuple[int, int]]) -> tuple[Any, Any]:
    return (np.array([i for i, _ in requests], np.int64), np.array([o for _, o in requests], np.int64))
