"""Best-first search over states, compiled: expand the state of least f = cost so far + bound until nothing is left."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from csp.search._bounds import Codes, add_request, charges, remaining_ticks
from csp.search._jit import compiled
from csp.search._store import (
    BEST,
    EXPANDED,
    GENERATED,
    HALT,
    N_OPEN,
    N_STATES,
    UPPER,
    Packed,
    Store,
    find,
    look_up,
    pop,
    push,
    superseded,
)
from csp.search.space import (
    BLOCKS,
    BUDGET,
    CAPACITY,
    DECODE_FLAG,
    DECODED,
    EVICT,
    EXCESS,
    FILLS,
    FINISH,
    FLAG,
    HELD,
    HYBRID,
    KEEP,
    LEFT,
    OPEN,
    PREEMPTION,
    PREFILL_FLAG,
    PROCESS,
    READS,
    ROWS,
    SEQUENCES,
    SQUARES,
    TO_EVICT,
    TOKENS,
    WAIT,
    WORK,
    Ints,
    Tables,
)

EXHAUSTED, PAUSED, FULL, STUCK = 0, 1, 2, 3


class Partial(NamedTuple):
    """A batch under construction, one level per request decided; rows ``[i]`` are sums over the requests before i.

    Attributes
    ----------
    action
        Per request; -1 is not tried yet.
    sums
        The batch: fields as in `Tables.step`, EXCESS with evictions.
    totals
        The state after it: fields as in `Tables.state`.
    """

    action: Ints
    sums: Ints
    totals: Ints


@compiled
def after_action(code: int, action: int, outputs: int) -> int:
    """A request's code after a batch."""
    if action == PROCESS:
        k = (code >> 1) + 1
        return 2 * k + (1 if k < outputs else 0)
    return code - 1 if action == EVICT else code


@compiled
def decide(step: Ints, mark: Ints, limits: Ints, i: int, code: int, action: int, sums: Ints) -> bool:
    """Carry the batch's sums over request i's action; False if the rules forbid it."""
    for x in range(sums.shape[1]):
        sums[i + 1, x] = sums[i, x]
    if action == PROCESS:
        if mark[i, code, OPEN] == 0:
            return False
        for x in range(HELD):
            sums[i + 1, x] += step[i, code, x]
    elif action == EVICT:
        if code & 1 == 0 or limits[PREEMPTION] == 0:
            return False
        sums[i + 1, EXCESS] += mark[i, code, TO_EVICT]
    else:
        sums[i + 1, BLOCKS] += step[i, code, HELD]
        sums[i + 1, HELD] += step[i, code, HELD]
    fills, decodes = sums[i + 1, FILLS], sums[i + 1, DECODED]
    if sums[i + 1, BLOCKS] > limits[CAPACITY] or sums[i + 1, TOKENS] > limits[BUDGET]:
        return False
    return bool(fills + decodes <= limits[SEQUENCES] and (limits[HYBRID] == 1 or fills == 0 or decodes == 0))


@compiled
def partial_bound(sums: Ints, i: int, limits: Ints, base: int, area: int, least: int) -> int:
    """Lower bound of every batch that completes this partial one, with all after it.

    Whatever is held takes room from this batch's share of the area, so what is left bounds the batches after it.
    """
    capacity = limits[CAPACITY]
    after = max(least - 1, -(-(area - capacity + sums[i, HELD]) // capacity))
    charged = 0
    if sums[i, FILLS] > 0:
        charged += limits[PREFILL_FLAG]
    if sums[i, DECODED] > 0:
        charged += limits[DECODE_FLAG]
    charged = max(charged, min(limits[PREFILL_FLAG], limits[DECODE_FLAG]))
    return int(base + sums[i, EXCESS] + limits[FLAG] + charged + charges(max(0, after), 0, 0, limits))


@compiled
def needless(codes: Codes, action: Ints, sums: Ints, step: Ints, mark: Ints, limits: Ints) -> bool:
    """Whether a complete batch processes nothing, or breaks "keep" or "finish" (`csp.search.dominance`)."""
    n = len(codes)
    fills, decodes = sums[n, FILLS], sums[n, DECODED]
    if fills + decodes == 0:
        return True
    room, budget = limits[CAPACITY] - sums[n, BLOCKS], limits[BUDGET] - sums[n, TOKENS]
    slots = limits[SEQUENCES] - fills - decodes
    for i in range(n):
        code = codes[i]
        if action[i] == EVICT:
            if mark[i, code, KEEP] and step[i, code, HELD] <= room:
                return True
        elif action[i] == WAIT and mark[i, code, FINISH] and slots > 0:
            of_its_kind = decodes if code & 1 else fills
            more = step[i, code, BLOCKS] - step[i, code, HELD]
            if of_its_kind > 0 and more <= room and step[i, code, TOKENS] <= budget:
                return True
    return False


@compiled
def batch_ticks(sums: Ints, n: int, pieces: Ints, group_start: Ints) -> int:
    """Exact time of a batch from its sums, by all cost pieces (`sim.cost.model.CostModel.batch_ticks`)."""
    total = 0
    prefill, decode = min(1, sums[n, FILLS]), min(1, sums[n, DECODED])
    for group in range(len(group_start) - 1):
        most = 0
        for p in range(group_start[group], group_start[group + 1]):
            value = pieces[p, 0] + pieces[p, 1] * prefill + pieces[p, 2] * decode
            value += pieces[p, 3] * sums[n, FILLS] + pieces[p, 4] * sums[n, DECODED] + pieces[p, 5] * sums[n, TOKENS]
            most = max(most, value + pieces[p, 6] * sums[n, SQUARES] + pieces[p, 8] * sums[n, READS])
        total += most
    return total


@compiled
def arrange(codes: Codes, action: Ints, outputs: Ints, kind: Ints, child: Codes, packed: Packed) -> None:
    """Write the state after a batch, sorted among identical requests, and its packed actions."""
    packed[:] = 0
    for i in range(len(codes)):
        packed[i >> 2] |= np.uint8(action[i] << (2 * (i & 3)))
        code = after_action(codes[i], action[i], outputs[i])
        j = i
        while j > 0 and kind[j - 1] == kind[i] and child[j - 1] > code:
            child[j] = child[j - 1]
            j -= 1
        child[j] = code


@compiled
def expand(tables: Tables, store: Store, partial: Partial, state: int, bound: int, most: int) -> int:
    """Try every batch from a state; EXHAUSTED when done, FULL or STUCK (out of room, or ``most`` tried) when not."""
    outputs, kind, step, mark, limits = tables.outputs, tables.kind, tables.step, tables.mark, tables.limits
    after, capacities, pieces, group_start = tables.state, tables.capacities, tables.pieces, tables.group_start
    action, sums, totals = partial.action, partial.sums, partial.totals
    stored, actions, cost, parent, chain = store.codes, store.actions, store.cost, store.parent, store.chain
    table, heap_bound, heap_cost, heap_state = store.table, store.heap_bound, store.heap_cost, store.heap_state
    counters = store.counters
    n = len(outputs)
    codes, child, packed = stored[state].copy(), stored[state].copy(), actions[state].copy()
    so_far = cost[state]
    base, area, least = so_far, 0, 0
    for i in range(n):
        base += after[i, codes[i], WORK]
        area += after[i, codes[i], ROWS]
        least = max(least, after[i, codes[i], LEFT])
    action[:] = -1
    sums[0, :] = 0
    totals[0, :] = 0
    i, looked = 0, 0
    while i >= 0:
        action[i] += 1
        if action[i] > EVICT:
            action[i] = -1
            i -= 1
            continue
        if i > 0 and kind[i] == kind[i - 1] and codes[i] == codes[i - 1] and action[i] < action[i - 1]:
            action[i] = action[i - 1]
        if not decide(step, mark, limits, i, codes[i], action[i], sums):
            continue
        if partial_bound(sums, i + 1, limits, base, area, least) >= counters[UPPER]:
            continue
        add_request(totals, i, after, i, after_action(codes[i], action[i], outputs[i]))
        if i + 1 < n:
            i += 1
            continue
        looked += 1
        if looked > most or counters[HALT]:
            counters[GENERATED] += looked
            return STUCK
        if needless(codes, action, sums, step, mark, limits):
            continue
        reached = so_far + batch_ticks(sums, n, pieces, group_start)
        estimate = max(bound, reached + remaining_ticks(totals, n, capacities, limits))
        if estimate >= counters[UPPER]:
            continue
        arrange(codes, action, outputs, kind, child, packed)
        slot = find(stored, table, child)
        covered, new = look_up(stored, cost, chain, table[slot], child, reached, mark)
        if covered:
            continue
        if counters[N_STATES] >= len(cost) or counters[N_OPEN] + 1 >= len(heap_bound):
            counters[GENERATED] += looked
            return FULL
        if new < 0:
            new = counters[N_STATES]
            counters[N_STATES] += 1
            stored[new] = child
            if table[slot] < 0:
                table[slot] = new
                chain[new] = -1
            else:
                chain[new] = chain[table[slot]]
                chain[table[slot]] = new
        cost[new], parent[new] = reached, state
        actions[new] = packed
        if totals[n, LEFT] == 0:
            counters[UPPER], counters[BEST] = reached, new
        else:
            push(heap_bound, heap_cost, heap_state, counters, estimate, reached, new)
    counters[GENERATED] += looked
    return EXHAUSTED


@compiled
def search(tables: Tables, store: Store, work: int, most: int) -> int:
    """Expand states, best first, until about ``work`` batches have been tried.

    Returns
    -------
    EXHAUSTED when no open state can lead below the incumbent; PAUSED after the work; STUCK after ``most`` batches of
    one state, or when halted; FULL when the arrays are. A state whose expansion was cut off stays open, so the least
    open bound is valid.
    """
    n = len(tables.outputs)
    partial = Partial(
        np.zeros(n, np.int64), np.zeros((n + 1, 8), np.int64), np.zeros((n + 1, tables.state.shape[2]), np.int64)
    )
    heap_bound, heap_cost, heap_state, counters = store.heap_bound, store.heap_cost, store.heap_state, store.counters
    until = counters[GENERATED] + work
    while counters[GENERATED] < until:
        if counters[N_OPEN] == 0 or heap_bound[0] >= counters[UPPER]:
            return EXHAUSTED
        bound, cost, state = heap_bound[0], heap_cost[0], heap_state[0]
        pop(heap_bound, heap_cost, heap_state, counters)
        if cost != store.cost[state]:
            continue
        first = store.table[find(store.codes, store.table, store.codes[state])]
        if superseded(store.codes, store.cost, store.chain, first, state, tables.mark):
            continue
        outcome = expand(tables, store, partial, state, bound, most)
        counters[EXPANDED] += 1
        if outcome != EXHAUSTED:
            push(heap_bound, heap_cost, heap_state, counters, bound, cost, state)
            return outcome
    return PAUSED
