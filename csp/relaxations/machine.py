"""One machine with arrivals, smallest volume first: what its time is worth, and the least worth at such prices."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from functools import cache

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def machine_price(volume: Floats, arrival: Floats, count: Floats) -> tuple[Floats, Floats]:
    """Knots of pi where the smallest volume released goes first on one machine; requests ``count`` times, sorted.

    While a request is served pi falls by 1 / volume; where it was interrupted, t + volume pi is the same before and
    after.
    """
    at: list[float] = []
    price: list[float] = []
    worth: dict[int, float] = {}
    now, pi = math.inf, 0.0
    for start, end, i in reversed(_turns(volume, arrival, count)):
        if end < now:
            at += [now, end] if at else [end]
            price += [0.0, 0.0] if price else [0.0]
            pi = 0.0
        right = max(0.0, (worth[i] - end) / volume[i]) if i in worth else pi
        if right != pi:
            at.append(end)
            price.append(right)
        pi = right + (end - start) / float(volume[i])
        worth[i] = start + float(volume[i]) * pi
        at.append(start)
        price.append(pi)
        now = start
    return np.array(at[::-1]), np.array(price[::-1])


def _turns(volume: Floats, arrival: Floats, count: Floats) -> list[tuple[float, float, int]]:
    """(start, end, request) of every turn on the machine; ``count`` equal ones are one of the same price."""
    times = [*arrival.tolist(), math.inf]
    left = (volume * count).tolist()
    waiting: list[tuple[float, int]] = []
    turns: list[tuple[float, float, int]] = []
    now, at, n = 0.0, 0, len(arrival)
    while at < n or waiting:
        if not waiting:
            now = max(now, times[at])
        while times[at] <= now:
            heapq.heappush(waiting, (float(volume[at]), at))
            at += 1
        i = waiting[0][1]
        end = min(now + left[i], times[at])
        left[i] = left[i] - (end - now) if end < now + left[i] else 0.0
        if not left[i]:
            heapq.heappop(waiting)
        if turns and turns[-1][2] == i and turns[-1][1] == now:
            turns[-1] = turns[-1][0], end, i
        else:
            turns.append((now, end, i))
        now = end
    return turns


def _evaluate(at: Floats, values: Floats, kind: Ints, arrival: Floats, count: Floats, rows: Floats) -> float:
    """See `least_worth`; blocks of knots whose least values cannot do better are skipped."""
    knots = len(at)
    block = max(8, int(math.sqrt(knots / 4)))
    least = np.empty((knots // block + 1, 4))
    for b in range(len(least)):
        for c in range(4):
            least[b, c] = np.inf
            for j in range(b * block, min(knots, (b + 1) * block)):
                least[b, c] = min(least[b, c], values[j, c])
    total = 0.0
    here = np.empty(4)
    for r in range(len(kind)):
        first = np.searchsorted(at, arrival[r], side="right")
        here[:] = 0.0
        here[1] = 1.0
        if 0 < first < knots:
            x = (arrival[r] - at[first - 1]) / (at[first] - at[first - 1])
            here[:] = (1 - x) * values[first - 1] + x * values[first]
        last_best = first
        for g in range(rows.shape[1]):
            share, work, own, company, taken = rows[kind[r], g]
            if share == 0.0:
                continue
            best = arrival[r] + work * here[0] + own * here[1] + company * here[2] + taken * here[3]
            if last_best < knots:
                v = values[last_best]
                best = min(best, at[last_best] + work * v[0] + own * v[1] + company * v[2] + taken * v[3])
            j = first
            while j < knots and at[j] < best:
                if j % block == 0:
                    v = least[j // block]
                    if at[j] + work * v[0] + own * v[1] + company * v[2] + taken * v[3] >= best:
                        j += block
                        continue
                v = values[j]
                worth = at[j] + work * v[0] + own * v[1] + company * v[2] + taken * v[3]
                if worth < best:
                    best, last_best = worth, j
                j += 1
            total += count[r] * share * best
    return total


@cache
def least_worth() -> Callable[..., float]:
    """Function of (knots, their prices, and per request kind, arrival, count; rows per kind), compiled.

    Sum over requests and rows (share, terms) of count share x, x the least of t + prices(t) . terms from the arrival
    on; prices are linear between knots, after the last 0, 1, 0, 0.
    """
    import numba

    compiled: Callable[..., float] = numba.njit(cache=True)(_evaluate)
    return compiled
