"""Compiled loops over arrays of 64-bit integers. Ages count from 1: at age k a request holds I + k - 1 KVs."""

from __future__ import annotations

from typing import Any

import numpy as np

from csp.search._adam import MEAN, pace
from csp.search._jit import compiled

_SQUARE, _LEAST_SPREAD = 0.999, 0.01
"""Of Adam (`csp.search._adam`)."""


@compiled
def earliest_fit(order: Any, delays: Any, inputs: Any, outputs: Any, memory: int, used: Any, starts: Any) -> int:
    """Start each request of an order as early as it fits beside those before it; the sum of completion rounds.

    A request with a delay looks again from that many rounds after the earliest. ``used`` is overwritten with the KVs
    per round, ``starts`` with the rounds before which each request starts.
    """
    used[:] = 0
    total = 0
    for i in order:
        size, length = inputs[i], outputs[i]
        t, k, delay = 0, length, delays[i]
        while k > 0:
            oldest = memory - used[t + k] - size + 1
            if oldest >= k:
                k -= 1
            else:
                t, k = t + k - max(0, oldest), length
            if k == 0 and delay > 0:
                t, k, delay = t + delay, length, 0
        for k in range(1, length + 1):
            used[t + k] += size + k - 1
        starts[i] = t
        total += t + length
    return total


@compiled
def anneal(
    order: Any,
    delays: Any,
    inputs: Any,
    outputs: Any,
    memory: int,
    used: Any,
    steps: int,
    hot: float,
    cold: float,
    delaying: float,
    most_delay: int,
    random: Any,
) -> Any:
    """Simulated annealing over orders and delays; the best total, its order and delays.

    A step swaps two requests, moves one, or, with the probability ``delaying``, changes one delay.
    """  # fmt: skip
    n = len(order)
    starts = np.zeros(n, np.int64)
    now, wait = order.copy(), delays.copy()
    value = earliest_fit(now, wait, inputs, outputs, memory, used, starts)
    best, best_order, best_delays = value, now.copy(), wait.copy()
    for step in range(steps):
        heat = hot * (cold / hot) ** (step / steps)
        a, b = random.integers(0, n), random.integers(0, n)
        tried = now.copy()
        before = wait[a]
        if random.random() < delaying:
            later = before + 1 + int(random.exponential(2.0))
            wait[a] = min(most_delay, later) if before == 0 or random.random() < 0.3 else before // 2
        elif random.random() < 0.5:
            tried[a], tried[b] = now[b], now[a]
        elif a < b:
            tried[a:b] = now[a + 1 : b + 1]
            tried[b] = now[a]
        else:
            tried[b + 1 : a + 1] = now[b:a]
            tried[b] = now[a]
        other = earliest_fit(tried, wait, inputs, outputs, memory, used, starts)
        if other <= value or random.random() < np.exp((value - other) / heat):
            now, value = tried, other
            if value < best:
                best, best_order, best_delays = value, now.copy(), wait.copy()
        else:
            wait[a] = before
    return best, best_order, best_delays


@compiled
def prices(row_prices: Any, first_age: Any, inputs: Any, outputs: Any, rounds: int, out: Any) -> None:
    """Completion round plus the prices of the rows a start uses, for each type and start; 0 <= start < rounds.

    Rows: family 0 is memory (weight: KVs), family f > 0 counts requests of age ``first_age[f, type]`` or more (0: not
    in the family). ``row_prices`` is families x (rounds + 1), its column 0 unused; rounds beyond are free.
    """
    families = row_prices.shape[0]
    sums = np.zeros((families, rounds + 1), row_prices.dtype)
    moment = np.zeros(rounds + 1, row_prices.dtype)
    for f in range(families):
        for j in range(1, rounds + 1):
            sums[f, j] = sums[f, j - 1] + row_prices[f, j]
    for j in range(1, rounds + 1):
        moment[j] = moment[j - 1] + j * row_prices[0, j]
    for t in range(len(inputs)):
        length = outputs[t]
        for start in range(rounds):
            end = min(rounds, start + length)
            price = (inputs[t] - 1 - start) * (sums[0, end] - sums[0, start]) + moment[end] - moment[start]
            out[t, start] = price
        for f in range(1, families):
            age = first_age[f, t]
            if age == 0:
                continue
            for start in range(rounds - age + 1):
                out[t, start] += sums[f, min(rounds, start + length)] - sums[f, start + age - 1]


@compiled
def usage(best_start: Any, counts: Any, first_age: Any, inputs: Any, outputs: Any, rounds: int, out: Any) -> None:
    """What chosen starts use of each row."""
    out[:] = 0
    for t in range(len(inputs)):
        start, n = best_start[t], counts[t]
        for k in range(1, outputs[t] + 1):
            j = start + k
            if j > rounds:
                break
            out[0, j] += n * (inputs[t] + k - 1)
            for f in range(1, out.shape[0]):
                if first_age[f, t] and k >= first_age[f, t]:
                    out[f, j] += n


@compiled
def ascend(
    center: Any,
    point: Any,
    mean: Any,
    square: Any,
    first: int,
    steps: int,
    rate: float,
    best: float,
    right: Any,
    first_age: Any,
    inputs: Any,
    outputs: Any,
    counts: Any,
    rounds: int,
) -> float:
    """Some steps of Adam (Kingma, Ba 2015) from ``point``, the best row prices kept in ``center``; the best bound.

    ``point``, ``mean`` and ``square`` (first and second moment of slopes) go on where they are; ``first`` counts the
    steps before. Slopes are in parts of the right-hand sides.
    """  # fmt: skip
    families, types = len(right), len(inputs)
    out, used = np.zeros((types, rounds)), np.zeros((families, rounds + 1), np.int64)
    choice = np.zeros(types, np.int64)
    for n in range(first + 1, first + steps + 1):
        prices(point, first_age, inputs, outputs, rounds, out)
        value = 0.0
        for t in range(types):
            least, choice[t] = float(rounds + outputs[t]), rounds
            for start in range(rounds):
                price = out[t, start] + start + outputs[t]
                if price < least:
                    least, choice[t] = price, start
            value += counts[t] * least
        for f in range(families):
            value -= right[f] * point[f, 1:].sum()
        if value > best:
            best = value
            center[:] = point
        usage(choice, counts, first_age, inputs, outputs, rounds, used)
        early, early_square = 1 - MEAN**n, 1 - _SQUARE**n
        for f in range(families):
            for j in range(1, rounds + 1):
                g = used[f, j] / right[f] - 1
                move = rate / right[f] * pace(g, j, early, early_square, mean[f], square[f], _SQUARE, _LEAST_SPREAD)
                point[f, j] = max(0.0, point[f, j] + move)
    return best
