"""Drive the compiled best-first search: start it, give it room, stop it in time, read off schedule and bound."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from csp.search.space import EVICT, PROCESS, TOKENS, Space, first_bound
from sim.schedule import Batch, Schedule

if TYPE_CHECKING:
    from csp.search._store import Store

MOST_BYTES = 3 * 2**30
"""Memory the search may take before it stops with what it has proven."""
_EXPANSIONS = 2_000
_WORK = 2_000_000
_FIRST_STATES = 2**16
_NEVER = 2**62


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found and proved.

    Parameters
    ----------
    schedule, value_ticks
        Best schedule below the given upper bound; None if none was found.
    lower_bound_ticks
        Proven for whole fills: the least bound of an open state, or the best value when none is left.
    proven
        Whether nothing below the best value remains.
    states, expanded, generated
        Stored, expanded, and batches tried.
    """

    schedule: Schedule | None
    value_ticks: int | None
    lower_bound_ticks: int
    proven: bool
    states: int
    expanded: int
    generated: int


def search_best_first(
    space: Space,
    upper_ticks: int | None = None,
    *,
    stopped: Callable[[], bool] = lambda: False,
    report: Callable[[int | None, int], None] = lambda value, bound: None,
    most_bytes: int = MOST_BYTES,
) -> Found:
    """Look for a schedule below an upper bound until there is none, or told to stop.

    Parameters
    ----------
    upper_ticks
        Cost of a known schedule; only better ones are looked for.
    stopped
        Asked about twenty times a second.
    report
        Called with (value of a better schedule or None, proven lower bound).
    most_bytes
        Memory for states; the search ends when it is used up.
    """
    from csp.search import _kernel as kernel
    from csp.search import _store as keys

    store = _new_store(space, _FIRST_STATES)
    bound = _start(store, space, upper_ticks)
    counters, outcome = store.counters, kernel.PAUSED
    while not stopped():
        outcome = kernel.search(space.tables, store, _EXPANSIONS, _WORK)
        counters = store.counters
        if outcome == kernel.EXHAUSTED:
            break
        bound = max(bound, int(store.heap_bound[0]))
        report(int(counters[keys.UPPER]) if counters[keys.BEST] >= 0 else None, bound)
        if outcome == kernel.FULL:
            if 2 * _bytes(store) > most_bytes:
                break
            store = _grown(store)
    proven = outcome == kernel.EXHAUSTED
    best = int(counters[keys.BEST])
    value = int(counters[keys.UPPER]) if best >= 0 else None
    if proven and counters[keys.UPPER] < _NEVER:
        bound = int(counters[keys.UPPER])
    schedule = None if best < 0 else _schedule(store, space, best)
    numbers = (int(counters[c]) for c in (keys.N_STATES, keys.EXPANDED, keys.GENERATED))
    return Found(schedule, value, bound, proven, *numbers)


def _new_store(space: Space, states: int) -> Store:
    from csp.search._store import Store

    n, most = len(space.order), int(space.tables.outputs.max())
    dtype = np.uint8 if 2 * most < 2**8 else np.uint16
    return Store(
        np.zeros((states, n), dtype), np.zeros((states, -(-n // 4)), np.uint8), np.zeros(states, np.int64),
        np.zeros(states, np.int32), np.zeros(states, np.int32), np.full(2 * states, -1, np.int32),
        np.zeros(states, np.int64), np.zeros(states, np.int64), np.zeros(states, np.int32), np.zeros(6, np.int64),
    )  # fmt: skip


def _start(store: Store, space: Space, upper_ticks: int | None) -> int:
    """Store the first state (all codes 0) and open it; its bound."""
    from csp.search import _store as keys

    bound = first_bound(space.tables)
    store.counters[:] = (0, 0, 0, 0, -1, _NEVER if upper_ticks is None else upper_ticks)
    store.parent[0] = store.chain[0] = -1
    store.table[keys.find(store.codes, store.table, store.codes[0])] = 0
    store.counters[keys.N_STATES] = 1
    keys.push(store.heap_bound, store.heap_cost, store.heap_state, store.counters, bound, 0, 0)
    return bound


def _bytes(store: Store) -> int:
    return sum(array.nbytes for array in store)


def _grown(store: Store) -> Store:
    """The same search with twice the room."""
    from csp.search._store import Store, rehash

    def double(name: str, array: Any) -> Any:
        return array if name == "counters" else np.concatenate([array, np.zeros_like(array)])

    larger = Store(*(double(name, array) for name, array in store._asdict().items()))
    larger.table[:] = -1
    rehash(store, larger)
    return larger


def _schedule(store: Store, space: Space, state: int) -> Schedule:
    """Batches along the way to a state, with identical requests told apart again."""
    steps = []
    while store.parent[state] >= 0:
        parent = int(store.parent[state])
        steps.append((store.codes[parent], store.actions[state]))
        state = parent
    who = list(space.order)
    batches = []
    for codes, packed in reversed(steps):
        actions = [int(packed[i >> 2]) >> (2 * (i & 3)) & 3 for i in range(len(who))]
        batches.append(_batch(space, codes.tolist(), actions, who))
        who = _reordered(space, codes.tolist(), actions, who)
    return Schedule(tuple(batches))


def _batch(space: Space, codes: list[int], actions: list[int], who: list[int]) -> Batch:
    step = space.tables.step
    process = tuple(sorted(
        (who[i], int(step[i, codes[i], TOKENS])) for i, a in enumerate(actions) if a == PROCESS
    ))  # fmt: skip
    return Batch(process, tuple(sorted(who[i] for i, a in enumerate(actions) if a == EVICT)))


def _reordered(space: Space, codes: list[int], actions: list[int], who: list[int]) -> list[int]:
    """Who stands where after a batch: identical requests are sorted by their new codes, stably."""
    outputs, kind = space.tables.outputs, space.tables.kind
    after = []
    for i, (code, action) in enumerate(zip(codes, actions, strict=True)):
        if action == PROCESS:
            k = (code >> 1) + 1
            code = 2 * k + (k < outputs[i])
        after.append(int(code) - (action == EVICT))
    positions = sorted(range(len(who)), key=lambda i: (kind[i], after[i]))
    return [who[i] for i in positions]
