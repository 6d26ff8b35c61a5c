"""Compiled: a request's first fill in chunks over the batches before its first decode step, as cheaply as possible.

With all else fixed that is a shortest path over (batch, KVs filled) between some chosen numbers of KVs, under any cost
that is a sum over operator groups of the largest of some affine pieces.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from csp.search._jit import compiled

_NEVER = 1e300

Ints = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]


class Batches(NamedTuple):
    """Sums over requests.

    Attributes
    ----------
    pieces
        ``[batch, piece]``: ticks of each affine piece of the cost.
    used, fills, entries, tokens
        Per batch: blocks after it, prefills, prefills and decode steps, tokens.
    """

    pieces: Reals
    used: Ints
    fills: Ints
    entries: Ints
    tokens: Ints


class Rates(NamedTuple):
    """Per piece, ticks of each feature; and what a batch may hold.

    Attributes
    ----------
    last
        Per operator group, the piece after its last.
    """

    batch: Reals
    prefill_batch: Reals
    n_prefill: Reals
    tokens: Reals
    square: Reals
    reads: Reals
    last: Ints
    capacity: int
    block: int
    budget: int
    slots: int


@compiled
def chunk_ticks(batches: Batches, rates: Rates, t: int, c: int, m: int) -> float:
    """What a chunk of c tokens after m adds to batch t."""
    pieces, last = batches.pieces, rates.last
    flag, opening = batches.fills[t] == 0, batches.entries[t] == 0
    before = after = 0.0
    p = 0
    for g in range(len(last)):
        least, most = -_NEVER, -_NEVER
        while p < last[g]:
            now = pieces[t, p]
            then = now + rates.n_prefill[p] + rates.tokens[p] * c + rates.square[p] * (c * c + 2 * c * m)
            then += rates.reads[p] * m
            if flag:
                then += rates.prefill_batch[p]
            if opening:
                then += rates.batch[p]
            least, most = max(least, now), max(most, then)
            p += 1
        before += least
        after += most
    return after - before


@compiled
def put(batches: Batches, rates: Rates, t: int, c: int, m: int, sign: int) -> None:
    """Add (1) a chunk to a batch or take it out (-1); its blocks apart."""
    if sign < 0:
        batches.fills[t] -= 1
        batches.entries[t] -= 1
        batches.tokens[t] -= c
    for p in range(batches.pieces.shape[1]):
        ticks = rates.n_prefill[p] + rates.tokens[p] * c + rates.square[p] * (c * c + 2 * c * m) + rates.reads[p] * m
        if batches.fills[t] == 0:
            ticks += rates.prefill_batch[p]
        if batches.entries[t] == 0:
            ticks += rates.batch[p]
        batches.pieces[t, p] += sign * ticks
    if sign > 0:
        batches.fills[t] += 1
        batches.entries[t] += 1
        batches.tokens[t] += c


@compiled
def put_way(batches: Batches, rates: Rates, low: int, way: Ints, sign: int) -> None:
    """Add or take out chunks and blocks; ``way`` has the KVs after each batch from ``low`` on."""
    m = 0
    for x in range(len(way)):
        if way[x] > m:
            put(batches, rates, low + x, way[x] - m, m, sign)
        m = way[x]
        batches.used[low + x] += sign * ((m + rates.block - 1) // rates.block)


@compiled
def way_ticks(batches: Batches, rates: Rates, low: int, way: Ints) -> float:
    """What the chunks of a request that is out would add."""
    total, m = 0.0, 0
    for x in range(len(way)):
        if way[x] > m:
            total += chunk_ticks(batches, rates, low + x, way[x] - m, m)
        m = way[x]
    return total


@compiled
def respread(batches: Batches, rates: Rates, low: int, way: Ints, levels: Ints) -> float:
    """Put a request's fill where it is cheapest; ticks gained. ``way`` is overwritten.

    Parameters
    ----------
    levels
        KVs at which the fill may be interrupted: 0, those of the present way, and all of the prompt at the end.
    """
    put_way(batches, rates, low, way, -1)
    n, width = len(levels), len(way)
    value = np.full((width + 1, n), _NEVER)
    then = np.zeros((width, n), np.int64)
    value[width, n - 1] = 0.0
    for x in range(width - 1, -1, -1):
        t = low + x
        free = (rates.capacity - batches.used[t]) * rates.block
        room = rates.budget - batches.tokens[t] if batches.entries[t] < rates.slots else 0
        for a in range(n):
            m = levels[a]
            if m > free:
                break
            best, to = value[x + 1, a], a
            for b in range(a + 1, n):
                if levels[b] > free or levels[b] - m > room:
                    break
                if value[x + 1, b] < best:
                    ticks = value[x + 1, b] + chunk_ticks(batches, rates, t, levels[b] - m, m)
                    if ticks < best:
                        best, to = ticks, b
            value[x, a], then[x, a] = best, to
    gain: float = way_ticks(batches, rates, low, way) - value[0, 0]
    if gain > 1.0:
        a = 0
        for x in range(width):
            a = then[x, a]
            way[x] = levels[a]
    put_way(batches, rates, low, way, 1)
    return gain
