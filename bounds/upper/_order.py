"""Compiled: the order of prompts' fills, improved by moving one at a time to another place or batch nearby.

Items, each a whole prompt or a chunk of one, stand in a row that is cut into batches; a batch starts when the one
before has ended and everybody in it has arrived. What follows a change is timed anew until it ends when it did before,
which is soon where the engine is idle now and then.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bounds.upper._batch_times import batch_ticks
from csp.search._jit import compiled

Ints = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]
_HORIZON = 400
"""Items timed after a change before what follows is estimated, against the change."""


class Items(NamedTuple):
    """What is filled.

    Attributes
    ----------
    request, tokens, square, reads
        Features of the chunk.
    weight
        1 for the last chunk of a prompt, else 0.
    arrival
        In ticks.
    """

    request: Ints
    tokens: Ints
    square: Reals
    reads: Reals
    weight: Reals
    arrival: Reals


class Row(NamedTuple):
    """Items in order, whether each begins a batch, and the end of its batch in ticks."""

    item: Ints
    begins: Ints
    end: Reals


@compiled
def timed(
    row: Row, start: int, stop: int, horizon: int, items: Items, pieces: Reals, most_tokens: int, most: int, ends: Reals
) -> tuple[float, int]:
    """Time batches from position ``start`` on into ``ends``; what is lost, infinite if a batch holds too much.

    Also the position before which it is timed: after ``stop``, where a batch ends when it did, or ``horizon`` later;
    then whoever follows is taken to be late as well, but not early.
    """
    n = len(row.item)
    now = row.end[start - 1] if start > 0 else 0.0
    f = np.zeros(9)
    f[0] = f[1] = 1.0
    lost, at = 0.0, start
    while at < n:
        f[3] = f[5] = f[6] = f[7] = 0.0
        ready, upto = now, at
        while upto < n and (upto == at or row.begins[upto] == 0):
            i = row.item[upto]
            f[3], f[5], f[6], f[7] = f[3] + 1, f[5] + items.tokens[i], f[6] + items.square[i], f[7] + items.reads[i]
            ready = max(ready, items.arrival[i])
            upto += 1
        if f[3] > 1 and (f[5] > most_tokens or f[3] > most):
            return np.inf, upto
        now = ready + batch_ticks(pieces, f)
        for p in range(at, upto):
            lost += items.weight[row.item[p]] * now
            ends[p] = now
        at = upto
        if at > stop:
            if now == row.end[at - 1]:
                break
            if at > stop + horizon:
                lost += max(0.0, now - row.end[at - 1]) * (n - at)
                break
    return lost, at


@compiled
def shift(row: Row, p: int, q: int, begins: int, follows: int) -> None:
    """Move the item at p to q; whether it and its new follower begin batches (follower as it was if below 0)."""
    i, n = row.item[p], len(row.item)
    if row.begins[p] == 1 and p + 1 < n:
        row.begins[p + 1] = 1
    step = 1 if q > p else -1
    for at in range(p, q, step):
        row.item[at], row.begins[at] = row.item[at + step], row.begins[at + step]
    row.item[q], row.begins[q] = i, begins
    if q + 1 < n and follows >= 0:
        row.begins[q + 1] = follows
    row.begins[0] = 1


@compiled
def apart(row: Row, low: int, high: int, items: Items, only: int) -> bool:
    """Whether no two items of the batches from position ``low`` to ``high`` are of the same request.

    Only those of the request of item ``only`` are looked at, unless it is below 0.
    """
    n = len(row.item)
    if only >= 0 and items.weight[only] == 1.0 and items.reads[only] == 0.0:
        return True
    while low > 0 and row.begins[low] == 0:
        low -= 1
    while high + 1 < n and row.begins[high + 1] == 0:
        high += 1
    for a in range(low, high + 1):
        i = row.item[a]
        if (only >= 0 and i != only) or (items.weight[i] == 1.0 and items.reads[i] == 0.0):
            continue
        for b in range(low, high + 1):
            if a != b and items.request[i] == items.request[row.item[b]]:
                return False
    return True


@compiled
def improve(
    row: Row, items: Items, pieces: Reals, most_tokens: int, most: int, moves: int, heat: float, reach: int,
    random: np.random.Generator,
) -> float:  # fmt: skip
    """Moves by simulated annealing at one temperature, in place; what is lost in all, in ticks."""
    n = len(row.item)
    item, begins, ends = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n)
    total = 0.0
    for _ in range(moves):
        p = int(random.integers(0, n))
        q = max(0, min(n - 1, p + int(random.integers(-reach, reach + 1))))
        low, high = max(0, min(p, q) - 1), min(n - 1, max(p, q) + 1)
        item[low : high + 1], begins[low : high + 1] = row.item[low : high + 1], row.begins[low : high + 1]
        moved = row.item[p] if p != q else -1
        if not apart(row, low, high, items, moved):
            continue
        if p == q:
            row.begins[p] = 1 - row.begins[p] if p else 1
        else:
            way = int(random.integers(0, 4))
            shift(row, p, q, int(way != 0), (-1, 1, 0, -1)[way])
        start = low
        while start > 0 and row.begins[start] == 0:
            start -= 1
        lost, upto = timed(row, start, high, _HORIZON, items, pieces, most_tokens, most, ends)
        for at in range(start, upto):
            was = item[at] if low <= at <= high else row.item[at]
            lost -= items.weight[was] * row.end[at]
        if lost < heat * -np.log(1.0 - random.random()) and apart(row, low, high, items, moved):
            if upto < n and ends[upto - 1] != row.end[upto - 1]:
                full, upto = timed(row, start, high, n, items, pieces, most_tokens, most, ends)
                lost = full
                for at in range(start, upto):
                    was = item[at] if low <= at <= high else row.item[at]
                    lost -= items.weight[was] * row.end[at]
            row.end[start:upto] = ends[start:upto]
            total += lost
        else:
            row.item[low : high + 1], row.begins[low : high + 1] = item[low : high + 1], begins[low : high + 1]
    return total
