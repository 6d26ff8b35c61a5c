"""Compiled loops of the state relaxation (`csp.rounds.states`): 64-bit integers, so that every value is exact.

A *pair* is (peak, rounds still to come after this one); pairs of one peak are adjacent, by rounds to come from 0 on.
``prices`` is pairs x knots; knots lie ``spacing`` rounds apart, the first before round 1 (position 0). The price in a
round between two knots is the weighted sum of theirs, weights in ``spacing`` parts.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from csp.search._adam import MEAN, pace
from csp.search._jit import compiled

_SQUARE, _LEAST_SPREAD = 0.999, 0.01
"""Of Adam (`csp.search._adam`)."""

_IMPOSSIBLE = -(2**60)


@compiled
def cheapest_ends(
    prices: Any, spacing: int, unit: int, peak_of: Any, outputs: Any, counts: Any, offset: Any, longest: Any, ends: Any
) -> int:
    """Sum over requests of their cheapest completion: its round x ``unit`` + prices on the way; fills ``ends``."""
    knots = prices.shape[1]
    rounds = (knots - 1) * spacing
    total = 0
    for p in range(len(longest)):
        paid = np.zeros(rounds + longest[p] + 1, np.int64)
        for r in range(longest[p]):
            line = prices[offset[p] + r]
            for k in range(knots - 1):
                price, change = line[k] * spacing, line[k + 1] - line[k]
                for j in range(k * spacing + 1, (k + 1) * spacing + 1):
                    price += change
                    paid[j + r] += price
            for i in range(len(outputs)):
                if peak_of[i] == p and outputs[i] == r + 1:
                    best, ends[i] = (rounds + outputs[i]) * unit, rounds + outputs[i]
                    for end in range(outputs[i], rounds + outputs[i]):
                        if paid[end] + end * unit < best:
                            best, ends[i] = paid[end] + end * unit, end
                    total += counts[i] * best
    return total


@compiled
def dearest_state(
    price: Any,
    memory: int,
    smallest: int,
    peaks: Any,
    offset: Any,
    longest: Any,
    copies: Any,
    room: Any,
    taken: Any,
    chosen: Any,
) -> int:
    """The largest sum of prices over sets of pairs that can run together to their ends; ``chosen`` counts its pairs.

    From the largest number of rounds to come down to 0: ``room[c, w]`` = best with c requests that hold w KVs in that
    later round. A round earlier each of them holds one KV less; who completes in the round joins with its peak.
    """  # fmt: skip
    room[:] = _IMPOSSIBLE
    room[0, 0] = 0
    most = 0
    for r in range(longest.max() - 1, -1, -1):
        for c in range(1, most + 1):
            for w in range(c * (smallest + r), memory + 1 - c):
                room[c, w] = room[c, w + c]
            room[c, memory + 1 - c :] = _IMPOSSIBLE
        taken[r, : most + 1] = -1
        limit = memory // (smallest + r)
        for p in range(len(peaks)):
            if longest[p] <= r or price[offset[p] + r] <= 0:
                continue
            gain, peak = price[offset[p] + r], peaks[p]
            for _ in range(min(copies[offset[p] + r], memory // peak)):
                for c in range(min(most, limit - 1), -1, -1):
                    for w in range(c * (smallest + r), memory - peak + 1):
                        value = room[c, w] + gain
                        if value > 0 and value > room[c + 1, w + peak]:
                            if c == most:
                                most += 1
                                taken[r, most] = -1
                            room[c + 1, w + peak] = value
                            taken[r, c + 1, w + peak] = p
    best, c, w = 0, 0, 0
    for at in range(most + 1):
        for held in range(memory + 1):
            if room[at, held] > best:
                best, c, w = room[at, held], at, held
    chosen[:] = 0
    for r in range(longest.max()):
        while c > 0 and taken[r, c, w] >= 0:
            p = taken[r, c, w]
            chosen[offset[p] + r] += 1
            c, w = c - 1, w - peaks[p]
        w += c
    return best


@compiled
def bound(
    prices: Any,
    spacing: int,
    unit: int,
    memory: int,
    smallest: int,
    mass: Any,
    peak_of: Any,
    outputs: Any,
    counts: Any,
    peaks: Any,
    offset: Any,
    longest: Any,
    copies: Any,
    slope: Any,
) -> int:
    """The bound of some prices in parts of ``unit``; ``slope`` gets what a higher price of each pair and knot adds.

    ``mass`` is the weight of each knot over all rounds, in ``spacing`` parts.
    """  # fmt: skip
    pairs, knots = prices.shape
    ends, chosen = np.zeros(len(outputs), np.int64), np.zeros(pairs, np.int64)
    total = cheapest_ends(prices, spacing, unit, peak_of, outputs, counts, offset, longest, ends)
    slope[:] = 0
    for i in range(len(outputs)):
        for r in range(outputs[i]):
            k, rest = (ends[i] - r) // spacing, (ends[i] - r) % spacing
            if k < knots - 1 or (k == knots - 1 and rest == 0):
                slope[offset[peak_of[i]] + r, k] += counts[i] * (spacing - rest)
                if rest:
                    slope[offset[peak_of[i]] + r, k + 1] += counts[i] * rest
    most = memory // smallest + 1
    room, taken = np.empty((most + 1, memory + 1), np.int64), np.empty((longest.max(), most + 1, memory + 1), np.int16)
    for k in range(knots):
        price = prices[:, k].copy()
        total -= mass[k] * dearest_state(price, memory, smallest, peaks, offset, longest, copies, room, taken, chosen)
        for pair in range(pairs):
            slope[pair, k] = (slope[pair, k] - mass[k] * chosen[pair]) / max(1, mass[k])
    return total


@compiled
def ascend(
    prices: Any,
    point: Any,
    mean: Any,
    square: Any,
    first: int,
    steps: int,
    rate: float,
    best: int,
    parts: int,
    spacing: int,
    memory: int,
    smallest: int,
    mass: Any,
    peak_of: Any,
    outputs: Any,
    counts: Any,
    peaks: Any,
    offset: Any,
    longest: Any,
    copies: Any,
) -> int:
    """Some steps of Adam (Kingma, Ba 2015) from ``point``, the best prices kept in ``prices``; the best bound.

    ``point``, ``mean`` and ``square`` (prices in rounds, first and second moment of their slopes) go on where they are;
    ``first`` counts the steps before. ``parts`` a unit are what prices are rounded down to.
    """  # fmt: skip
    pairs, knots = point.shape
    rounded, slope = np.zeros((pairs, knots), np.int64), np.zeros((pairs, knots))
    for n in range(first + 1, first + steps + 1):
        for pair in range(pairs):
            for k in range(knots):
                rounded[pair, k] = np.int64(point[pair, k] * parts)
        value = bound(rounded, spacing, parts * spacing, memory, smallest, mass, peak_of, outputs, counts, peaks,
                      offset, longest, copies, slope)  # fmt: skip
        if value > best:
            best = value
            prices[:] = rounded
        early, early_square = 1 - MEAN**n, 1 - _SQUARE**n
        for pair in range(pairs):
            for k in range(knots):
                g = slope[pair, k]
                move = rate * pace(g, k, early, early_square, mean[pair], square[pair], _SQUARE, _LEAST_SPREAD)
                point[pair, k] = max(0.0, point[pair, k] + move)
    return best
