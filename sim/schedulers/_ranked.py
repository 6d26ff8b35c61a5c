"""Schedulers that keep all requests, waiting and running, in one order of rank and serve the best first.

A running request that finds no memory takes it from the worst-ranked one; if there is none behind it, it holds. The
batches are hybrid and chunked. These schedulers know output lengths: they show what such knowledge is worth.
"""

from __future__ import annotations

from collections import deque
from typing import ClassVar

from sim.errors import InputError
from sim.instance import Instance
from sim.queues import Rank, load_rank
from sim.replay import State
from sim.schedulers import Options
from sim.schedulers._paper import PaperScheduler


class RankedScheduler(PaperScheduler):
    """Base: a file names its queue order.

    Attributes
    ----------
    RANKED_BY
        Name of the queue order (`sim.queues`); smaller ranks are better.
    TAKES_MEMORY
        Whether a waiting request may preempt running ones of strictly worse rank to be admitted.
    """

    CHUNKED = True
    RANKED_BY: ClassVar[str]
    TAKES_MEMORY: ClassVar[bool]

    def __init__(self, instance: Instance, options: Options) -> None:
        if options.victim != "nrf" or options.queue != "fcfs":
            raise InputError("this scheduler ranks victims and queue itself; no rule can be given", field="scheduler")
        super().__init__(instance, options)
        ranked_by = load_rank(self.RANKED_BY)
        assert ranked_by is not None
        self.ranked_by: Rank = ranked_by

    def unchanged_batches(self, state: State) -> int:
        """None while somebody waits: ranks of running requests pass those of waiting ones as they decode."""
        return 0 if self.waiting else super().unchanged_batches(state)

    def fill(self, state: State) -> None:
        """Serve in order of rank; the first waiting request that does not fit ends admission."""
        everybody = sorted((*self.running, *self.waiting),
                           key=lambda i: (self.ranked_by(i, state), state.arrival_ticks[i], i))  # fmt: skip
        behind = deque(i for i in everybody if i in self.memory.held)
        waiting = set(self.waiting)
        admitting, served = True, 0
        for i in everybody:
            if self._budget <= 0 or served == self.max_running:
                break
            if i in self.memory.held:
                behind.popleft()
                if not self._find_slot(i, behind, state):
                    continue
                self.place(i, min(state.remaining_fill(i), self._budget))
            elif i in waiting and admitting:
                if not self._take_memory(i, behind, state):
                    admitting = False
                    continue
                self._admit(i, state)
            else:
                continue
            served += 1
        self.running = [i for i in everybody if i in self.memory.held]
        self.waiting = deque(i for i in everybody if i not in self.memory.held)

    def _find_slot(self, i: int, behind: deque[int], state: State) -> bool:
        """A slot for a running request's step, from the worst-ranked behind it if need be."""
        need = state.kv[i] + 1 if state.ready[i] else 0
        while self.memory.missing(i, need) > self.memory.free_blocks:
            if not behind:
                return False
            self._evict(behind.pop(), state)
        self.memory.hold(i, need)
        return True

    def _take_memory(self, i: int, behind: deque[int], state: State) -> bool:
        """Whether a waiting request can start, after preempting worse-ranked ones where that is allowed and enough."""
        beside = list(self.memory.held)
        missing = self.memory.missing(i, self.admission.hold_tokens(i, state))
        if beside and not self.admission.allows(i, state, self.memory, beside):
            return False
        rank = self.ranked_by(i, state)
        takes = self.TAKES_MEMORY and not self.options.preemption_free
        worse = [r for r in behind if self.ranked_by(r, state) > rank] if takes else []
        if missing > self.memory.free_blocks + sum(self.memory.held[r] for r in worse):
            return False
        while missing > self.memory.free_blocks:
            self._evict(behind.pop(), state)
        return True
