"""Where the best-first search keeps its states, compiled: growing arrays, a hash table and a heap.

States with the same tokens generated form a chain, found by hashing, in which rule "resident"
(`csp.search.dominance`) is checked.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from csp.search._bounds import Codes
from csp.search._jit import compiled
from csp.search.space import KEEP, Ints

N_STATES, N_OPEN, EXPANDED, GENERATED, BEST, UPPER, HALT = range(7)
"""Counters: states stored, open entries, expansions, batches looked at, best complete state (-1), its cost; 1 halts."""

Indices = npt.NDArray[np.int32]
Packed = npt.NDArray[np.uint8]


class Store(NamedTuple):
    """Arrays that hold the search.

    Attributes
    ----------
    codes, actions
        Per state, its codes, and how its parent's batch led to it (two bits per position of the parent).
    cost, parent, chain
        Ticks so far, the state it came from, the next state with the same tokens generated (-1 at the end).
    table
        Hash table over tokens generated: first state of a chain, or -1.
    heap_bound, heap_cost, heap_state
        Open entries, a binary heap by bound; one whose cost is no longer its state's is out of date.
    counters
        See `N_STATES` and the following.
    """

    codes: Codes
    actions: Packed
    cost: Ints
    parent: Indices
    chain: Indices
    table: Indices
    heap_bound: Ints
    heap_cost: Ints
    heap_state: Indices
    counters: Ints


@compiled
def push(
    heap_bound: Ints, heap_cost: Ints, heap_state: Indices, counters: Ints, bound: int, cost: int, state: int
) -> None:  # fmt: skip
    """Add an open entry."""
    p = counters[N_OPEN]
    counters[N_OPEN] += 1
    while p > 0:
        up = (p - 1) >> 1
        if heap_bound[up] <= bound:
            break
        heap_bound[p], heap_cost[p], heap_state[p] = heap_bound[up], heap_cost[up], heap_state[up]
        p = up
    heap_bound[p], heap_cost[p], heap_state[p] = bound, cost, state


@compiled
def pop(heap_bound: Ints, heap_cost: Ints, heap_state: Indices, counters: Ints) -> None:
    """Remove the first open entry."""
    counters[N_OPEN] -= 1
    n = counters[N_OPEN]
    bound, cost, state = heap_bound[n], heap_cost[n], heap_state[n]
    p = 0
    while 2 * p + 1 < n:
        down = 2 * p + 1
        if down + 1 < n and heap_bound[down + 1] < heap_bound[down]:
            down += 1
        if heap_bound[down] >= bound:
            break
        heap_bound[p], heap_cost[p], heap_state[p] = heap_bound[down], heap_cost[down], heap_state[down]
        p = down
    heap_bound[p], heap_cost[p], heap_state[p] = bound, cost, state


@compiled
def find(stored: Codes, table: Indices, codes: Codes) -> int:
    """Slot of the hash table where the states with these tokens generated are, or belong."""
    mask = len(table) - 1
    mixed = np.uint64(1469598103934665603)
    for i in range(len(codes)):
        mixed = (mixed ^ np.uint64(codes[i] >> 1)) * np.uint64(1099511628211)
    mixed ^= mixed >> np.uint64(29)
    slot = np.int64(mixed & np.uint64(mask))
    while table[slot] >= 0:
        known, same = table[slot], True
        for i in range(len(codes)):
            if stored[known, i] >> 1 != codes[i] >> 1:
                same = False
                break
        if same:
            break
        slot = (slot + 1) & mask
    return int(slot)


@compiled
def covers(stored: Codes, other: int, codes: Codes, mark: Ints) -> bool:
    """Whether a stored state holds all that ``codes`` hold, and more only where keeping loses nothing."""
    for i in range(len(codes)):
        known, code = stored[other, i], codes[i]
        if known != code and (known < code or mark[i, known, KEEP] == 0):
            return False
    return True


@compiled
def look_up(
    stored: Codes, cost: Ints, chain: Indices, first: int, codes: Codes, reached: int, mark: Ints
) -> tuple[bool, int]:  # fmt: skip
    """Whether a state of the chain makes this one needless; the state itself if it is known (or -1)."""
    other, equal = first, -1
    while other >= 0:
        if covers(stored, other, codes, mark):
            if cost[other] <= reached:
                return True, -1
            same = True
            for i in range(len(codes)):
                if stored[other, i] != codes[i]:
                    same = False
                    break
            if same:
                equal = other
        other = chain[other]
    return False, equal


@compiled
def superseded(stored: Codes, cost: Ints, chain: Indices, first: int, state: int, mark: Ints) -> bool:
    """Whether another state of the chain has made a stored one needless since."""
    codes, other = stored[state], first
    while other >= 0:
        if other != state and cost[other] <= cost[state] and covers(stored, other, codes, mark):
            return True
        other = chain[other]
    return False


@compiled
def rehash(store: Store, larger: Store) -> None:
    """Fill the hash table of a larger copy: every chain's first state into its slot there."""
    for slot in range(len(store.table)):
        first = store.table[slot]
        if first >= 0:
            larger.table[find(larger.codes, larger.table, larger.codes[first])] = first
