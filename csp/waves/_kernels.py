"""Compiled: shortest ways of requests through priced batches, and prices that improve the bound."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from csp.search._jit import compiled

OPEN, DECODES, PREFILLS, BOTH = range(4)
"""Kinds of batches: not decided yet; decode only; prefill only; both."""
NEVER = 2**60
"""Cost of what cannot be done."""
_WEIGHT, _SHRINK, _PATIENCE, _AIM = 0.1, 0.66, 10, 0.03
_LEAST_SHARE = 1e-6

Ints = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]


class Costs(NamedTuple):
    """What requests cost and occupy, per type and tokens generated before.

    Attributes
    ----------
    outputs, counts
        Per type.
    fill, decode
        Ticks of the entry that generates the next token; ``[type, k]``.
    blocks, held
        Blocks after it, and of a resident that holds; ``[type, k]``.
    capacity, batch, prefill_batch, decode_batch
        M in blocks, and ticks of the flags.
    evicts, hybrid
        Whether preempting, and both kinds in one batch, are allowed.
    """

    outputs: Ints
    counts: Ints
    fill: Ints
    decode: Ints
    blocks: Ints
    held: Ints
    capacity: int
    batch: int
    prefill_batch: int
    decode_batch: int
    evicts: bool
    hybrid: bool


@compiled
def ways(
    outputs: int, fill: Ints, decode: Ints, blocks: Ints, held: Ints, price: Ints, entry: Ints, per_block: Ints,
    kind: Any, window: Any, evicts: bool, value: Ints,
) -> None:  # fmt: skip
    """Cheapest way of a request to its end from (batches before, tokens generated, resident), into ``value``.

    ``entry`` and ``per_block`` are what a fill in a batch is charged on top; the first fill lies in the window.
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
            then = value[t + 1, k + 1, 1]
            apart = value[t + 1, k, 0]
            best = apart
            if kind[t] != DECODES and (k > 0 or window[0] <= t <= window[1]):
                best = min(best, fill[k] + (price[t] + per_block[t]) * blocks[k] + entry[t] + then)
            value[t, k, 0] = best
            best = NEVER
            if k > 0:
                best = value[t + 1, k, 1] + price[t] * held[k]
                if kind[t] != PREFILLS:
                    best = min(best, decode[k] + price[t] * blocks[k] + then)
                if evicts:
                    best = min(best, apart)
            value[t, k, 1] = best


@compiled
def follow(
    outputs: int, decode: Ints, blocks: Ints, held: Ints, price: Ints, kind: Any, value: Ints, used: Ints, filled: Ints
) -> None:  # fmt: skip
    """The blocks a cheapest way uses, and where it fills (blocks), by batch."""
    k, resident = 0, 0
    for t in range(len(kind)):
        used[t] = filled[t] = 0
    for t in range(len(kind)):
        if k == outputs:
            break
        here, then = value[t, k, resident], value[t + 1, k + 1, 1]
        if resident == 0:
            if here == value[t + 1, k, 0]:
                continue
            used[t] = filled[t] = blocks[k]
            k, resident = k + 1, 1
        elif kind[t] != PREFILLS and here == decode[k] + price[t] * blocks[k] + then:
            used[t] = blocks[k]
            k += 1
        elif here == value[t + 1, k, 1] + price[t] * held[k]:
            used[t] = held[k]
        else:
            resident = 0


@compiled
def fixed_ticks(kind: int, batch: int, prefill: int, decode: int) -> int:
    """Flags a batch is charged at once."""
    if kind == OPEN:
        return batch + min(prefill, decode)
    return batch + (0 if kind == DECODES else prefill) + (0 if kind == PREFILLS else decode)


@compiled
def charge_of(costs: Costs, i: int, kind: Any, share: Reals, entry: Ints, per_block: Ints) -> None:
    """What fills of a type are charged in open batches: a share per request, and one per block filled."""
    rest = costs.prefill_batch - min(costs.prefill_batch, costs.decode_batch)
    for t in range(len(kind)):
        entry[t] = per_block[t] = 0
        if kind[t] == OPEN:
            entry[t] = np.int64(rest * share[t, i] / costs.counts[i])
            per_block[t] = np.int64(rest * share[t, -1] / costs.capacity)


@compiled
def bound(
    costs: Costs, kind: Any, windows: Any, price: Ints, share: Reals, value: Ints, used: Ints, filled: Ints,
    entry: Ints, per_block: Ints,
) -> int:  # fmt: skip
    """The bound of given prices, and per type what its way uses of each batch."""
    total = 0
    for t in range(len(kind)):
        total += fixed_ticks(kind[t], costs.batch, costs.prefill_batch, costs.decode_batch) - price[t] * costs.capacity
    for i in range(len(costs.outputs)):
        charge_of(costs, i, kind, share, entry, per_block)
        ways(costs.outputs[i], costs.fill[i], costs.decode[i], costs.blocks[i], costs.held[i], price, entry, per_block,
             kind, windows[i], costs.evicts, value)  # fmt: skip
        if value[0, 0, 0] >= NEVER // 2:
            return NEVER
        total += costs.counts[i] * value[0, 0, 0]
        follow(costs.outputs[i], costs.decode[i], costs.blocks[i], costs.held[i], price, kind, value, used[i],
               filled[i])  # fmt: skip
    return int(total)


@compiled
def ascend(
    costs: Costs, kind: Any, windows: Any, price: Ints, share: Reals, upper: int, steps: int, first_step: float,
    firsts: Ints,
) -> int:  # fmt: skip
    """Improve prices and shares in place by steps along averaged subgradients; the best bound, NEVER if infeasible.

    Prices are capped so that sums stay below 2**62. Shares follow where fills are (multiplied by exponentials and
    normalised to a sum below 1). ``firsts`` counts, per type and batch, where the steps' ways filled first.
    """
    types, last = len(costs.outputs), len(kind)
    value = np.empty((last + 1, costs.blocks.shape[1] + 1, 2), np.int64)
    used, filled = np.zeros((types, last), np.int64), np.zeros((types, last), np.int64)
    entry, per_block = np.zeros(last, np.int64), np.zeros(last, np.int64)
    best, step, failures = -NEVER, first_step, 0
    point, weights = price.copy(), share.copy()
    average, where = np.zeros(last), np.zeros((last, types + 1))
    most = 2.0**58 / (costs.capacity * last * costs.counts.sum())
    for n in range(steps):
        found = bound(costs, kind, windows, point, weights, value, used, filled, entry, per_block)
        if found >= NEVER:
            return NEVER
        keep = 1.0 - _WEIGHT if n else 0.0
        norm = 1.0
        for i in range(types):
            for t in range(last):
                if filled[i, t] > 0:
                    firsts[i, t] += 1
                    break
        for t in range(last):
            blocks, fills = 0, 0
            for i in range(types):
                blocks += costs.counts[i] * used[i, t]
                fills += costs.counts[i] * filled[i, t]
                where[t, i] = keep * where[t, i] + (1 - keep) * (filled[i, t] > 0)
            average[t] = keep * average[t] + (1 - keep) * blocks
            where[t, types] = keep * where[t, types] + (1 - keep) * fills / costs.capacity
        if found > best:
            best, failures, step = found, 0, min(2.0, step * 1.1)
            price[:], share[:, :] = point, weights
            if best >= upper:
                break
        else:
            failures += 1
            if failures == _PATIENCE:
                failures, step = 0, step * _SHRINK
        for t in range(last):
            slope = average[t] - costs.capacity
            if price[t] > 0 or slope > 0:
                norm += slope * slope
        length = step * min(float(upper - best), _AIM * best) / norm
        for t in range(last):
            point[t] = np.int64(min(most, max(0.0, price[t] + length * (average[t] - costs.capacity))))
            if kind[t] == OPEN:
                move(share[t], where[t], step, weights[t])
    return int(best)


@compiled
def move(share: Reals, where: Reals, step: float, out: Reals) -> None:
    """Shift a batch's shares to what is filled there; they stay above 0 and sum to less than 1."""
    total = 0.0
    for i in range(len(share)):
        out[i] = share[i] * np.exp(step * min(4.0, where[i]))
        total += out[i]
    again = 0.0
    for i in range(len(share)):
        out[i] = max(_LEAST_SHARE, out[i] / total)
        again += out[i]
    for i in range(len(share)):
        out[i] /= again * (1 + 1e-9)
