"""The scheduler of vLLM V1: running requests first, then admissions from the head of the queue, in one batch.

Blocks are allocated chunk by chunk. A running request that finds no block preempts the last of the running list,
possibly itself; then nobody is admitted. Versions differ in admission (rule read from the sources and checked against
runs of the real classes, see docs/schedulers.md).
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from sim.admission import AdmissionParameters, load_admission
from sim.errors import InputError
from sim.instance import Instance
from sim.preemption import load_victim_rule
from sim.queues import load_rank
from sim.replay import BatchRecord, State
from sim.schedule import Batch
from sim.schedulers import Options
from sim.schedulers._memory import Memory
from sim.schedulers._steady import decode_steps_in_memory, hold_decoded, keeps_order, stays_blocked


@dataclass(frozen=True, slots=True)
class V1Parameters(AdmissionParameters):
    """vLLM's own settings, by their names there.

    Parameters
    ----------
    policy
        "fcfs" or "priority" (smaller is more urgent): orders the waiting queue and chooses victims.
    enable_chunked_prefill
        Whether a prefill may be cut to the budget left.
    long_prefill_token_threshold
        Most tokens of one request per batch; 0 for no limit.
    reserve_full_isl
        Admit only if all known tokens fit, not just the first chunk.
    watermark
        Share of blocks that admission leaves free for the running ones.
    max_num_batched_tokens, max_num_seqs
        C and the cap on running requests; 0 for the instance's. The smaller of both is in force.
    seed
        Of the random victim rule.
    """

    policy: str = "fcfs"
    enable_chunked_prefill: bool = True
    long_prefill_token_threshold: int = 0
    reserve_full_isl: bool = True
    watermark: float = 0.0
    max_num_batched_tokens: int = 0
    max_num_seqs: int = 0
    seed: int = 0


class VllmV1:
    """vLLM V1; the defaults are those of 0.33.0.

    Attributes
    ----------
    running, waiting
        Requests in vLLM's order.
    memory
        Blocks allocated.
    """

    DEFAULTS = V1Parameters()
    SKIPS_LONG_PROMPTS = False
    """Without chunking, whether a prompt beyond the budget left is passed over instead of stopping admission."""
    STOPS_AT_OWN_PREEMPTION = False
    """Whether a request that preempts itself ends the pass over the running ones."""
    THRESHOLD_FOR_LONE = False
    """Whether the long-prefill threshold holds for the only request in the system, too."""

    def __init__(self, instance: Instance, options: Options) -> None:
        self.parameters = options.read(self.DEFAULTS)
        if self.parameters.policy not in ("fcfs", "priority"):
            raise InputError("must be fcfs or priority", field="scheduler parameter policy",
                             value=self.parameters.policy)  # fmt: skip
        if options.refill != "recompute" or options.admission == "watermark":
            raise InputError(
                "this scheduler only recomputes, and has a watermark of its own (:watermark=0.01)", field="scheduler"
            )
        self.instance = instance
        self.token_budget = min(self.parameters.max_num_batched_tokens or instance.token_budget, instance.token_budget)
        cap = instance.max_num_seqs or len(instance.requests)
        self.max_running = min(self.parameters.max_num_seqs or cap, cap)
        # vLLM counts one null block more than can be used.
        self.watermark_blocks = int(self.parameters.watermark * (instance.kv_blocks + 1))
        self.order = load_victim_rule(options.victim, self.parameters.seed)
        self.by_priority = self.parameters.policy == "priority"
        self.rank = load_rank(options.queue)
        self.admission = load_admission(
            options.admission, instance, AdmissionParameters(**{f.name: getattr(self.parameters, f.name)
                                                               for f in fields(AdmissionParameters)}),
        )  # fmt: skip
        self.full_holds = options.admission != "asis"
        self.memory = Memory(instance)
        self.waiting: list[int] = []
        self.running: list[int] = []
        self._tokens: dict[int, int] = {}
        self._preempted: list[int] = []
        self._budget = 0

    def add(self, i: int, state: State) -> None:
        """A request arrives."""
        self.waiting.append(i)
        self._sort_waiting(state)

    def update(self, record: BatchRecord, state: State) -> None:
        """Forget what the batch completed."""
        for i in record.completed:
            self.running.remove(i)
            self.memory.release(i)
        self.admission.update(record, state)

    def form_batch(self, state: State) -> Batch | None:
        """The next batch, or None when there is nothing to run."""
        self._tokens, self._preempted, self._budget = {}, [], self.token_budget
        self.running = self.order(self.running, state)
        self._sort_waiting(state)
        self._run_running(state)
        if not self._preempted:
            self._admit(state)
        if not self._tokens and not self._preempted:
            return None
        return Batch(tuple(self._tokens.items()), tuple(self._preempted))

    def unchanged_batches(self, state: State) -> int:
        """See `sim.scheduling.Scheduler`; only if the batch decoded everybody.

        Prompts that are passed over change places in the queue with every batch.
        """
        steady = keeps_order(self.order, self.instance) and stays_blocked(self.admission, bool(self.waiting))
        skips = self.SKIPS_LONG_PROMPTS and not self.parameters.enable_chunked_prefill
        if not steady or (skips and self.waiting) or len(self._tokens) < len(self.running):
            return 0
        return decode_steps_in_memory(self.memory, len(self.running))

    def repeated(self, state: State) -> None:
        """The batch has been repeated."""
        hold_decoded(self.memory, self.running, state)

    def _sort_waiting(self, state: State) -> None:
        if self.by_priority:
            self.waiting.sort(key=lambda i: self.urgency(i, state))
        elif self.rank is not None:
            rank = self.rank
            self.waiting.sort(key=lambda i: rank(i, state))

    def urgency(self, i: int, state: State) -> tuple[int, int, int]:
        """Priority, then arrival; smaller is more urgent."""
        return state.instance.requests[i].priority, state.arrival_ticks[i], i

    def _chunk(self, i: int, state: State) -> int:
        """Tokens of request i that the threshold lets into one batch."""
        rest = state.remaining_fill(i)
        threshold = self.parameters.long_prefill_token_threshold
        lone = len(self.running) + len(self.waiting) == 1
        if threshold and (self.THRESHOLD_FOR_LONE or not lone):
            return min(rest, threshold)
        return rest

    def _run_running(self, state: State) -> None:
        position = 0
        while position < len(self.running) and self._budget > 0:
            i = self.running[position]
            tokens = min(self._chunk(i, state), self._budget)
            victim = None
            while victim != i and self.memory.missing(i, state.kv[i] + tokens) > self.memory.free_blocks:
                victim = self._victim(state)
                placed = self.running.index(victim) < position
                self._preempt(victim, state)
                position -= self._take_back(victim, placed)
            if victim == i:
                if self.STOPS_AT_OWN_PREEMPTION:
                    return
                continue
            self.memory.hold(i, state.kv[i] + tokens)
            self._place(i, tokens)
            position += 1

    def _victim(self, state: State) -> int:
        if self.by_priority:
            return max(self.running, key=lambda i: self.urgency(i, state))
        return self.running[-1]

    def _preempt(self, victim: int, state: State) -> None:
        self.running.remove(victim)
        self.memory.release(victim)
        self._preempted.append(victim)
        self.waiting.insert(0, victim)
        self._sort_waiting(state)

    def _take_back(self, victim: int, placed: bool) -> int:
        """Take a victim's entry out of the batch; how far the requests still to be looked at move up the list."""
        if placed:
            self._budget += self._tokens.pop(victim)
        return int(placed)

    def _place(self, i: int, tokens: int) -> None:
        self._tokens[i] = tokens
        self._budget -= tokens

    def _admit(self, state: State) -> None:
        skipped: list[int] = []
        while self.waiting and self._budget > 0 and len(self.running) < self.max_running:
            i = self.waiting[0]
            tokens = self._chunk(i, state)
            if tokens > self._budget and not self.parameters.enable_chunked_prefill:
                if not self.SKIPS_LONG_PROMPTS:
                    break
                skipped.insert(0, self.waiting.pop(0))
                continue
            tokens = min(tokens, self._budget)
            hold = self.admission.hold_tokens(i, state) if self.full_holds else state.kv[i] + tokens
            if not self._fits(i, hold, state):
                break
            self.waiting.pop(0)
            self.memory.hold(i, hold)
            self.running.append(i)
            self._place(i, tokens)
        self.waiting = [*skipped, *self.waiting]
        self._sort_waiting(state)

    def _fits(self, i: int, hold: int, state: State) -> bool:
        known = state.sequence_tokens(i) if self.parameters.reserve_full_isl else 0
        kept = self.watermark_blocks if self.running else 0
        if self.memory.missing(i, max(hold, known)) + kept > self.memory.free_blocks:
            return False
        return not self.running or self.admission.allows(i, state, self.memory, self.running)
