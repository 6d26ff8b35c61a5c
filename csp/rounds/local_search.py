"""Schedules in rounds: orders of requests, each started as early as it fits or later, improved by simulated annealing.

Orders alone are not enough. Whoever starts earlier also holds more in every later round, so that a request started as
early as it fits can keep others out: of (1, 3), (1, 6), (2, 6), (2, 3) with M = 7 every order totals at least 29 and
one with a delay 28. Hence a delay per request, zero for most.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

_STEPS_AT_ONCE, _PLACED_AT_ONCE = 20_000, 2_000_000
"""Steps of an annealing run, and requests placed in one, at most."""
_MOST_DELAY = 12
_DELAYING = 0.3
"""Of the steps of every other run."""


def start_rounds(
    requests: Sequence[tuple[int, int]], memory: int, order: Sequence[int], delays: Sequence[int] | None = None
) -> tuple[int, list[int]]:
    """(sum of completion rounds, start of each request) of an order.

    Parameters
    ----------
    delays
        Rounds after the earliest start from which each request looks again; none by default.

    >>> start_rounds([(2, 3), (2, 1)], 5, [1, 0])
    (4, [0, 0])
    >>> start_rounds([(2, 3), (2, 1)], 5, [1, 0], [0, 1])
    (5, [0, 1])
    """
    from csp.rounds._kernels import earliest_fit

    inputs, outputs = _arrays(requests)
    waits = np.zeros(len(requests), np.int64) if delays is None else np.array(delays, np.int64)
    used, starts = np.zeros(int(2 * outputs.sum() + waits.sum()) + 2, np.int64), np.zeros(len(requests), np.int64)
    total = earliest_fit(np.array(order, np.int64), waits, inputs, outputs, memory, used, starts)
    return int(total), [int(t) for t in starts]


def improve(
    requests: Sequence[tuple[int, int]], memory: int, order: Sequence[int], *, runs: int, seed: int,
    found: Callable[[int], None] = lambda total: None, stopped: Callable[[], bool] = lambda: False,
) -> tuple[int, list[int]]:  # fmt: skip
    """The best (sum of completion rounds, starts) after some annealing runs, each from the best so far.

    Parameters
    ----------
    found
        Told the total of each improvement.
    """
    from csp.rounds._kernels import anneal

    inputs, outputs = _arrays(requests)
    n = len(requests)
    used = np.zeros(int(outputs.sum()) * 2 + n * _MOST_DELAY + 2, np.int64)
    generator = np.random.default_rng(seed)
    best_order, best_delays = np.array(order, np.int64), np.zeros(n, np.int64)
    best, _ = start_rounds(requests, memory, order)
    hot, steps = max(2.0, best / n / 10), min(_STEPS_AT_ONCE, _PLACED_AT_ONCE // n)
    for run in range(runs):
        if stopped():
            break
        heat, delaying = (hot, 0.0) if run % 2 == 0 else (hot / 4, _DELAYING)
        total, tried, delays = anneal(best_order, best_delays, inputs, outputs, memory, used, steps, heat, 0.5,
                                      delaying, _MOST_DELAY, generator)  # fmt: skip
        if total < best:
            best, best_order, best_delays = int(total), tried, delays
            found(best)
    return start_rounds(requests, memory, best_order.tolist(), best_delays.tolist())


def _arrays(requests: Sequence[tuple[int, int]]) -> tuple[Any, Any]:
    return (np.array([i for i, _ in requests], np.int64), np.array([o for _, o in requests], np.int64))
