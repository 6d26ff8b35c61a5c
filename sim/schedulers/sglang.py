"""Prefix-aware and prefill-first, after SGLang: unused prefixes go first (LRU), then unshared leaves; C = 4096.

Kim et al., section 8.2: the tree of prefixes is kept, only what a request does not share is dropped, victims by rule
(SRF: the shortest leaf). One level of prefixes; without them, or under rules that do not share them, every request is a
leaf.

Admission keeps room for a share of the outputs still to come of everybody running (SGLang's new token ratio): it falls
from `ratio_start` to `ratio_floor` in `decay_batches` decode batches, and a preemption raises it to the share of
outputs seen so far, with `retract_steps` tokens a request to spare. The output limit a client would set is taken as O.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from sim.errors import InputError
from sim.instance import Instance
from sim.preemption import load_victim_rule
from sim.replay import BatchRecord, State
from sim.schedule import Batch
from sim.schedulers import Options

NAME = "sglang"


@dataclass(frozen=True, slots=True)
class Parameters:
    """``token_budget``: C; ``seed``: of the random victim rule; the others: see above."""

    token_budget: int = 4096
    seed: int = 0
    ratio_start: float = 0.7
    ratio_floor: float = 0.098
    decay_batches: int = 600
    retract_steps: int = 20


class Sglang:
    """A batch is prefills only whenever any fits, else decodes.

    Of requests whose common prefix is not resident yet only one is filled in a batch; the others then find it.
    """

    def __init__(self, instance: Instance, options: Options) -> None:
        parameters = options.read(Parameters())
        if options.refill != "recompute" or options.queue != "fcfs" or options.admission != "asis":
            raise InputError("takes a victim rule only; its admission and queue are its own", field="scheduler",
                             value="sglang")  # fmt: skip
        self.parameters = parameters
        self.ratio = parameters.ratio_start
        self.instance = instance
        self.token_budget = min(parameters.token_budget, instance.token_budget)
        self.max_running = instance.max_num_seqs or len(instance.requests)
        self.order = load_victim_rule(options.victim, parameters.seed)
        self.waiting: deque[int] = deque()
        self.running: list[int] = []
        self.last_used: dict[str, int] = {}
        self.free = 0
        self.dropped: list[str] = []

    def add(self, i: int, state: State) -> None:
        """A request arrives."""
        self.waiting.append(i)

    def form_batch(self, state: State) -> Batch | None:
        """Prefills if any fits, else decodes; None when there is nothing to run."""
        self.free = self.instance.kv_blocks - state.kv_blocks
        self.dropped = []
        admitted = self._admit(state)
        if admitted:
            self.running += [i for i, _ in admitted]
            return Batch(tuple(admitted), drop_prefix=tuple(self.dropped))
        if not self.running:
            return None
        decodes, victims = self._decode(state)
        self._adapt(bool(victims), state)
        if not decodes and not victims:
            return None
        return Batch(tuple((i, 1) for i in decodes), tuple(victims), drop_prefix=tuple(self.dropped))

    def update(self, record: BatchRecord, state: State) -> None:
        """Forget what the batch completed; note which prefixes were used."""
        done = set(record.completed)
        self.running = [i for i in self.running if i not in done]
        for entry in record.entries:
            name = self.instance.requests[entry.request].prefix
            if name is not None:
                self.last_used[name] = state.batches

    def _adapt(self, preempted: bool, state: State) -> None:
        """Lower the share of outputs to keep room for, or raise it after a preemption."""
        p = self.parameters
        if not preempted:
            self.ratio = max(p.ratio_floor, self.ratio - (p.ratio_start - p.ratio_floor) / p.decay_batches)
            return
        outputs = sum(state.outputs[i] for i in self.running)
        seen = sum(state.generated[i] + p.retract_steps for i in self.running)
        self.ratio = min(1.0, seen / outputs) if outputs else p.ratio_start

    def _reserve(self, i: int, state: State) -> int:
        """Blocks to keep free for a request's outputs still to come."""
        return self.instance.blocks(int((state.outputs[i] - state.generated[i]) * self.ratio))

    def _admit(self, state: State) -> list[tuple[int, int]]:
        admitted: list[tuple[int, int]] = []
        computing: set[str] = set()
        later: list[int] = []
        budget = self.token_budget
        reserve = sum(self._reserve(i, state) for i in self.running)
        while self.waiting and budget > 0 and len(self.running) + len(admitted) < self.max_running:
            i = self.waiting.popleft()
            name = self.instance.requests[i].prefix if state.prefixes is not None else None
            if name in computing:
                later.append(i)
                continue
            tokens = state.remaining_fill(i)
            resident = state.prefixes is not None and name in state.prefixes.resident and name not in self.dropped
            if name in self.dropped:
                tokens = state.sequence_tokens(i)
            alone = not self.running and not admitted
            reserve += self._reserve(i, state)
            blocks = self._fill_blocks(i, resident, state)
            if tokens > budget or not self._room(blocks + (0 if alone else reserve), state, keep=name):
                self.waiting.appendleft(i)
                break
            self.free -= blocks
            if name is not None and not resident:
                computing.add(name)
            admitted.append((i, tokens))
            budget -= tokens
        self.waiting.extendleft(reversed(later))
        return admitted

    def _fill_blocks(self, i: int, resident: bool, state: State) -> int:
        request, sequence = self.instance.requests[i], state.sequence_tokens(i)
        if state.prefixes is None or request.prefix is None:
            return self.instance.blocks(sequence)
        own = self.instance.blocks(max(0, sequence - request.prefix_tokens))
        return own if resident else own + self.instance.blocks(request.prefix_tokens)

    def _room(self, blocks: int, state: State, keep: str | None = None) -> bool:
        """Whether so many blocks can be had, dropping unused prefixes, least recently used first, as needed."""
        if self.free >= blocks:
            return True
        candidates = self._unused(state, keep)
        sizes = {name: self.instance.blocks(tokens) for name, tokens in candidates.items()}
        if self.free + sum(sizes.values()) < blocks:
            return False
        for name in sorted(sizes, key=lambda name: self.last_used.get(name, -1)):
            if self.free >= blocks:
                break
            self.free += sizes[name]
            self.dropped.append(name)
        return True

    def _unused(self, state: State, keep: str | None) -> dict[str, int]:
        if state.prefixes is None:
            return {}
        wanted = {keep, *(self.instance.requests[i].prefix for i in self.running)}
        return {name: tokens for name, tokens in state.prefixes.resident.items()
                if not state.prefixes.users[name] and name not in wanted and name not in self.dropped}  # fmt: skip

    def _decode(self, state: State) -> tuple[list[int], list[int]]:
        left = deque(self.order(list(self.running), state))
        decodes: list[int] = []
        victims: list[int] = []
        while left and len(decodes) < self.token_budget:
            i = left.popleft()
            own = state.own_kv(i)
            need = self.instance.blocks(own + 1) - self.instance.blocks(own)
            placed = True
            while not self._room(need, state):
                victim = left.pop() if left else i
                victims.append(victim)
                self.free += self.instance.blocks(state.own_kv(victim))
                if victim == i:
                    placed = False
                    break
            if placed:
                self.free -= need
                decodes.append(i)
        gone = set(victims)
        self.running = [i for i in self.running if i not in gone]
        self.waiting.extendleft(victims)
        return decodes, victims


SCHEDULER = Sglang
