"""What the engines ask of a scheduler, how they run it, and how they notice that it goes in circles."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import Protocol

from sim.clock import TICKS_PER_NS
from sim.errors import StoppedError
from sim.replay import BatchRecord, State
from sim.schedule import Batch


class Scheduler(Protocol):
    """What the engine asks of a scheduler. It may read the `State` but never change it.

    It may also define ``unchanged_batches(state) -> int``, asked after a batch of decode steps in which nobody was
    preempted or completed: how often `form_batch` would return that batch again if nobody arrived or completed, going
    by nothing but memory. The event engine then carries those batches out at once, as many as it can, and calls
    ``repeated(state)`` instead of `form_batch` and `update`.
    """

    def add(self, i: int, state: State) -> None:
        """Request i has arrived."""

    def form_batch(self, state: State) -> Batch | None:
        """The next batch; None when nothing can run now."""

    def update(self, record: BatchRecord, state: State) -> None:
        """The batch has been carried out."""


class Livelock:
    """Notices a scheduler that evicts and refills in circles, so that no request generates a token any more."""

    PATIENCE, REPEATS = 1000, 3

    def __init__(self) -> None:
        self.quiet = 0
        self.seen: Counter[int] = Counter()

    def after(self, record: BatchRecord, state: State) -> bool:
        """Whether the same memory came back several times long after the last token."""
        if any(entry.generates for entry in record.entries):
            self.quiet = 0
            self.seen.clear()
            return False
        self.quiet += 1
        if self.quiet < self.PATIENCE:
            return False
        memory = hash((tuple(state.kv), tuple(state.ready), tuple(state.host_kv), tuple(state.done)))
        self.seen[memory] += 1
        return self.seen[memory] > self.REPEATS


class Service:
    """A scheduler at work on a state: requests are handed over as they arrive, its batches carried out.

    Attributes
    ----------
    arrivals
        Requests still to come, those that can never fit left out.
    """

    def __init__(self, scheduler: Scheduler, state: State, until: Callable[[], bool] | None = None) -> None:
        self.scheduler, self.state, self.until = scheduler, state, until
        self.infeasible = frozenset(state.instance.infeasible())
        feasible = (i for i in range(len(state.instance.requests)) if i not in self.infeasible)
        self.arrivals = deque(sorted(feasible, key=state.arrival_ticks.__getitem__))

    @property
    def next_arrival_ticks(self) -> int | None:
        """Of those still to come."""
        return self.state.arrival_ticks[self.arrivals[0]] if self.arrivals else None

    def batches(self) -> Iterator[tuple[Batch, BatchRecord]]:
        """Each batch once it is carried out, until all is done or nothing more can be; `StoppedError` once told to."""
        state, arrivals, livelock = self.state, self.arrivals, Livelock()
        idle_until_ns: int | None = None
        while state.unfinished > len(self.infeasible):
            if self.until is not None and self.until():
                raise StoppedError
            now = state.now_ticks if idle_until_ns is None else idle_until_ns * TICKS_PER_NS
            while arrivals and state.arrival_ticks[arrivals[0]] <= now:
                self.scheduler.add(arrivals.popleft(), state)
            state.release_completed()
            batch = self.scheduler.form_batch(state)
            if batch is None:
                if not arrivals:
                    return
                idle_until_ns = state.instance.requests[arrivals[0]].arrival_ns
                continue
            if idle_until_ns is not None:
                batch, idle_until_ns = batch.starting(idle_until_ns), None
            record = state.apply(batch)
            self.scheduler.update(record, state)
            yield batch, record
            if livelock.after(record, state) and not arrivals:
                return
