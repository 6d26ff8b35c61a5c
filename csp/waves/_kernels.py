"""Compiled: shortest ways of requests through priced batches, and prices that improve the bound."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from csp.search._adam import MEAN, pace
from csp.search._jit import compiled
from csp.waves.costs import Costs

OPEN, DECODES, PREFILLS, BOTH, EITHER = range(5)
"""Kinds of batches: not decided yet; decode only; prefill only; both; prefill, and decode or not."""
NEVER = 2**60
"""Cost of what cannot be done."""
_SQUARE, _LEAST_SPREAD = 0.99, 1e-3
_SHARES, _MOST_LEAN, _LEAST_LOG = 0.5, 3.0, -12.0
"""Of Adam; how fast shares move. Tuned on nodes of het16-02, -03, -06 and uniform-64x16-16-m512, valid with any."""

Ints = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]


@compiled
def ways(
    outputs: int, fill: Ints, decode: Ints, blocks: Ints, held: Ints, price: Ints, entry: Ints, per_block: Ints,
    kind: Any, window: Any, evicts: bool, value: Ints,
) -> None:  # fmt: skip
    """Cheapest way of a request to its end from (batches before, tokens generated, resident), into ``value``.

    ``entry`` and ``per_block`` are charged on top: to fills in open batches, to decode steps where they are optional.
    The first fill lies in the window.
    """
    last = len(kind)
    value[last, :outputs, :] = NEVER
    value[last, outputs, :] = 0
    for t in range(last - 1, -1, -1):
        low = max(0, outputs - (last - t))
        value[t, outputs, :] = 0
        for k in range(low):
            value[t, k, :] = NEVER
        for k in range(low, min(outputs - 1, t) + 1):
            then = value[t + 1, k + 1, 1] + price[t] * blocks[k]
            charge = entry[t] + per_block[t] * blocks[k]
            apart = value[t + 1, k, 0]
            best = apart
            if kind[t] != DECODES and (k > 0 or window[0] <= t <= window[1]):
                best = min(best, fill[k] + (charge if kind[t] == OPEN else 0) + then)
            value[t, k, 0] = best
            best = NEVER
            if k > 0:
                best = value[t + 1, k, 1] + price[t] * held[k]
                if kind[t] != PREFILLS:
                    best = min(best, decode[k] + (charge if kind[t] == EITHER else 0) + then)
                if evicts:
                    best = min(best, apart)
            value[t, k, 1] = best


@compiled
def follow(
    outputs: int, decode: Ints, blocks: Ints, held: Ints, price: Ints, entry: Ints, per_block: Ints, kind: Any,
    value: Ints, used: Ints, charged: Ints,
) -> int:  # fmt: skip
    """The blocks a cheapest way uses, and those of entries charged on top, by batch; where it fills first."""
    k, resident, first = 0, 0, -1
    for t in range(len(kind)):
        used[t] = charged[t] = 0
    for t in range(len(kind)):
        if k == outputs:
            break
        here = value[t, k, resident]
        if resident == 0:
            if here == value[t + 1, k, 0]:
                continue
            used[t] = blocks[k]
            charged[t] = blocks[k] if kind[t] == OPEN else 0
            first = t if k == 0 else first
            k, resident = k + 1, 1
            continue
        charge = entry[t] + per_block[t] * blocks[k] if kind[t] == EITHER else 0
        then = value[t + 1, k + 1, 1] + price[t] * blocks[k]
        if kind[t] != PREFILLS and here == decode[k] + charge + then:
            used[t] = blocks[k]
            charged[t] = blocks[k] if kind[t] == EITHER else 0
            k += 1
        elif here == value[t + 1, k, 1] + price[t] * held[k]:
            used[t] = held[k]
        else:
            resident = 0
    return first


@compiled
def fixed_ticks(kind: int, batch: int, prefill: int, decode: int) -> int:
    """Flags a batch is charged at once."""
    if kind == OPEN:
        return batch + min(prefill, decode)
    return batch + (0 if kind == DECODES else prefill) + (decode if kind in (DECODES, BOTH) else 0)


@compiled
def rest_ticks(costs: Costs) -> int:
    """What a prefill adds to the lesser flag that open batches are charged."""
    return costs.prefill_batch - min(costs.prefill_batch, costs.decode_batch)


@compiled
def charge_of(costs: Costs, i: int, kind: Any, toll: int, share: Reals, entry: Ints, per_block: Ints) -> None:
    """Shares of what is charged on top, of a type: one per request, and one per block.

    Open batches charge fills the toll; where decode steps are optional they are charged their flag.
    """
    for t in range(len(kind)):
        whole = toll if kind[t] == OPEN else costs.decode_batch if kind[t] == EITHER else 0
        entry[t] = np.int64(whole * share[t, i] / costs.counts[i])
        per_block[t] = np.int64(whole * share[t, -1] / costs.capacity)


@compiled
def bound(
    costs: Costs, kind: Any, left: int, windows: Any, price: Ints, toll: int, share: Reals, value: Ints, used: Ints,
    charged: Ints, firsts: Ints, entry: Ints, per_block: Ints,
) -> int:  # fmt: skip
    """The bound of given prices, per type what its way uses of each batch, and where it fills first.

    ``left`` open batches prefill: each pays its flag, and takes a toll from who is filled in it.
    """
    total = left * (rest_ticks(costs) - toll)
    for t in range(len(kind)):
        total += fixed_ticks(kind[t], costs.batch, costs.prefill_batch, costs.decode_batch) - price[t] * costs.capacity
    for i in range(len(costs.outputs)):
        charge_of(costs, i, kind, toll, share, entry, per_block)
        ways(costs.outputs[i], costs.fill[i], costs.decode[i], costs.blocks[i], costs.held[i], price, entry, per_block,
             kind, windows[i], costs.evicts, value)  # fmt: skip
        if value[0, 0, 0] >= NEVER // 2:
            return NEVER
        total += costs.counts[i] * value[0, 0, 0]
        firsts[i] = follow(costs.outputs[i], costs.decode[i], costs.blocks[i], costs.held[i], price, entry, per_block,
                           kind, value, used[i], charged[i])  # fmt: skip
    return int(total)


@compiled
def ascend(
    costs: Costs, kind: Any, left: int, windows: Any, price: Ints, toll: Ints, share: Reals, upper: int, steps: int,
    first: float, last: float, firsts: Ints,
) -> int:  # fmt: skip
    """Improve prices, toll and shares in place; the best bound, NEVER if infeasible.

    Adam (Kingma, Ba 2015): every price moves by a rate over the mean and the spread of its own slopes, since best
    prices differ by orders of magnitude between batches. Rates fall from ``first`` to ``last`` times the flag of a
    batch per block. Shares move likewise, as exponentials, towards who is charged. ``firsts`` counts, per type and
    batch, where the steps' ways filled first.
    """
    types, batches = len(costs.outputs), len(kind)
    value = np.empty((batches + 1, costs.blocks.shape[1] + 1, 2), np.int64)
    used, charged = np.zeros((types, batches), np.int64), np.zeros((types, batches), np.int64)
    filled = np.zeros(types, np.int64)
    entry, per_block = np.zeros(batches, np.int64), np.zeros(batches, np.int64)
    point, whole, weights, logs = price.astype(np.float64), price.copy(), share.copy(), np.log(share)
    mean, square, lean = np.zeros(batches + 1), np.zeros(batches + 1), np.zeros((batches, types + 1))
    most = 2.0**58 / (costs.capacity * batches * costs.counts.sum())
    fee = float(toll[0])
    unit = costs.batch / costs.capacity
    best = -NEVER
    for n in range(steps):
        for t in range(batches):
            whole[t] = np.int64(point[t])
        found = bound(costs, kind, left, windows, whole, int(fee), weights, value, used, charged, filled, entry,
                      per_block)  # fmt: skip
        if found >= NEVER:
            return NEVER
        for i in range(types):
            firsts[i, filled[i]] += 1
        if found > best:
            best = found
            price[:], share[:, :], toll[0] = whole, weights, np.int64(fee)
            if best >= upper:
                break
        rate = first * (last / first) ** (n / steps)
        early, early_square, flags = 1 - MEAN ** (n + 1), 1 - _SQUARE ** (n + 1), 0.0
        for t in range(batches):
            slope = -1.0
            for i in range(types):
                slope += costs.counts[i] * used[i, t] / costs.capacity
            by = rate * unit * pace(slope, t, early, early_square, mean, square, _SQUARE, _LEAST_SPREAD)
            point[t] = min(most, max(0.0, point[t] + by))
            if kind[t] == OPEN or kind[t] == EITHER:
                taken = move(costs, charged[:, t], lean[t], logs[t], _SHARES * rate / first / early, weights[t])
                flags += taken if kind[t] == OPEN else 0.0
        if left > 0:
            slope = flags / left - 1.0
            fee += rate * costs.batch * pace(slope, batches, early, early_square, mean, square, _SQUARE, _LEAST_SPREAD)
            fee = min(most, max(0.0, fee))
    return int(best)


@compiled
def move(costs: Costs, charged: Ints, lean: Reals, logs: Reals, rate: float, out: Reals) -> float:
    """Shift a batch's shares to who is charged there, keeping them above 0 and their sum below 1; the part taken."""
    types, room, taken = len(charged), 0.0, 0.0
    for i in range(types):
        room += costs.counts[i] * charged[i] / costs.capacity
    for i in range(types + 1):
        here = room if i == types else (1.0 if charged[i] > 0 else 0.0)
        taken += here * out[i]
        lean[i] = MEAN * lean[i] + (1 - MEAN) * here
        logs[i] += rate * min(_MOST_LEAN, lean[i])
    top, total = logs.max(), 0.0
    for i in range(types + 1):
        logs[i] = max(_LEAST_LOG, logs[i] - top)
        out[i] = np.exp(logs[i])
        total += out[i]
    for i in range(types + 1):
        out[i] /= total * (1 + 1e-9)
    return taken
