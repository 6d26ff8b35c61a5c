"""The scheduler of vLLM V0 (0.6.3.post1): separate passes over running, swapped and waiting requests.

Blocks for a whole known sequence are allocated at admission, which leaves a watermark free. A decode step wants a free
block even if the request's last one has room. Rules read from the sources and checked against runs of the real
classes, see docs/schedulers.md.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from sim.cost.model import CostModel
from sim.cost.swap import DEFAULT_LATENCY_US, swap_link
from sim.errors import InputError
from sim.instance import Instance
from sim.preemption import load_victim_rule
from sim.replay import BatchRecord, State, SwapLink
from sim.schedule import Batch
from sim.schedulers import Options
from sim.schedulers._memory import Memory
from sim.schedulers._steady import decode_steps_in_memory, hold_decoded, keeps_order

Entry = tuple[int, int]
"""Request and tokens to process."""


@dataclass(frozen=True, slots=True)
class V0Parameters:
    """vLLM's own settings, by their names there.

    Parameters
    ----------
    policy
        "fcfs" or "priority" (smaller is more urgent).
    watermark
        Share of blocks that admission leaves free.
    max_num_batched_tokens, max_num_seqs
        C and the cap on running requests; 0 for the instance's. The smaller of both is in force.
    seed
        Of the random victim rule.
    swap_link, swap_latency_us
        The way to host memory (`sim.cost.swap.swap_link`); the GPU's own link by default.
    """

    policy: str = "fcfs"
    watermark: float = 0.01
    max_num_batched_tokens: int = 0
    max_num_seqs: int = 0
    seed: int = 0
    swap_link: str = ""
    swap_latency_us: int = DEFAULT_LATENCY_US


class VllmV0:
    """What both modes share.

    Attributes
    ----------
    running, waiting, swapped
        Requests in vLLM's order.
    ignored
        Requests given up because their tokens can never fit, as vLLM does.
    memory
        Blocks allocated.
    """

    CHUNKED = False

    def __init__(self, instance: Instance, options: Options) -> None:
        self.parameters = parameters = options.read(V0Parameters())
        if parameters.policy not in ("fcfs", "priority"):
            raise InputError("must be fcfs or priority", field="scheduler parameter policy", value=parameters.policy)
        if options.refill == "cheapest" or options.queue != "fcfs" or options.admission not in ("asis", "pf"):
            raise InputError("this scheduler takes the suffixes pf and swap and a victim rule only", field="scheduler")
        self.instance = instance
        self.token_budget = min(parameters.max_num_batched_tokens or instance.token_budget, instance.token_budget)
        cap = instance.max_num_seqs or len(instance.requests)
        # vLLM refuses a budget below the cap: decode steps do not look at the budget.
        self.max_running = min(parameters.max_num_seqs or cap, cap, self.token_budget)
        self.watermark_blocks = int(parameters.watermark * instance.kv_blocks)
        self.by_priority = parameters.policy == "priority"
        self.preemption_free = options.preemption_free
        self.needs_swap = options.refill == "swap"
        self.order = load_victim_rule(options.victim, parameters.seed)
        self.memory = Memory(instance)
        self.waiting: deque[int] = deque()
        self.running: deque[int] = deque()
        self.swapped: deque[int] = deque()
        self.ignored: list[int] = []
        self._preempt: list[int] = []
        self._swap_out: list[int] = []
        self._swap_in: list[int] = []
        self._budget = 0
        self._sequences = 0
        self._put_back = 0
        self._decoded = 0

    def swap_link(self, cost: CostModel) -> SwapLink:
        """The link to use where the rules name none."""
        return swap_link(cost.name, self.parameters.swap_link, latency_us=self.parameters.swap_latency_us)

    def add(self, i: int, state: State) -> None:
        """A request arrives."""
        self.waiting.append(i)

    def update(self, record: BatchRecord, state: State) -> None:
        """Forget what the batch completed."""
        for i in record.completed:
            self.running.remove(i)
            self.memory.release(i)

    def form_batch(self, state: State) -> Batch | None:
        """The next batch, or None when there is nothing to run."""
        self._preempt, self._swap_out, self._swap_in = [], [], []
        self._budget, self._sequences, self._put_back = self.token_budget, 0, 0
        self.running = deque(self.order(list(self.running), state))
        process = self.schedule(state)
        self._decoded = len(process)
        if not (process or self._preempt or self._swap_out):
            return None
        return Batch(tuple(process), tuple(self._preempt), swap_out=tuple(self._swap_out),
                     swap_in=tuple(self._swap_in))  # fmt: skip

    def unchanged_batches(self, state: State) -> int:
        """See `sim.scheduling.Scheduler`; only if the batch decoded everybody. An urgent one may begin to preempt."""
        steady = keeps_order(self.order, self.instance) and not (self.by_priority and self.waiting)
        if not steady or self.needs_swap or self._decoded < len(self.running):
            return 0
        return decode_steps_in_memory(self.memory, len(self.running), spare_blocks=1, reserved=self.preemption_free)

    def repeated(self, state: State) -> None:
        """The batch has been repeated."""
        hold_decoded(self.memory, list(self.running), state)

    def schedule(self, state: State) -> list[Entry]:
        """The mode's passes; the entries of the batch in vLLM's order."""
        raise NotImplementedError

    def urgency(self, i: int, state: State) -> tuple[int, int, int]:
        """Priority, then arrival; smaller is more urgent."""
        return state.instance.requests[i].priority, state.arrival_ticks[i], i

    def admit_waiting(self, state: State) -> list[Entry]:
        """New prefills from the head of the queue; stops at the first that does not fit."""
        admitted = []
        while self.waiting:
            i = self.waiting[0]
            rest = state.remaining_fill(i)
            tokens = min(rest, self._budget) if self.CHUNKED else rest
            hold = self._hold_tokens(i, state)
            if tokens > self.token_budget or self._never_fits(hold):
                self.ignored.append(self.waiting.popleft())
                continue
            if not tokens or not self._fits_now(i, hold) or not self._can_schedule(tokens):
                break
            self.waiting.popleft()
            self.memory.hold(i, hold)
            self._count(tokens)
            admitted.append((i, tokens))
        return admitted

    def run_running(self, state: State) -> tuple[list[Entry], list[Entry]]:
        """Decodes and fills under way in list order, evicting from the list's end; (decodes, fills).

        What the budget leaves over stays in `running`.
        """
        decodes: list[Entry] = []
        fills: list[Entry] = []
        while self.running:
            i = self.running[0]
            tokens = min(state.remaining_fill(i), self._budget) if self.CHUNKED else state.remaining_fill(i)
            if not tokens:
                break
            self.running.popleft()
            if not self._make_room(i, state):
                continue
            self._budget -= tokens
            if self.CHUNKED:
                self._sequences += 1
            (decodes if state.ready[i] else fills).append((i, tokens))
        return decodes, fills

    def _make_room(self, i: int, state: State) -> bool:
        """Find the free block a step wants, evicting the last of `running`, or the request itself when alone."""
        while self._wanted_blocks(i, state) > self.memory.free_blocks:
            victim = self.running.pop() if self.running else i
            self.memory.release(victim)
            (self._swap_out if self.needs_swap else self._preempt).append(victim)
            if victim == i:
                return False
        self.memory.hold(i, state.kv[i] + 1 if state.ready[i] else state.sequence_tokens(i))
        return True

    def _wanted_blocks(self, i: int, state: State) -> int:
        """Free blocks wanted before a step: one, unless everything is reserved or a fill ends at a block's end."""
        if self.preemption_free:
            return 0
        return int(state.ready[i] or state.sequence_tokens(i) % self.instance.block_size != 0)

    def put_back_victims(self) -> None:
        """Victims of `run_running` join their queues: the front of the waiting one, the last victim first."""
        self.waiting.extendleft(self._preempt[self._put_back :])
        self.swapped.extend(self._swap_out)

    def swap_in(self, state: State) -> tuple[list[Entry], list[Entry]]:
        """Swapped requests in order of eviction, if there was none in this batch; (decodes, fills)."""
        decodes: list[Entry] = []
        fills: list[Entry] = []
        while self.swapped and len(self._preempt) == self._put_back and not self._swap_out:
            i = self.swapped[0]
            rest = state.remaining_fill(i) - state.host_kv[i]
            tokens = min(rest, self._budget) if self.CHUNKED else rest
            hold = state.sequence_tokens(i)
            if not tokens or not self._fits_now(i, hold) or not self._can_schedule(tokens):
                break
            self._swap_in.append(self.swapped.popleft())
            self.memory.hold(i, hold)
            self._count(tokens)
            (decodes if state.host_ready[i] else fills).append((i, tokens))
        return decodes, fills

    def preempt_for_urgent(self, state: State) -> None:
        """With priorities: the head of the queue takes memory and slots from strictly less urgent running requests.

        It is prefilled in the next batch at the earliest.
        """
        running = deque(sorted(self.running, key=lambda i: self.urgency(i, state)))
        if self.waiting:
            i = self.waiting.popleft()
            tokens = state.remaining_fill(i)
            while running and self.urgency(running[-1], state) > self.urgency(i, state):
                if self._fits_now(i, self._hold_tokens(i, state)) and self._can_schedule(tokens):
                    break
                victim = running.pop()
                self._sequences -= 1
                self.memory.release(victim)
                self._preempt.append(victim)
                self.waiting.appendleft(victim)
            self.waiting.appendleft(i)
            self._put_back = len(self._preempt)
        self.waiting = deque(sorted(self.waiting, key=lambda i: self.urgency(i, state)))
        self.running = running

    def _hold_tokens(self, i: int, state: State) -> int:
        if self.preemption_free:
            return self.instance.requests[i].peak_kv_tokens
        return state.sequence_tokens(i)

    def _never_fits(self, kv_tokens: int) -> bool:
        return self.memory.total_blocks - self.instance.blocks(kv_tokens) < self.watermark_blocks

    def _fits_now(self, i: int, kv_tokens: int) -> bool:
        return self.memory.free_blocks - self.memory.missing(i, kv_tokens) >= self.watermark_blocks

    def _can_schedule(self, tokens: int) -> bool:
        return tokens <= self._budget and self._sequences + 1 <= self.max_running

    def _count(self, tokens: int) -> None:
        self._budget -= tokens
        self._sequences += 1
