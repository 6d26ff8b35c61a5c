"""What the schedulers of Kim et al.'s simulator share: queues, memory accounting, admission and eviction.

Memory is checked only while a batch is formed, request by request, without look-ahead: a decode needs one free slot, a
new request its whole prefill at once (chunked or not). Victims go to the front of the waiting queue one by one.
"""

from __future__ import annotations

from collections import deque

from sim.instance import Instance
from sim.replay import BatchRecord, State
from sim.schedule import Batch
from sim.schedulers import Options


class PaperScheduler:
    """Base of the paper's schedulers.

    Parameters
    ----------
    instance
        What is scheduled; the smaller of its token budget and `TOKEN_BUDGET` is in force.
    options
        Victim rule and preemption-free admission.
    """

    TOKEN_BUDGET = 4096
    CHUNKED = False

    def __init__(self, instance: Instance, options: Options) -> None:
        self.instance = instance
        self.token_budget = min(self.TOKEN_BUDGET, instance.token_budget)
        self.max_running = instance.max_num_seqs or len(instance.requests)
        self.preemption_free = options.preemption_free
        self.order = options.victim_rule()
        self.waiting: deque[int] = deque()
        self.running: list[int] = []
        self.held: dict[int, int] = {}
        """Blocks allocated per running request."""
        self.used_blocks = 0
        self._process: list[tuple[int, int]] = []
        self._preempt: list[int] = []
        self._budget = 0

    def add(self, i: int, state: State) -> None:
        """A request arrives."""
        self.waiting.append(i)

    def form_batch(self, state: State) -> Batch | None:
        """The next batch, or None when there is nothing to run."""
        self._process, self._preempt, self._budget = [], [], self.token_budget
        self.running = self.order(self.running, state)
        self.fill(state)
        if not self._process and not self._preempt:
            return None
        return Batch(tuple(self._process), tuple(self._preempt))

    def fill(self, state: State) -> None:
        """Place requests with `admit_waiting` and `run_running`; each scheduler's own order."""
        raise NotImplementedError

    def update(self, record: BatchRecord, state: State) -> None:
        """Forget what the batch completed."""
        for i in record.completed:
            self.running.remove(i)
            self._release(i)

    def _hold(self, i: int, blocks: int) -> None:
        self.used_blocks += blocks - self.held.get(i, 0)
        self.held[i] = blocks

    def _release(self, i: int) -> None:
        self.used_blocks -= self.held.pop(i)

    def _place(self, i: int, tokens: int) -> None:
        self._process.append((i, tokens))
        self._budget -= tokens

    def admit_waiting(self, state: State) -> list[int]:
        """Admit from the head of the queue while memory and budget last; the requests admitted, in order."""
        admitted: list[int] = []
        blocks = self.instance.blocks
        while self.waiting and self._budget > 0 and len(self.running) + len(admitted) < self.max_running:
            i = self.waiting[0]
            tokens = state.remaining_fill(i)
            peak = self.instance.requests[i].peak_kv_tokens
            need = blocks(peak if self.preemption_free else tokens)
            if self.used_blocks + need > self.instance.kv_blocks or (tokens > self._budget and not self.CHUNKED):
                break
            self.waiting.popleft()
            self._hold(i, need)
            self._place(i, min(tokens, self._budget))
            admitted.append(i)
        return admitted

    def run_running(self, requests: list[int], state: State) -> list[int]:
        """Decode and continue fills in list order, evicting from the list's end; the requests that stay, in order."""
        left = deque(requests)
        kept = []
        while left and self._budget > 0:
            i = left.popleft()
            if self._make_room(i, left, state):
                self._place(i, min(state.remaining_fill(i), self._budget))
                kept.append(i)
        return [*kept, *left]

    def _make_room(self, i: int, behind: deque[int], state: State) -> bool:
        """Find a slot for a decode step, evicting the last request behind it, or itself when none is left."""
        need = self.instance.blocks(state.kv[i] + 1) if state.ready[i] else self.held[i]
        while need > self.held[i] and self.used_blocks + need - self.held[i] > self.instance.kv_blocks:
            victim = behind.pop() if behind else i
            self._evict(victim)
            if victim == i:
                return False
        self._hold(i, max(need, self.held[i]))
        return True

    def _evict(self, i: int) -> None:
        self._release(i)
        self.waiting.appendleft(i)
        self._preempt.append(i)
