"""The backward planner's inner loop, compiled on first use."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


def _plan(
    inputs: Ints, outputs: Ints, group_end: Ints, kv_blocks: int, block: int, budget: int, limit: int, seqs: int,
    every: int, most_hold: int, rate: float, burst: float, first_burst: float, most_failures: int, horizon: int,
) -> tuple[Ints, Ints, Ints, Ints, int]:  # fmt: skip
    """Place requests from the last batch backwards; batch u = 0 is the last one.

    Fills take at most ``limit`` of a batch's tokens; the rest is for decode steps that are placed later.

    Returns
    -------
    Completion batch per request, then the chunks' batches, requests and tokens, and the number of batches; -1 if the
    horizon was too short. All batches count backwards.
    """
    n = len(inputs)
    kv = np.zeros(horizon, np.int64)
    tokens = np.zeros(horizon, np.int64)
    entries = np.zeros(horizon, np.int64)
    last = np.full(n, -1, np.int64)
    chunk_batch = np.zeros(n + horizon, np.int64)
    chunk_request = np.zeros(n + horizon, np.int64)
    chunk_tokens = np.zeros(n + horizon, np.int64)
    chunks, top = 0, 0
    waiting = np.arange(n)
    n_waiting = n
    credit = 0.0
    u = 0
    while n_waiting > 0:
        if u >= horizon:
            return last, chunk_batch[:chunks], chunk_request[:chunks], chunk_tokens[:chunks], -1
        credit = min(credit + rate * kv_blocks, rate * kv_blocks * burst)
        read = write = failures = 0
        while read < n_waiting and failures < most_failures:
            i = waiting[read]
            size, steps = inputs[i], outputs[i]
            peak = (size + steps - 1 + block - 1) // block
            fits = kv[u] + peak <= kv_blocks
            fits = fits and (steps == 1 or (credit > 0 if u > 0 else kv[0] < first_burst * kv_blocks))
            start = u + steps - 1
            fill = (start + every - 1) // every * every
            if fits and steps == 1 and size <= limit:
                fill = start
            if fill - start > most_hold:
                fits = False
            if fits:
                # A prompt that fits into one batch is filled whole; a longer one takes what is left of several.
                while fill < horizon and (
                    entries[fill] >= seqs or tokens[fill] >= limit or (size <= limit and tokens[fill] + size > limit)
                ):
                    fill += 1
                fits = fill < horizon - 2 - size // limit and (steps > 1 or fill == start)
                for x in range(u, min(start, horizon)):
                    if tokens[x] >= budget or entries[x] >= seqs:
                        fits = False
                        break
            if not fits:
                failures += 1
                end = group_end[i]
                while read < n_waiting and waiting[read] < end:
                    waiting[write] = waiting[read]
                    write += 1
                    read += 1
                continue
            read += 1
            left = size
            x = fill
            while left > 0:
                if x >= horizon:
                    return last, chunk_batch[:chunks], chunk_request[:chunks], chunk_tokens[:chunks], -1
                if entries[x] < seqs and tokens[x] < limit:
                    c = min(left, limit - tokens[x])
                    chunk_batch[chunks], chunk_request[chunks], chunk_tokens[chunks] = x, i, c
                    chunks += 1
                    tokens[x] += c
                    entries[x] += 1
                else:
                    c = 0
                # After this batch it holds what is filled up to and with it.
                kv[x] += (left + block - 1) // block
                left -= c
                top = max(top, x)
                x += 1
            for x in range(start, fill):
                kv[x] += (size + block - 1) // block
            for x in range(u, start):
                kv[x] += (size + steps - 1 - (x - u) + block - 1) // block
                tokens[x] += 1
                entries[x] += 1
            last[i] = u
            top = max(top, u)
            if u > 0:
                credit -= (steps * size + steps * (steps - 1) / 2) / block
        while read < n_waiting:
            waiting[write] = waiting[read]
            write += 1
            read += 1
        n_waiting = write
        u += 1
    return last, chunk_batch[:chunks], chunk_request[:chunks], chunk_tokens[:chunks], top + 1


@cache
def kernel() -> Callable[..., Any]:
    """The compiled planner."""
    import numba

    compiled: Callable[..., Any] = numba.njit(cache=True)(_plan)
    return compiled
