"""Fairness among requests: slowdowns, Jain's index, and who was overtaken."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sim.cost.model import Features
from sim.cost.runs import RunTimer
from sim.replay import Replay

Floats = npt.NDArray[np.float64]


def slowdowns(replay: Replay, timer: RunTimer) -> Floats:
    """E2E of every completed request over its time alone on the machine."""
    budget = replay.instance.token_budget
    alone: dict[tuple[int, int], int] = {}
    values = []
    for request, e2e in zip(replay.instance.requests, replay.e2e_ticks(), strict=True):
        if e2e is None:
            continue
        lengths = (request.input_tokens, request.output_tokens)
        if lengths not in alone:
            alone[lengths] = alone_ticks(*lengths, budget, timer)
        values.append(e2e / alone[lengths] if alone[lengths] else 1.0)
    return np.array(values)


def alone_ticks(input_tokens: int, output_tokens: int, token_budget: int, timer: RunTimer) -> int:
    """Time a request takes with the machine to itself: as few fill batches as C allows, then decode steps."""
    full, rest = divmod(input_tokens, token_budget)
    ticks = 0
    if full:
        c = token_budget
        first = Features(1, 1, 0, 1, 0, c, c * c, 0, 0)
        ticks += timer.total(first, Features(0, 0, 0, 0, 0, 0, 2 * c * c, c, 0), full)
    if rest:
        m = input_tokens - rest
        ticks += timer.total(Features(1, 1, 0, 1, 0, rest, rest * (rest + 2 * m), m, 0), _NOTHING, 1)
    if output_tokens > 1:
        first = Features(1, 0, 1, 0, 1, 1, 0, 0, input_tokens)
        ticks += timer.total(first, Features(0, 0, 0, 0, 0, 0, 0, 0, 1), output_tokens - 1)
    return ticks


_NOTHING = Features(0, 0, 0, 0, 0, 0, 0, 0, 0)


def jain(values: Floats) -> float | None:
    """Jain's index, (sum x)^2 / (n sum x^2): 1 if all are equal, 1/n if one has everything; None of nothing.

    >>> jain(np.array([1.0, 1.0])), jain(np.array([1.0, 0.0]))
    (1.0, 0.5)
    """
    if not len(values):
        return None
    return float(values.sum() ** 2 / (len(values) * (values @ values)))


def inversions(replay: Replay) -> float | None:
    """Share of pairs whose later arrival (of equal ones the one listed later) got its first token earlier."""
    requests = replay.instance.requests
    order = sorted((i for i, t in enumerate(replay.first_token_ticks) if t is not None),
                   key=lambda i: requests[i].arrival_ns)  # fmt: skip
    pairs = len(order) * (len(order) - 1) // 2
    if not pairs:
        return None
    times = [replay.first_token_ticks[i] for i in order]
    # Ranks instead of ticks, which may be beyond 64 bits.
    ranks = {t: rank for rank, t in enumerate(sorted({t for t in times if t is not None}))}
    return count_inversions(np.array([ranks[t] for t in times if t is not None])) / pairs


def count_inversions(values: npt.NDArray[np.int64]) -> int:
    """Pairs out of order, by merge sort.

    >>> count_inversions(np.array([3, 1, 2, 2]))
    3
    """
    if len(values) <= 1:
        return 0
    half = len(values) // 2
    left, right = values[:half], values[half:]
    if len(values) <= 32:
        return int((left[:, None] > right[None, :]).sum()) + count_inversions(left) + count_inversions(right)
    across = half * len(right) - int(np.searchsorted(np.sort(left), right, "right").sum())
    return across + count_inversions(left) + count_inversions(right)
