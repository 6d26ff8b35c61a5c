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
_WORK = 100_000
"""Batches tried between looks at the clock; some 0.1 s."""
_MOST_BATCHES = 200_000_000
"""Batches of one state beyond which the search gives up."""
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


class BestFirst:
    """A search that another thread may halt, or tell of better schedules.

    Parameters
    ----------
    upper_ticks
        Cost of a known schedule; only better ones are looked for.
    most_bytes
        Memory for states; the search ends when it is used up.
    """

    def __init__(self, space: Space, upper_ticks: int | None = None, most_bytes: int = MOST_BYTES) -> None:
        self.space, self.most_bytes = space, most_bytes
        self._store = _new_store(space, _FIRST_STATES)
        self._counters = self._store.counters
        self._bound = _start(self._store, space, upper_ticks)
        self._exhausted = False

    def halt(self) -> None:
        """End soon, also in the midst of a state's batches."""
        from csp.search import _store as keys

        self._counters[keys.HALT] = 1

    def run(
        self, *, stopped: Callable[[], bool] = lambda: False,
        report: Callable[[int | None, int], None] = lambda value, bound: None,
        better: Callable[[], int | None] = lambda: None,
    ) -> Found:  # fmt: skip
        """Search until nothing below the best value is left, memory is used up, or told to stop.

        Parameters
        ----------
        stopped
            Asked about ten times a second.
        report
            Called with (value of a better schedule or None, proven lower bound).
        better
            Asked for the cost of the best schedule found elsewhere meanwhile.
        """
        from csp.search import _kernel as kernel
        from csp.search import _store as keys

        counters, most = self._counters, _WORK
        while not stopped() and not counters[keys.HALT]:
            elsewhere = better()
            if elsewhere is not None and elsewhere < counters[keys.UPPER]:
                counters[keys.UPPER], counters[keys.BEST] = elsewhere, -1
            outcome = kernel.search(self.space.tables, self._store, _WORK, most)
            self._exhausted = outcome == kernel.EXHAUSTED
            if self._exhausted:
                break
            self._bound = max(self._bound, int(self._store.heap_bound[0]))
            report(int(counters[keys.UPPER]) if counters[keys.BEST] >= 0 else None, self._bound)
            if outcome == kernel.STUCK:
                most *= 4
            if most > _MOST_BATCHES or (outcome == kernel.FULL and not self._grow()):
                break
        return self._found()

    def _grow(self) -> bool:
        if 2 * sum(array.nbytes for array in self._store) > self.most_bytes:
            return False
        self._store = _grown(self._store)
        return True

    def _found(self) -> Found:
        from csp.search import _store as keys

        counters = self._counters
        best, upper = int(counters[keys.BEST]), int(counters[keys.UPPER])
        bound = upper if self._exhausted and upper < _NEVER else self._bound
        numbers = (int(counters[c]) for c in (keys.N_STATES, keys.EXPANDED, keys.GENERATED))
        schedule = None if best < 0 else _schedule(self._store, self.space, best)
        return Found(schedule, upper if best >= 0 else None, bound, self._exhausted, *numbers)


def search_best_first(space: Space, upper_ticks: int | None = None, **options: Any) -> Found:
    """Run a `BestFirst` search in this thread; options as for its `run`, and ``most_bytes``."""
    return BestFirst(space, upper_ticks, options.pop("most_bytes", MOST_BYTES)).run(**options)


def _new_store(space: Space, states: int) -> Store:
    from csp.search._store import Store

    n, most = len(space.order), int(space.tables.outputs.max())
    dtype = np.uint8 if 2 * most < 2**8 else np.uint16
    return Store(
        np.zeros((states, n), dtype), np.zeros((states, -(-n // 4)), np.uint8), np.zeros(states, np.int64),
        np.zeros(states, np.int32), np.zeros(states, np.int32), np.full(2 * states, -1, np.int32),
        np.zeros(states, np.int64), np.zeros(states, np.int64), np.zeros(states, np.int32), np.zeros(7, np.int64),
    )  # fmt: skip


def _start(store: Store, space: Space, upper_ticks: int | None) -> int:
    """Store the first state (all codes 0) and open it; its bound."""
    from csp.search import _store as keys

    bound = first_bound(space.tables)
    store.counters[:] = (0, 0, 0, 0, -1, _NEVER if upper_ticks is None else upper_ticks, 0)
    store.parent[0] = store.chain[0] = -1
    store.table[keys.find(store.codes, store.table, store.codes[0])] = 0
    store.counters[keys.N_STATES] = 1
    keys.push(store.heap_bound, store.heap_cost, store.heap_state, store.counters, bound, 0, 0)
    return bound


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
    """Batches along the way to a state."""
    steps = []
    while store.parent[state] >= 0:
        parent, packed = int(store.parent[state]), store.actions[state]
        actions = [int(packed[i >> 2]) >> (2 * (i & 3)) & 3 for i in range(len(space.order))]
        steps.append((store.codes[parent].tolist(), actions))
        state = parent
    return schedule_from_steps(space, list(reversed(steps)))


def schedule_from_steps(space: Space, steps: list[tuple[list[int], list[int]]]) -> Schedule:
    """Batches of (codes before, actions), with identical requests told apart again."""
    who = list(space.order)
    batches = []
    for codes, actions in steps:
        batches.append(_batch(space, codes, actions, who))
        who = _reordered(space, codes, actions, who)
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
