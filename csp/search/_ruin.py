"""Compiled: take some requests out of a schedule and put each back at its cheapest place, over and over.

A schedule is kept on a grid of requests and batches. With all others fixed, the cheapest way of one request through the
batches is a shortest path over (batch, tokens generated, resident): whatever memory, token budget and slots the others
leave is free, and flags that they pay for anyway cost nothing. Batches in which nothing happens cost nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from csp.search._jit import compiled
from csp.waves._kernels import NEVER

WAITS, FILLS, DECODES, HOLDS, EVICTED = range(5)

Ints = npt.NDArray[np.int64]
Cells = npt.NDArray[np.int8]
Reals = npt.NDArray[np.float64]


class Grid(NamedTuple):
    """A schedule: what each request does in each batch, and sums over requests.

    Attributes
    ----------
    action
        ``[request, batch]``.
    used, fills, decodes, tokens
        Per batch: blocks after it, entries of both kinds, tokens.
    """

    action: Cells
    used: Ints
    fills: Ints
    decodes: Ints
    tokens: Ints


class Rates(NamedTuple):
    """Per request and tokens generated before, as in `csp.waves._kernels.Costs`; and what a batch may hold."""

    outputs: Ints
    fill: Ints
    decode: Ints
    blocks: Ints
    held: Ints
    length: Ints
    capacity: int
    budget: int
    slots: int
    batch: int
    prefill_batch: int
    decode_batch: int
    evicts: bool
    hybrid: bool


@compiled
def count(grid: Grid, rates: Rates, i: int, sign: int) -> int:
    """Add (1) or take away (-1) a request's part of the sums; its entries' ticks."""
    k, total = 0, 0
    for t in range(grid.action.shape[1]):
        a = grid.action[i, t]
        if a == HOLDS:
            grid.used[t] += sign * rates.held[i, k]
        elif a == FILLS:
            grid.used[t] += sign * rates.blocks[i, k]
            grid.fills[t] += sign
            grid.tokens[t] += sign * rates.length[i, k]
            total += rates.fill[i, k]
            k += 1
        elif a == DECODES:
            grid.used[t] += sign * rates.blocks[i, k]
            grid.decodes[t] += sign
            grid.tokens[t] += sign
            total += rates.decode[i, k]
            k += 1
    return total


@compiled
def flags(grid: Grid, rates: Rates) -> int:
    """Ticks of all flags."""
    total = 0
    for t in range(len(grid.used)):
        if grid.fills[t] + grid.decodes[t] > 0:
            total += rates.batch
        if grid.fills[t] > 0:
            total += rates.prefill_batch
        if grid.decodes[t] > 0:
            total += rates.decode_batch
    return total


@compiled
def insert(grid: Grid, rates: Rates, i: int, noise: Ints, value: Ints) -> bool:
    """Write the cheapest way of a request that is out; False if there is none. ``noise`` is a price per block."""
    last, outputs = grid.action.shape[1], rates.outputs[i]
    value[last, :outputs, :] = NEVER
    for t in range(last + 1):
        value[t, outputs, :] = 0
    for t in range(last - 1, -1, -1):
        low = max(0, outputs - (last - t))
        value[t, :low, :] = NEVER
        room = rates.capacity - grid.used[t]
        tokens = rates.budget - grid.tokens[t]
        entries = grid.fills[t] + grid.decodes[t]
        free = entries < rates.slots
        opening = rates.batch if entries == 0 else 0
        may_fill = free and (rates.hybrid or grid.decodes[t] == 0)
        may_decode = free and tokens >= 1 and (rates.hybrid or grid.fills[t] == 0)
        fill = opening + (rates.prefill_batch if grid.fills[t] == 0 else 0)
        decode = opening + (rates.decode_batch if grid.decodes[t] == 0 else 0)
        for k in range(low, min(outputs - 1, t) + 1):
            fits = rates.blocks[i, k] <= room
            then, apart = value[t + 1, k + 1, 1], value[t + 1, k, 0]
            extra = noise[t] * rates.blocks[i, k]
            best = apart
            if may_fill and fits and rates.length[i, k] <= tokens:
                best = min(best, fill + rates.fill[i, k] + extra + then)
            value[t, k, 0] = best
            best = NEVER
            if k > 0:
                if may_decode and fits:
                    best = decode + rates.decode[i, k] + extra + then
                if rates.held[i, k] <= room:
                    best = min(best, value[t + 1, k, 1] + noise[t] * rates.held[i, k])
                if rates.evicts:
                    best = min(best, apart)
            value[t, k, 1] = best
    if value[0, 0, 0] >= NEVER // 2:
        return False
    trace(grid, rates, i, noise, value)
    return True


@compiled
def trace(grid: Grid, rates: Rates, i: int, noise: Ints, value: Ints) -> None:
    """Read a cheapest way off the values."""
    k, resident, outputs = 0, 0, rates.outputs[i]
    for t in range(grid.action.shape[1]):
        grid.action[i, t] = WAITS
    for t in range(grid.action.shape[1]):
        if k == outputs:
            break
        here = value[t, k, resident]
        if resident == 0:
            if here == value[t + 1, k, 0]:
                continue
            grid.action[i, t] = FILLS
            k, resident = k + 1, 1
        elif rates.held[i, k] <= rates.capacity - grid.used[t] and (
            here == value[t + 1, k, 1] + noise[t] * rates.held[i, k]
        ):
            grid.action[i, t] = HOLDS
        elif here == value[t + 1, k, 0]:
            grid.action[i, t] = EVICTED
            resident = 0
        else:
            grid.action[i, t] = DECODES
            k += 1


@compiled
def chosen(grid: Grid, most: int, random: np.random.Generator, out: Ints) -> int:
    """Pick requests to take out: at random, or those who fill, or decode, in one batch; how many."""
    n, last = grid.action.shape
    out[:] = random.permutation(n)
    number = 1 + random.integers(0, min(most, n))
    way = random.random()
    if way < 0.5:
        return int(number)
    t = random.integers(0, last)
    front = 0
    for p in range(n):
        a = grid.action[out[p], t]
        if a == FILLS or (way > 0.75 and a != WAITS):
            out[front], out[p] = out[p], out[front]
            front += 1
            if front >= number:
                break
    return int(min(n, max(front, 1) + random.integers(0, 2)))


@compiled
def shift(action: Cells, t: int) -> None:
    """Open a batch in which nothing happens before batch t; the last one, in which nothing happened, goes."""
    for i in range(action.shape[0]):
        held = t > 0 and (action[i, t - 1] == FILLS or action[i, t - 1] == DECODES or action[i, t - 1] == HOLDS)
        again = False
        for u in range(t, action.shape[1]):
            if action[i, u] == FILLS:
                break
            if action[i, u] != WAITS:
                again = True
                break
        for u in range(action.shape[1] - 1, t, -1):
            action[i, u] = action[i, u - 1]
        action[i, t] = HOLDS if held and again else WAITS


@compiled
def recount(grid: Grid, rates: Rates) -> int:
    """All sums anew; the schedule's ticks."""
    grid.used[:], grid.fills[:], grid.decodes[:], grid.tokens[:] = 0, 0, 0, 0
    total = 0
    for i in range(grid.action.shape[0]):
        total += count(grid, rates, i, 1)
    return int(total + flags(grid, rates))


@compiled
def squeeze(grid: Grid) -> None:
    """Move batches in which nothing is processed to the end, where requests do nothing; evictions happen earlier."""
    n, last = grid.action.shape
    kept = 0
    for t in range(last):
        if grid.fills[t] + grid.decodes[t] == 0:
            for i in range(n):
                # An eviction moves into the next batch kept, where its request must not be processed.
                if grid.action[i, t] == EVICTED and t + 1 < last and grid.action[i, t + 1] == WAITS:
                    grid.action[i, t + 1] = EVICTED
            continue
        for i in range(n):
            grid.action[i, kept] = grid.action[i, t]
        kept += 1
    grid.action[:, kept:] = WAITS


@compiled
def leaning(grid: Grid) -> float:
    """Blocks used times the number of their batch."""
    total = 0.0
    for t in range(len(grid.used)):
        total += t * grid.used[t]
    return total


@compiled
def anneal(
    grid: Grid, rates: Rates, moves: int, hot: float, cold: float, most: int, noisy: float, drift: float,
    random: np.random.Generator,
) -> tuple[int, Cells]:  # fmt: skip
    """Simulated annealing by taking out and putting back; the least ticks found and its actions.

    ``drift`` is a price per block and batch of delay: schedules that lean to the front may lose a batch at the end.
    """
    n, last = grid.action.shape
    value = np.empty((last + 1, rates.blocks.shape[1] + 1, 2), np.int64)
    out, noise = np.zeros(n, np.int64), np.zeros(last, np.int64)
    now = recount(grid, rates)
    best, best_action = now, grid.action.copy()
    before = grid.action.copy()
    lean = drift * leaning(grid)
    for move in range(moves):
        heat = hot * (cold / hot) ** (move / moves)
        before[:, :] = grid.action
        if random.random() < 0.2 and grid.fills[last - 1] + grid.decodes[last - 1] == 0:
            shift(grid.action, int(random.integers(0, last)))
            recount(grid, rates)
        number = chosen(grid, most, random, out)
        for p in range(number):
            count(grid, rates, out[p], -1)
            grid.action[out[p], :] = WAITS
        for t in range(last):
            noise[t] = np.int64(noisy * random.random() + drift * t)
        placed = True
        for p in range(number):
            if not insert(grid, rates, out[p], noise, value):
                placed = False
                break
            count(grid, rates, out[p], 1)
        if placed:
            then = recount(grid, rates)
            leans = drift * leaning(grid)
            if random.random() < np.exp(min(0.0, (now + lean - then - leans) / heat)):
                now, lean = then, leans
                if random.random() < 0.1 or now < best:
                    squeeze(grid)
                    now = recount(grid, rates)
                    lean = drift * leaning(grid)
                if now < best:
                    best, best_action = now, grid.action.copy()
                continue
        grid.action[:, :] = before
        recount(grid, rates)
    return best, best_action
