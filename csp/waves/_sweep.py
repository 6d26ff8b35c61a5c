"""Compiled: all states that schedules of a node can reach below some cost, batch after batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from csp.search._jit import compiled
from csp.waves._kernels import DECODES, EITHER, NEVER, PREFILLS, charge_of, ways
from csp.waves.costs import Costs

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.uint16]

CODE, EXCESS, BLOCKS, CHARGE = range(4)
"""Fields of what a request may do in a batch: its next code, how much more that costs than its best way, blocks after
it, and what it is charged of an optional flag. A code is twice the tokens generated, plus 1 if resident."""


@compiled
def options_of(
    code: int, t: int, kind: int, window: Any, i: int, costs: Costs, price: int, entry: int, per_block: int,
    value: Ints, out: Ints,
) -> int:  # fmt: skip
    """What a request may do in a batch, ``[way, field]``; how many ways."""
    k, resident = code >> 1, code & 1
    if k == costs.outputs[i]:
        out[0, CODE], out[0, EXCESS], out[0, BLOCKS], out[0, CHARGE] = code, 0, 0, 0
        return 1
    n = 0
    now, apart, then = value[t, k, resident], value[t + 1, k, 0], value[t + 1, k + 1, 1]
    size, held = costs.blocks[i, k], costs.held[i, k]
    processed = 2 * (k + 1) + (0 if k + 1 == costs.outputs[i] else 1)
    fills = resident == 0 and kind != DECODES and (k > 0 or window[0] <= t <= window[1])
    if then < NEVER // 2 and (fills or (resident == 1 and kind != PREFILLS)):
        optional = kind == EITHER and resident == 1
        charge = entry + per_block * size if optional else 0
        entries = costs.fill[i, k] if fills else costs.decode[i, k]
        out[n, CODE], out[n, BLOCKS], out[n, CHARGE] = processed, size, charge
        out[n, EXCESS] = entries + charge + price * size + then - now
        n += 1
    if resident == 1 and value[t + 1, k, 1] < NEVER // 2:
        out[n, CODE], out[n, BLOCKS], out[n, CHARGE] = code, held, 0
        out[n, EXCESS] = value[t + 1, k, 1] + price * held - now
        n += 1
    if apart < NEVER // 2 and (resident == 0 or costs.evicts):
        out[n, CODE], out[n, EXCESS], out[n, BLOCKS], out[n, CHARGE] = 2 * k, apart - now, 0, 0
        n += 1
    return n


@compiled
def place(
    state: Codes, states: Codes, cost: Ints, parents: Any, table: Any, number: int, value: int, parent: int
) -> int:
    """Put a state into a layer unless it is there at no more cost; how many there are then, or -1 if it is full."""
    n, room = len(state), len(table)
    h = np.uint64(1469598103934665603)
    for p in range(n):
        h = (h ^ np.uint64(state[p])) * np.uint64(1099511628211)
    h ^= h >> np.uint64(29)
    at: Any = np.int64(h % np.uint64(room))
    while table[at] >= 0:
        other = table[at]
        same = True
        for p in range(n):
            if states[other, p] != state[p]:
                same = False
                break
        if same:
            if value < cost[other]:
                cost[other], parents[other] = value, parent
            return number
        at = at + 1 if at + 1 < room else 0
    if number == len(cost):
        return -1
    table[at] = number
    for p in range(n):
        states[number, p] = state[p]
    cost[number], parents[number] = value, parent
    return number + 1


@compiled
def needless(state: Codes, options: Ints, choice: Ints, which: Ints, keep: Any, costs: Costs, room: int) -> bool:
    """Whether somebody is evicted for whom there is room, where that loses."""
    for p in range(len(state)):
        code = state[p]
        if options[p, choice[p], CODE] == code - 1 and keep[p, code] and costs.held[which[p], code >> 1] <= room:
            return True
    return False


@compiled
def arrange(state: Codes, which: Ints) -> None:
    """Sort the codes of like requests."""
    for p in range(1, len(state)):
        q = p
        while q > 0 and which[q] == which[q - 1] and state[q - 1] > state[q]:
            state[q - 1], state[q] = state[q], state[q - 1]
            q -= 1


@compiled
def sweep(
    costs: Costs, which: Ints, kind: Any, windows: Any, price: Ints, toll: int, share: Any, start: int, until: int,
    limit: int, keep: Any, states: Codes, cost: Ints, parents: Any, numbers: Ints,
) -> tuple[int, int]:  # fmt: skip
    """Follow all schedules of a node that cost less than the limit, as its prices bound them, up to a batch.

    A joint step of all requests costs what each one's step costs beyond its cheapest way, the price of the memory left
    free, and what nobody was charged of the flags paid: with the node's bound these add up to no more than a schedule's
    cost, and to just that at its end.

    Parameters
    ----------
    which
        Type per request; requests of a type are neighbours.
    start
        The node's bound under these prices.
    until
        Batches to follow, all of them decided.
    keep
        ``[request, code]``: whether evicting loses where there is room (`csp.search.dominance`).
    states, cost, parents
        ``[layer, number, request]`` and ``[layer, number]``, overwritten.
    numbers
        States per layer, overwritten.

    Returns
    -------
    Least cost of what was cut off (NEVER if nothing was), and the batch in which there were too many states (-1).
    """
    requests, types, batches = len(which), len(costs.outputs), len(kind)
    value = np.empty((types, batches + 1, costs.blocks.shape[1] + 1, 2), np.int64)
    entry, per_block = np.zeros((types, batches), np.int64), np.zeros((types, batches), np.int64)
    for i in range(types):
        charge_of(costs, i, kind, toll, share, entry[i], per_block[i])
        ways(costs.outputs[i], costs.fill[i], costs.decode[i], costs.blocks[i], costs.held[i], price, entry[i],
             per_block[i], kind, windows[i], costs.evicts, value[i])  # fmt: skip
    table = np.empty(4 * states.shape[1] + 7, np.int32)
    options, ways_of = np.zeros((requests, 3, 4), np.int64), np.zeros(requests, np.int64)
    choice, most = np.zeros(requests, np.int64), np.zeros(requests + 1, np.int64)
    spent, used = np.zeros(requests + 1, np.int64), np.zeros(requests + 1, np.int64)
    decoding, paid = np.zeros(requests + 1, np.int64), np.zeros(requests + 1, np.int64)
    state = np.zeros(requests, np.uint16)
    states[0, 0], cost[0, 0], parents[0, 0], numbers[0] = 0, start, -1, 1
    least = NEVER
    for t in range(until):
        table[:] = -1
        number = 0
        for s in range(numbers[t]):
            for p in range(requests):
                i = which[p]
                ways_of[p] = options_of(states[t, s, p], t, kind[t], windows[i], i, costs, price[t], entry[i, t],
                                        per_block[i, t], value[i], options[p])  # fmt: skip
            for p in range(requests - 1, -1, -1):
                most[p] = most[p + 1]
                if ways_of[p]:
                    most[p] += options[p, : ways_of[p], BLOCKS].max()
            p = 0
            choice[0], spent[0] = -1, cost[t, s]
            while p >= 0:
                choice[p] += 1
                c = choice[p]
                if c >= ways_of[p]:
                    p -= 1
                    continue
                used[p + 1] = used[p] + options[p, c, BLOCKS]
                if used[p + 1] > costs.capacity:
                    continue
                spent[p + 1] = spent[p] + options[p, c, EXCESS]
                paid[p + 1] = paid[p] + options[p, c, CHARGE]
                decodes = (states[t, s, p] & 1) == 1 and options[p, c, CODE] > states[t, s, p]
                decoding[p + 1] = decoding[p] + (1 if decodes else 0)
                found = spent[p + 1] + price[t] * max(0, costs.capacity - used[p + 1] - most[p + 1])
                if p + 1 == requests and kind[t] == EITHER and decoding[requests] > 0:
                    found += costs.decode_batch - paid[requests]
                if found >= limit:
                    least = min(least, found)
                    continue
                if p + 1 < requests:
                    p += 1
                    # Of like requests in one state, none does what comes before in the list than the one before it.
                    like = which[p] == which[p - 1] and states[t, s, p] == states[t, s, p - 1]
                    choice[p] = c - 1 if like else -1
                    continue
                if needless(states[t, s], options, choice, which, keep, costs, costs.capacity - used[requests]):
                    continue
                for q in range(requests):
                    state[q] = options[q, choice[q], CODE]
                arrange(state, which)
                number = place(state, states[t + 1], cost[t + 1], parents[t + 1], table, number, found, s)
                if number < 0:
                    return least, t
        numbers[t + 1] = number
    return least, -1
