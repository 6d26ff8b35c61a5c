"""Compiled: take some requests out of a window of batches and put each back at its cheapest place, over and over.

A request here is filled whole in one batch, may hold its prompt, and then decodes in every batch until it is complete:
a fill, some holding and one stretch of decode steps. With all others fixed its cheapest place is found in one pass over
the window's batches: a stretch from t fits if the largest of u - b free(u) over its batches u is at most t - I - 1
(blocks of b tokens), and the largest over a sliding window is kept in a queue.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from csp.search._jit import compiled

NEVER = 1e300
_FULL = 1 << 60
_MOST_OUT = 64

Ints = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]


class Places(NamedTuple):
    """Requests and where they are: batch of the fill, and of the first decode step (one after the fill if none).

    Attributes
    ----------
    area, moment
        Sums of the blocks of all decode steps, and of blocks times the step's number from 0.
    earliest
        First batch in which the request may be filled.
    """

    inputs: Ints
    outputs: Ints
    fill: Ints
    decode: Ints
    area: Reals
    moment: Reals
    earliest: Ints


class Sums(NamedTuple):
    """Per batch, over requests: blocks after it, fills, decode steps, tokens."""

    used: Ints
    fills: Ints
    decodes: Ints
    tokens: Ints


class Limits(NamedTuple):
    """What a batch may hold."""

    blocks: int
    block_size: int
    tokens: int
    entries: int


class Prices(NamedTuple):
    """Ticks: the flags of a batch; and per block ``base + slope t`` in batch t, which draws requests to one end."""

    batch: float
    prefill_batch: float
    decode_batch: float
    base: float
    slope: float


class Scratch(NamedTuple):
    """Memory for `cheapest`: values, decode starts, flags, and a queue of (batch, key)."""

    value: Reals
    start: Ints
    flags: Reals
    queue: Ints


@compiled
def put(i: int, sign: int, places: Places, sums: Sums, limits: Limits, prices: Prices) -> tuple[float, float]:
    """Add a request (1) or take it out (-1); ticks of the flags that come with it, and of its blocks."""
    used, fills, decodes, tokens = sums.used, sums.fills, sums.decodes, sums.tokens
    base, slope, block = prices.base, prices.slope, limits.block_size
    inputs, steps, at, first = places.inputs[i], places.outputs[i] - 1, places.fill[i], places.decode[i]
    blocks = (inputs + block - 1) // block
    if sign < 0:
        fills[at] -= 1
    flags = prices.prefill_batch if fills[at] == 0 else 0.0
    flags += prices.batch if fills[at] + decodes[at] == 0 else 0.0
    if sign > 0:
        fills[at] += 1
    tokens[at] += sign * inputs
    priced = 0.0
    for t in range(at, max(first, at + 1) if steps > 0 else at + 1):
        used[t] += sign * blocks
        priced += (base + slope * t) * blocks
    for t in range(first, first + steps):
        if sign < 0:
            decodes[t] -= 1
        if decodes[t] == 0:
            flags += prices.decode_batch + (prices.batch if fills[t] == 0 else 0.0)
        if sign > 0:
            decodes[t] += 1
        tokens[t] += sign
        used[t] += sign * ((inputs + t - first + block) // block)
    return flags, priced + (base + slope * first) * places.area[i] + slope * places.moment[i]


@compiled
def cheapest(
    i: int, low: int, high: int, places: Places, sums: Sums, limits: Limits, prices: Prices, scratch: Scratch
) -> bool:
    """Write the cheapest place of a request that is out, within batches low to high - 1; False if there is none."""
    used, fills, decodes, tokens = sums.used, sums.fills, sums.decodes, sums.tokens
    value, start, flags, queue = scratch.value, scratch.start, scratch.flags, scratch.queue
    capacity, block, budget, slots = limits.blocks, limits.block_size, limits.tokens, limits.entries
    batch, prefill, base, slope = prices.batch, prices.prefill_batch, prices.base, prices.slope
    inputs, steps, area = places.inputs[i], places.outputs[i] - 1, places.area[i]
    blocks, fixed = (inputs + block - 1) // block, slope * places.moment[i]
    low = max(low, places.earliest[i])
    if high <= low:
        return False
    value[high] = NEVER if steps > 0 else 0.0
    flags[high] = 0.0
    best, at, front, back = NEVER, -1, 0, 0
    for t in range(high - 1, low - 1, -1):
        entries, free, price = fills[t] + decodes[t], capacity - used[t], base + slope * t
        opening = 0.0 if entries > 0 else batch
        open_slot = entries < slots
        then = value[t + 1] if steps > 0 else 0.0
        if blocks <= free and open_slot and tokens[t] + inputs <= budget and then < NEVER:
            here = opening + (prefill if fills[t] == 0 else 0.0) + price * blocks + then
            if here < best:
                best, at = here, t
        if steps == 0:
            continue
        flags[t] = flags[t + 1] + (0.0 if decodes[t] > 0 else prices.decode_batch + opening)
        key = t - block * free if open_slot and tokens[t] < budget else _FULL
        while back > front and queue[back - 1, 1] <= key:
            back -= 1
        queue[back, 0], queue[back, 1] = t, key
        back += 1
        while queue[front, 0] >= t + steps:
            front += 1
        value[t], start[t] = NEVER, -1
        if t + steps <= high and queue[front, 1] <= t - inputs - 1:
            value[t], start[t] = flags[t] - flags[t + steps] + (base + slope * t) * area + fixed, t
        if blocks <= free and price * blocks + value[t + 1] < value[t]:
            value[t], start[t] = price * blocks + value[t + 1], start[t + 1]
    if at < 0:
        return False
    places.fill[i] = at
    places.decode[i] = start[at + 1] if steps > 0 else at + 1
    return True


@compiled
def chosen(order: Ints, most: int, wide: int, out: Ints, random: np.random.Generator) -> int:
    """Pick requests filled near each other into ``out``; how many. ``order`` is by batch of the fill."""
    n = len(order)
    rank = int(random.integers(0, n))
    number = min(n, 1 + int(random.integers(0, most)))
    reach = int(1 + random.integers(0, wide))
    out[0] = order[rank]
    count = 1
    for _ in range(8 * number):
        if count == number:
            break
        other = order[max(0, min(n - 1, rank + int(random.integers(-reach, reach + 1))))]
        fresh = True
        for p in range(count):
            fresh = fresh and out[p] != other
        if fresh:
            out[count] = other
            count += 1
    return count


@compiled
def arrange(out: Ints, count: int, places: Places, random: np.random.Generator) -> None:
    """The order in which they are put back: largest area first, largest peak first, or any."""
    way = random.random()
    for p in range(count - 1, 0, -1):
        q = int(random.integers(0, p + 1))
        out[p], out[q] = out[q], out[p]
    if way > 0.6:
        return
    for p in range(1, count):
        for q in range(p, 0, -1):
            a, b = out[q - 1], out[q]
            if way < 0.4:
                swap = places.area[a] < places.area[b]
            else:
                swap = places.inputs[a] + places.outputs[a] < places.inputs[b] + places.outputs[b]
            if not swap:
                break
            out[q - 1], out[q] = b, a


@compiled
def anneal(
    order: Ints, places: Places, sums: Sums, limits: Limits, prices: Prices, moves: int, hot: float, cold: float,
    most: int, wide: int, reach: int, now: float, best: float, best_fill: Ints, best_decode: Ints,
    random: np.random.Generator,
) -> tuple[float, float]:  # fmt: skip
    """Simulated annealing in place; ticks of flags now and at the best, whose places are written."""
    last = len(sums.used)
    scratch = Scratch(np.empty(last + 1), np.empty(last + 1, np.int64), np.empty(last + 1),
                      np.empty((last + 1, 2), np.int64))  # fmt: skip
    out, was = np.empty(_MOST_OUT, np.int64), np.empty((_MOST_OUT, 2), np.int64)
    for move in range(moves):
        heat = hot * (cold / hot) ** (move / moves)
        count = chosen(order, min(most, _MOST_OUT), wide, out, random)
        arrange(out, count, places, random)
        low, high, flags, blocks = last, 0, 0.0, 0.0
        for p in range(count):
            i = out[p]
            was[p, 0], was[p, 1] = places.fill[i], places.decode[i]
            less = put(i, -1, places, sums, limits, prices)
            flags, blocks = flags - less[0], blocks - less[1]
            low, high = min(low, places.fill[i]), max(high, places.decode[i] + places.outputs[i] - 1)
        low = max(0, low - int(random.integers(0, reach)))
        high = min(last, max(high, low + 1) + int(random.integers(0, reach)))
        placed, worst = 0, heat * -np.log(1.0 - random.random())
        for p in range(count):
            if flags + blocks > worst or not cheapest(out[p], low, high, places, sums, limits, prices, scratch):
                break
            more = put(out[p], 1, places, sums, limits, prices)
            flags, blocks = flags + more[0], blocks + more[1]
            placed += 1
        if placed == count and flags + blocks <= worst:
            now += flags
            if now < best - 0.5:
                best = now
                best_fill[:], best_decode[:] = places.fill, places.decode
            continue
        for p in range(placed):
            put(out[p], -1, places, sums, limits, prices)
        for p in range(count):
            places.fill[out[p]], places.decode[out[p]] = was[p, 0], was[p, 1]
            put(out[p], 1, places, sums, limits, prices)
    return now, best
