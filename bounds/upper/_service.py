"""Compiled: a service that knows all lengths, batch by batch, by a few rules.

Whoever runs is decoded in every batch. Every so many batches, or when nobody runs, requests that have arrived are
filled, least rank first, as long as tokens, slots and, looking ahead, memory allow; a few that do not fit are passed
over. Where one does not fit, those may be evicted that have far more left to do. Where a prompt does not fit beside the
decode steps, everybody else holds for a batch.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bounds.upper._batch_times import batch_ticks
from bounds.upper._queue import pop, push
from csp.search._jit import compiled

Ints = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]
MOST_OUT = 4
"""Evicted at once."""


class Requests(NamedTuple):
    """Sorted by arrival (in ticks)."""

    inputs: Ints
    outputs: Ints
    arrival: Reals


class Limits(NamedTuple):
    """What a batch may hold; ``kv`` in tokens of whole blocks."""

    kv: int
    block_size: int
    tokens: int
    entries: int


class Rules(NamedTuple):
    """How requests are admitted.

    Attributes
    ----------
    spacing
        Batches from one with fills to the next, unless more would have been filled but for tokens and ``hurry`` is 1.
    hurry
        See there.
    most, peaks
        At most so many run at a time, and the sum of their peaks.
    passed
        So many that do not fit are passed over.
    fill_tokens
        Filled in one batch, if more than one request.
    apart
        1 for batches that fill only.
    evict
        Evicted are those that have more than so many times as much left to do; 0 for none.
    """

    spacing: int
    hurry: int
    most: int
    peaks: int
    passed: int
    fill_tokens: int
    apart: int
    evict: float


class Running(NamedTuple):
    """Those that run, latest end first: last batch, KVs after batch t less t, and who."""

    end: Ints
    base: Ints
    name: Ints


class Log(NamedTuple):
    """What was done: (batch, request) of fills and evictions, and batches in which those that run hold."""

    fills: Ints
    evictions: Ints
    held: Ints


@compiled
def fits(run: Running, running: int, now: int, i: int, o: int, limits: Limits, peaks: int) -> bool:
    """Whether memory lasts if a request of which i tokens are to fill and o to generate is filled in batch ``now``.

    Of the last block of each request nothing is counted on, but anyone fits alone.
    """
    if running == 0:
        return True
    end, base, slack = run.end, run.base, limits.block_size - 1
    alive, bases, last, sum_of_peaks = 0, 0, now + o - 1, i + o - 1
    checked = False
    for r in range(running + 1):
        if not checked and (r == running or end[r] < last):
            checked = True
            if bases + alive * (last + slack) + i + o - 1 + slack > limits.kv:
                return False
        if r == running:
            break
        alive, bases, sum_of_peaks = alive + 1, bases + base[r], sum_of_peaks + base[r] + end[r]
        t = min(end[r], last)
        if bases + alive * (t + slack) + i + t - now + slack > limits.kv:
            return False
    return sum_of_peaks <= peaks


@compiled
def insert(run: Running, running: int, end: int, base: int, i: int) -> None:
    """One more runs."""
    at = running
    while at > 0 and run.end[at - 1] < end:
        run.end[at], run.base[at], run.name[at] = run.end[at - 1], run.base[at - 1], run.name[at - 1]
        at -= 1
    run.end[at], run.base[at], run.name[at] = end, base, i


@compiled
def remove(run: Running, running: int, at: int) -> None:
    """One less runs."""
    for r in range(at, running - 1):
        run.end[r], run.base[r], run.name[r] = run.end[r + 1], run.base[r + 1], run.name[r + 1]


@compiled
def hold(run: Running, running: int, batches: int) -> None:
    """Those that run hold for some batches."""
    for r in range(running):
        run.end[r] += batches
        run.base[r] -= batches


@compiled
def make_room(
    run: Running, running: int, now: int, step: int, i: int, o: int, limits: Limits, peaks: int, rank: Reals,
    outputs: Ints, filled: Ints, above: float, out: Ints,
) -> int:  # fmt: skip
    """Take out those with most left to do, if it is more than ``above``, until a request fits; how many, 0 if in vain.

    ``step`` is the batch of their next decode step, ``now`` or the one after; ``out`` has a row (request, end, base)
    for each.
    """
    count = 0
    while count < MOST_OUT:
        worst, at = above, -1
        for r in range(running - count):
            j = run.name[r]
            left = rank[j] * (run.end[r] - step + 1) / outputs[j]
            if left > worst and filled[j] < now and run.base[r] + step <= limits.tokens:
                worst, at = left, r
        if at < 0:
            break
        out[count, 0], out[count, 1], out[count, 2] = run.name[at], run.end[at], run.base[at]
        remove(run, running - count, at)
        count += 1
        if fits(run, running - count, now, i, o, limits, peaks):
            return count
    for p in range(count - 1, -1, -1):
        insert(run, running - p - 1, out[p, 1], out[p, 2], out[p, 0])
    return 0


@compiled
def serve(
    requests: Requests, rank: Reals, limits: Limits, rules: Rules, pieces: Reals, below: float, log: Log
) -> tuple[float, int, int, int, int]:
    """Sum of completions in ticks, infinite once it is not below ``below``; batches, fills, evictions, batches held in.

    Rows are written to the log, and no more are evicted once there is no room for them.
    """
    inputs, outputs, n = requests.inputs, requests.outputs, len(rank)
    heap, aside, out = np.empty(n, np.int64), np.empty(n, np.int64), np.empty((MOST_OUT, 3), np.int64)
    run = Running(np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64))
    done, filled = np.zeros(n, np.int64), np.zeros(n, np.int64)
    f = np.zeros(9)
    waiting = running = arrived = batch = fills = evictions = holds = next_fill = 0
    now = total = 0.0
    most = min(rules.most, limits.entries)
    stale = False
    while arrived < n or waiting or running:
        if not waiting and not running:
            now = max(now, requests.arrival[arrived])
        while arrived < n and requests.arrival[arrived] <= now:
            push(heap, waiting, arrived, rank)
            waiting, arrived, stale = waiting + 1, arrived + 1, False
        f[:] = 0.0
        decoding, tokens, new = running, running, 0
        if waiting and not stale and (not running or batch >= next_fill):
            put_aside, more = 0, False
            while waiting and put_aside <= rules.passed and running < most:
                i = pop(heap, waiting, rank)
                waiting -= 1
                a, o = inputs[i] + done[i], outputs[i] - done[i]
                alone = new == 0 and decoding > 0 and (rules.apart > 0 or tokens + a > limits.tokens)
                if new and (new + a > rules.fill_tokens or tokens + a > limits.tokens):
                    more = more or fits(run, running, batch, a, o, limits, rules.peaks)
                    aside[put_aside] = i
                    put_aside += 1
                    continue
                if alone:
                    hold(run, running, 1)
                room, gone = fits(run, running, batch, a, o, limits, rules.peaks), 0
                if not room and rules.evict > 0 and evictions + MOST_OUT < len(log.evictions):
                    above = rules.evict * rank[i] * o / outputs[i]
                    step = batch if decoding and not alone else batch + 1
                    gone = make_room(
                        run, running, batch, step, a, o, limits, rules.peaks, rank, outputs, filled, above, out
                    )
                    for p in range(gone):
                        j = out[p, 0]
                        done[j] = outputs[j] - (out[p, 1] - step + 1)
                        log.evictions[evictions, 0], log.evictions[evictions, 1] = batch, j
                        evictions, running, aside[put_aside] = evictions + 1, running - 1, j
                        put_aside += 1
                        if decoding and not alone:
                            decoding, tokens = decoding - 1, tokens - 1
                if room or gone:
                    if alone:
                        log.held[holds] = batch
                        holds, decoding, tokens = holds + 1, 0, 0
                    insert(run, running, batch + o - 1, a - batch, i)
                    filled[i], log.fills[fills, 0], log.fills[fills, 1] = batch, batch, i
                    running, fills, new, tokens = running + 1, fills + 1, new + a, tokens + a
                    f[1], f[3], f[6] = 1.0, f[3] + 1, f[6] + float(a) * a
                else:
                    if alone:
                        hold(run, running, -1)
                    aside[put_aside] = i
                    put_aside += 1
            for p in range(put_aside):
                push(heap, waiting, aside[p], rank)
                waiting += 1
            stale = new == 0
            if new:
                next_fill = batch + (1 if more and rules.hurry else rules.spacing)
        if decoding:
            for r in range(running):
                if filled[run.name[r]] < batch or f[3] == 0:
                    f[8] += run.base[r] + batch - 1
        f[0], f[2], f[4], f[5] = 1.0, 1.0 if decoding else 0.0, decoding, tokens
        now += batch_ticks(pieces, f)
        while running and run.end[running - 1] == batch:
            running, total, stale = running - 1, total + now, False
        batch += 1
        if total + (waiting + running + n - arrived) * now >= below:
            return np.inf, batch, fills, evictions, holds
    return total, batch, fills, evictions, holds
