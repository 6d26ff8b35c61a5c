"""Beam search over states, compiled: batches are built request by request, and only the most promising are kept.

A *node* is a state with the actions of the requests decided so far in its next batch. All nodes of a level have decided
as many requests, residents first. They are ranked by what the whole schedule may cost: the cost so far, the least work
left, a *price* for the batches that the remaining tokens take, less what the undecided requests may still contribute to
this batch (`may_contribute`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from csp.search._bounds import Codes, add_request, remaining_ticks
from csp.search._jit import compiled
from csp.search._kernel import after_action, batch_ticks, decide
from csp.search.space import (
    BLOCKS,
    CAPACITY,
    DECODE_FLAG,
    DECODED,
    EVICT,
    EXCESS,
    FILLS,
    OPEN,
    PREFILL_FLAG,
    TO_EVICT,
    WAIT,
    WORK,
    Ints,
    Tables,
)

Reals = npt.NDArray[np.float64]
Actions = npt.NDArray[np.int8]


class Nodes(NamedTuple):
    """Nodes of one level, in arrays.

    Attributes
    ----------
    origin
        The state each comes from.
    action
        Its requests' actions.
    sums
        Its batch so far (`Tables.step` fields).
    worth
        Cost so far, least work left before the batch, and price of what remains after it.
    estimate
        What it is ranked by.
    """

    origin: Ints
    action: Actions
    sums: Ints
    worth: Reals
    estimate: Reals


@compiled
def decision_order(codes: Codes, price: Reals, step: Ints, mark: Ints, order: Ints) -> int:
    """Write the requests with tokens left: residents, then absent ones by gain per block; the number of residents."""
    n, last = len(codes), 0
    for i in range(n):
        if codes[i] & 1:
            order[last] = i
            last += 1
    residents = last
    density = np.zeros(n)
    for i in range(n):
        code = codes[i]
        if code & 1 == 0 and mark[i, code, OPEN]:
            density[i] = (price[i, code] - price[i, code + 3]) / step[i, code, BLOCKS]
            p = last
            while p > residents and density[order[p - 1]] < density[i]:
                order[p] = order[p - 1]
                p -= 1
            order[p] = i
            last += 1
    for p in range(last, n):
        order[p] = -1
    return residents


@compiled
def may_contribute(
    codes: Codes, order: Ints, residents: int, decided: int, sums: Ints, price: Reals, step: Ints, mark: Ints,
    limits: Ints,
) -> float:  # fmt: skip
    """What the undecided requests may gain in this batch: residents decode while they fit, then fills, divisible."""
    room = limits[CAPACITY] - sums[BLOCKS]
    decoding, filling = 0.0, 0.0
    for p in range(decided, residents):
        i = order[p]
        code = codes[i]
        if step[i, code, BLOCKS] <= room:
            room -= step[i, code, BLOCKS]
            decoding += price[i, code] - price[i, code + 2]
        else:
            decoding -= price[i, code - 1] - price[i, code] + mark[i, code, TO_EVICT]
    if sums[DECODED] == 0 and decoding > 0:
        decoding = max(0.0, decoding - limits[DECODE_FLAG])
    for p in range(max(decided, residents), len(codes)):
        i = order[p]
        if i < 0 or room <= 0:
            break
        gain, size = price[i, codes[i]] - price[i, codes[i] + 3], step[i, codes[i], BLOCKS]
        filling += gain if size <= room else gain * room / size
        room -= size
    if sums[FILLS] == 0:
        filling = max(0.0, filling - limits[PREFILL_FLAG])
    return decoding + filling


@compiled
def start_nodes(
    states: Codes, cost: Ints, price: Reals, tables: Tables, kept: Nodes, order: Ints, residents: Ints
) -> int:  # fmt: skip
    """One node per state with nothing decided; the most requests any of them has to decide."""
    longest = 0
    for s in range(len(states)):
        residents[s] = decision_order(states[s], price, tables.step, tables.mark, order[s])
        kept.origin[s], kept.worth[s] = s, cost[s]
        kept.action[s, :] = WAIT
        kept.sums[s, :] = 0
        for i in range(states.shape[1]):
            kept.worth[s] += price[i, states[s, i]] + tables.state[i, states[s, i], WORK]
            if order[s, i] >= 0:
                longest = max(longest, i + 1)
    return longest


@compiled
def branch(
    tables: Tables, states: Codes, cost: Ints, price: Reals, width: int, noise: float,
    rng: np.random.Generator, kept: Nodes, wide: Nodes,
) -> int:  # fmt: skip
    """Write the ``width`` most promising complete batches from these states into ``kept``; how many there are."""
    step, mark, limits, outputs = tables.step, tables.mark, tables.limits, tables.outputs
    count, n = states.shape
    order, residents = np.zeros((count, n), np.int64), np.zeros(count, np.int64)
    scratch = np.zeros((n + 1, wide.sums.shape[1]), np.int64)
    nodes, longest = count, start_nodes(states, cost, price, tables, kept, order, residents)
    for level in range(longest):
        found = 0
        for node in range(nodes):
            s = kept.origin[node]
            i = order[s, level]
            for action in range(WAIT, EVICT + 1 if i >= 0 else WAIT + 1):
                wide.sums[found, :] = kept.sums[node]
                wide.worth[found] = kept.worth[node]
                if i >= 0:
                    scratch[i, :] = kept.sums[node]
                    if not decide(step, mark, limits, i, states[s, i], action, scratch):
                        continue
                    wide.sums[found, :] = scratch[i + 1]
                    then = after_action(states[s, i], action, outputs[i])
                    wide.worth[found] += price[i, then] - price[i, states[s, i]]
                wide.origin[found] = s
                wide.action[found, :] = kept.action[node]
                if i >= 0:
                    wide.action[found, i] = action
                wide.estimate[found] = estimate(
                    wide.worth[found], wide.sums[found], states[s], order[s], residents[s], level + 1, price, step,
                    mark, limits,
                ) * (1.0 + noise * rng.random())  # fmt: skip
                found += 1
        nodes = keep_best(wide, kept, found, width)
    return int(nodes)


@compiled
def estimate(
    worth: float, sums: Ints, codes: Codes, order: Ints, residents: int, decided: int, price: Reals, step: Ints,
    mark: Ints, limits: Ints,
) -> float:  # fmt: skip
    """What the whole schedule may cost after this partial batch."""
    total = worth + sums[EXCESS]
    if sums[FILLS] > 0:
        total += limits[PREFILL_FLAG]
    if sums[DECODED] > 0:
        total += limits[DECODE_FLAG]
    return float(total - may_contribute(codes, order, residents, decided, sums, price, step, mark, limits))


@compiled
def keep_best(wide: Nodes, kept: Nodes, found: int, width: int) -> int:
    """Copy the nodes of least estimate."""
    chosen = np.arange(found)
    if found > width:
        chosen = np.argsort(wide.estimate[:found], kind="mergesort")[:width]
    for place in range(len(chosen)):
        node = chosen[place]
        kept.origin[place], kept.worth[place] = wide.origin[node], wide.worth[node]
        kept.action[place, :] = wide.action[node]
        kept.sums[place, :] = wide.sums[node]
    return len(chosen)


@compiled
def close_batches(
    tables: Tables, states: Codes, cost: Ints, price: Reals, kept: Nodes, nodes: int, upper: int, child: Codes,
    reached: Ints, worth: Reals,
) -> int:  # fmt: skip
    """States after the nodes' batches, their costs and worths, for those that can stay below ``upper``; how many.

    Their origins and actions move to the front of ``kept``.
    """
    outputs, kind, n = tables.outputs, tables.kind, states.shape[1]
    totals = np.zeros((n + 1, tables.state.shape[2]), np.int64)
    done = 0
    for node in range(nodes):
        if kept.sums[node, FILLS] + kept.sums[node, DECODED] == 0:
            continue
        s = kept.origin[node]
        reached[done] = cost[s] + batch_ticks(kept.sums, node, tables.pieces, tables.group_start)
        worth[done] = reached[done]
        for i in range(n):
            code = after_action(states[s, i], kept.action[node, i], outputs[i])
            worth[done] += price[i, code] + tables.state[i, code, WORK]
            add_request(totals, i, tables.state, i, code)
            j = i
            while j > 0 and kind[j - 1] == kind[i] and child[done, j - 1] > code:
                child[done, j] = child[done, j - 1]
                j -= 1
            child[done, j] = code
        if reached[done] + remaining_ticks(totals, n, tables.capacities, tables.limits) >= upper:
            continue
        kept.origin[done] = s
        kept.action[done, :] = kept.action[node]
        done += 1
    return done
