"""Compiled: within a window of batches, take some requests out and put each back at its cheapest way, over and over.

As `csp.search._ruin`, but a request's way is only opened between two batches: it starts from the state the way before
has led to (tokens generated, resident or not) and ends in the state from which the way after goes on. With all else
fixed that is a shortest path over (batch, tokens generated, resident), and the length of the schedule does not matter.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from csp.search._jit import compiled
from csp.search._ruin import DECODES, EVICTED, FILLS, HOLDS, WAITS, Cells, Grid, Ints, Rates, Reals

_NEVER = 1e300
_MOST_OUT = 32


class Span(NamedTuple):
    """First and last batch of each request in which it is processed."""

    first: Ints
    last: Ints


class Search(NamedTuple):
    """How windows are searched.

    Attributes
    ----------
    hot, cold
        First and last temperature, in ticks.
    base, slope
        Ticks per block in batch t: ``base + slope t``.
    widest, most
        Most batches of a window, and most requests taken out.
    """

    hot: float
    cold: float
    base: float
    slope: float
    widest: int
    most: int


@compiled
def state_at(row: Cells, outputs: int, t: int) -> tuple[int, int]:
    """Tokens generated before batch t, and 1 if resident then."""
    k = 0
    for u in range(t):
        if row[u] == FILLS or row[u] == DECODES:
            k += 1
    there = t > 0 and k < outputs and row[t - 1] != WAITS and row[t - 1] != EVICTED
    return k, 1 if there else 0


@compiled
def tally(
    grid: Grid, rates: Rates, i: int, low: int, high: int, k: int, sign: int, base: float, slope: float
) -> tuple[float, float]:
    """Add (1) or take away (-1) a request's part of a window.

    Returns
    -------
    Ticks of its entries and of the flags that come with it, and the price of its blocks.
    """
    used, fills, decodes, tokens = grid.used, grid.fills, grid.decodes, grid.tokens
    row, held, blocks = grid.action[i], rates.held[i], rates.blocks[i]
    total = priced = 0.0
    for t in range(low, high):
        a, size = row[t], 0
        if a == HOLDS:
            size = held[k]
        elif a == FILLS or a == DECODES:  # noqa: SIM109
            size = blocks[k]
            filled = 1 if a == FILLS else 0
            if sign < 0:
                fills[t] -= filled
                decodes[t] -= 1 - filled
            if fills[t] + decodes[t] == 0:
                total += rates.batch
            if filled == 1:
                total += rates.fill[i, k] + (rates.prefill_batch if fills[t] == 0 else 0)
                tokens[t] += sign * rates.length[i, k]
            else:
                total += rates.decode[i, k] + (rates.decode_batch if decodes[t] == 0 else 0)
                tokens[t] += sign
            if sign > 0:
                fills[t] += filled
                decodes[t] += 1 - filled
            k += 1
        used[t] += sign * size
        priced += (base + slope * t) * size
    return total, priced


@compiled
def values(
    grid: Grid, rates: Rates, i: int, low: int, high: int, k0: int, k1: int, end: int, base: float, slope: float,
    value: Reals,
) -> None:  # fmt: skip
    """Cheapest ticks from (batch - low, tokens - k0, resident) to the end state; ``end`` is 1 if resident there."""
    fill, decode, blocks, held, length = rates.fill[i], rates.decode[i], rates.blocks[i], rates.held[i], rates.length[i]
    used, fills, decodes, tokens = grid.used, grid.fills, grid.decodes, grid.tokens
    complete = k1 == rates.outputs[i]
    last = high - low
    value[last, : k1 - k0 + 1, :] = _NEVER
    value[last, k1 - k0, end] = 0.0
    if complete:
        value[last, k1 - k0, :] = 0.0
    for t in range(high - 1, low - 1, -1):
        x, room, left, entries = t - low, rates.capacity - used[t], rates.budget - tokens[t], fills[t] + decodes[t]
        opening = rates.batch if entries == 0 else 0
        may_fill = entries < rates.slots and (rates.hybrid or decodes[t] == 0)
        may_decode = entries < rates.slots and left >= 1 and (rates.hybrid or fills[t] == 0)
        price = base + slope * t
        for k in range(k0, k1 + 1):
            if k == k1 and complete:
                value[x, k - k0, :] = 0.0
                continue
            absent = value[x + 1, k - k0, 0]
            there = _NEVER
            if k > 0:
                there = absent if rates.evicts else _NEVER
                if held[k] <= room:
                    there = min(there, price * held[k] + value[x + 1, k - k0, 1])
            if k < k1 and blocks[k] <= room:
                then = value[x + 1, k + 1 - k0, 1] + price * blocks[k] + opening
                if may_fill and length[k] <= left:
                    absent = min(absent, then + fill[k] + (rates.prefill_batch if fills[t] == 0 else 0))
                if k > 0 and may_decode:
                    there = min(there, then + decode[k] + (rates.decode_batch if decodes[t] == 0 else 0))
            value[x, k - k0, 0], value[x, k - k0, 1] = absent, there


@compiled
def follow(
    grid: Grid, rates: Rates, i: int, low: int, high: int, k0: int, k1: int, resident: int, base: float, slope: float,
    value: Reals,
) -> None:  # fmt: skip
    """Write a cheapest way, read off the values."""
    row, complete = grid.action[i], k1 == rates.outputs[i]
    k = k0
    for t in range(low, high):
        x, price = t - low, base + slope * t
        here, absent = value[x, k - k0, resident], value[x + 1, k - k0, 0]
        if k == k1 and complete:
            row[t] = WAITS
        elif resident == 0:
            row[t] = WAITS if here == absent else FILLS
        elif rates.evicts and here == absent:
            row[t] = EVICTED
        elif rates.held[i, k] <= rates.capacity - grid.used[t] and (
            here == price * rates.held[i, k] + value[x + 1, k - k0, 1]
        ):
            row[t] = HOLDS
        else:
            row[t] = DECODES
        if row[t] == FILLS or row[t] == DECODES:
            k += 1
            resident = 1
        elif row[t] == EVICTED:
            resident = 0


@compiled
def picked(span: Span, low: int, high: int, most: int, out: Ints, random: np.random.Generator) -> int:
    """Pick requests that are under way in a window into ``out``; how many."""
    n = len(span.first)
    number, count = 1 + int(random.integers(0, most)), 0
    start = int(random.integers(0, n))
    stride = 1 + int(random.integers(0, n))
    for step in range(n):
        i = (start + step * stride) % n
        if span.first[i] >= high or span.last[i] < low:
            continue
        fresh = True
        for p in range(count):
            fresh = fresh and out[p] != i
        if fresh:
            out[count] = i
            count += 1
            if count == number:
                break
    return count


@compiled
def update(span: Span, row: Cells, i: int) -> None:
    """Note anew where a request is first and last processed."""
    t = 0
    while row[t] != FILLS:
        t += 1
    span.first[i] = t
    t = len(row) - 1
    while row[t] != FILLS and row[t] != DECODES:
        t -= 1
    span.last[i] = t


@compiled
def copy(grid: Grid, sums: Ints, low: int, high: int, keep: bool) -> None:
    """Keep a window's sums, or write back what was kept."""
    for t in range(low, high):
        if keep:
            sums[0, t], sums[1, t], sums[2, t], sums[3, t] = (
                grid.used[t],
                grid.fills[t],
                grid.decodes[t],
                grid.tokens[t],
            )
        else:
            grid.used[t], grid.fills[t], grid.decodes[t], grid.tokens[t] = (
                sums[0, t],
                sums[1, t],
                sums[2, t],
                sums[3, t],
            )


@compiled
def anneal(
    grid: Grid, rates: Rates, span: Span, search: Search, moves: int, now: float, best: float, best_action: Cells,
    random: np.random.Generator,
) -> tuple[float, float]:  # fmt: skip
    """Simulated annealing in place; ticks above the start now and at the best, whose actions are written."""
    last, tokens, widest = grid.action.shape[1], rates.blocks.shape[1], search.widest
    base, slope = search.base, search.slope
    value = np.empty((widest + 1, tokens + 1, 2))
    out, was, sums = (
        np.empty(_MOST_OUT, np.int64),
        np.empty((_MOST_OUT, widest), np.int8),
        np.empty((4, last), np.int64),
    )
    for move in range(moves):
        heat = search.hot * (search.cold / search.hot) ** (move / moves)
        width = min(last, 2 + int(random.integers(0, max(1, widest - 1))))
        low = int(random.integers(0, last - width + 1))
        high = low + width
        count = picked(span, low, high, search.most, out, random)
        for p in range(count):
            was[p, :width] = grid.action[out[p], low:high]
        copy(grid, sums, low, high, True)
        change, worst = 0.0, heat * -np.log(1.0 - random.random())
        then = now
        for p in range(2 * count):
            i, sign = out[p % count], -1 if p < count else 1
            row, outputs = was[p % count], rates.outputs[i]
            k0, r0 = state_at(grid.action[i], outputs, low)
            if sign > 0:
                k1, r1 = state_at(row[:width], outputs - k0, width)
                k1 += k0
                if change > worst:
                    break
                values(grid, rates, i, low, high, k0, k1, r1, base, slope, value)
                if value[0, 0, r0] >= _NEVER / 2:
                    change = _NEVER
                    break
                follow(grid, rates, i, low, high, k0, k1, r0, base, slope, value)
            ticks, priced = tally(grid, rates, i, low, high, k0, sign, base, slope)
            change += sign * (ticks + priced)
            then += sign * ticks
        if change > worst:
            for p in range(count):
                grid.action[out[p], low:high] = was[p, :width]
            copy(grid, sums, low, high, False)
            continue
        now = then
        for p in range(count):
            update(span, grid.action[out[p]], out[p])
        if now < best - 0.5:
            best = now
            best_action[:, :] = grid.action
    return now, best
