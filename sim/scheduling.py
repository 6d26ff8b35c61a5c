"""What the engines ask of a scheduler, and how they notice that it goes in circles."""

from __future__ import annotations

from collections import Counter
from typing import Protocol

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
