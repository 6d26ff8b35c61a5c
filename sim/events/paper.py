"""The paper's schedulers (`sim.schedulers._paper`) from event to event."""

from __future__ import annotations

from dataclasses import dataclass

from sim.admission.asis import AsIs
from sim.admission.pf import PreemptionFree
from sim.clock import TICKS_PER_NS
from sim.cost.model import CostModel, Features
from sim.cost.runs import RunTimer
from sim.events.decoders import Decoders, Key
from sim.instance import Instance
from sim.preemption import nrf, srf
from sim.runs import Run
from sim.schedulers._paper import PaperScheduler
from sim.schedulers.sarathi import Sarathi
from sim.schedulers.vllm import Vllm


@dataclass(frozen=True, slots=True)
class Traits:
    """What tells the paper's schedulers apart.

    Parameters
    ----------
    token_budget
        C in force.
    chunked
        Whether fills may be split.
    decode_first
        Decodes, then fills, in one batch (Sarathi); otherwise prefills alone whenever one fits (vLLM).
    preemption_free
        Whether I + O - 1 is reserved at admission.
    shortest_first
        Victim rule SRF (fewest KVs) instead of NRF (last in order).
    """

    token_budget: int
    chunked: bool
    decode_first: bool
    preemption_free: bool
    shortest_first: bool


def traits_of(scheduler: object) -> Traits | None:
    """Traits of a scheduler object; None if it decides in ways that are not known here."""
    kind = type(scheduler)
    if kind not in (Vllm, Sarathi):
        return None
    assert isinstance(scheduler, PaperScheduler)
    victims = {nrf.order: False, srf.order: True}
    plain = scheduler.rank is None and not scheduler.needs_swap
    if not plain or scheduler.order not in victims or type(scheduler.admission) not in (AsIs, PreemptionFree):
        return None
    preemption_free = type(scheduler.admission) is PreemptionFree
    return Traits(scheduler.token_budget, scheduler.CHUNKED, kind is Sarathi, preemption_free,
                  victims[scheduler.order])  # fmt: skip


class PaperEvents:
    """One run of one of the paper's schedulers on one instance."""

    def __init__(self, instance: Instance, cost: CostModel, traits: Traits) -> None:
        self.instance, self.traits, self.timer = instance, traits, RunTimer(cost)
        self.decoders = Decoders(instance)
        self.generated = self.decoders.generated
        infeasible = set(instance.infeasible())
        self.inputs = [r.input_tokens for r in instance.requests]
        self.outputs = [r.output_tokens for r in instance.requests]
        self.arrival_ticks = [r.arrival_ns * TICKS_PER_NS for r in instance.requests]
        self.arrivals = sorted((i for i in range(len(self.inputs)) if i not in infeasible),
                               key=self.arrival_ticks.__getitem__)  # fmt: skip
        self.arrived = 0
        """How many of ``arrivals`` have been admitted; the queue is ``evicted``, last first, then those after them."""
        self.evicted: list[int] = []
        self.fills: list[list[int]] = []
        """Fills under way as [request, tokens left, tokens done], in order."""
        self.free_blocks = instance.kv_blocks
        self.max_running = instance.max_num_seqs or len(self.inputs)
        self.now_ticks = 0
        self.sequence = self.front = 0
        """Last places given out at the end and at the front of requests that are otherwise equal."""
        self.start_ns: int | None = None
        self.runs: list[Run] = []

    def run(self) -> list[Run]:
        """All runs until everything is finished or nothing moves any more."""
        while self._decode_first() if self.traits.decode_first else self._prefill_first():
            pass
        return self.runs

    def _prefill_first(self) -> bool:
        budget = self.traits.token_budget
        fills = self._admit(budget, len(self.decoders.order))
        if fills:
            self._emit(1, False, fills, ())
            return True
        order = self.decoders.order
        if not order:
            return self._idle()
        held_back = order[budget:]
        for i in held_back:
            self.decoders.leave(i)
        preempt = self._evict_for_decodes(held_back)
        repeat = 1
        if not preempt and not held_back:
            repeat = self._steps(cut_at_arrival=True)
        self._emit(repeat, True, (), preempt)
        for i in reversed(held_back):
            self.front -= 1
            self.decoders.join(i, self._key(i, self.front))
        return True

    def _decode_first(self) -> bool:
        order = self.decoders.order
        if self.traits.shortest_first:
            self.fills.sort(key=lambda fill: -fill[2])
        preempt = self._evict_for_decodes([])
        budget = self.traits.token_budget - len(order)
        fills: tuple[tuple[int, int], ...] = ()
        for i, left, _ in self.fills:
            if budget <= 0:
                break
            fills += ((i, min(left, budget)),)
            budget -= fills[-1][1]
        if not preempt:
            reserved = 0 if self.traits.preemption_free else self.decoders.new_blocks()
            fills += self._admit(budget, len(order) + len(self.fills), reserved)
            budget = self.traits.token_budget - len(order) - sum(c for _, c in fills)
        if not (order or fills or preempt):
            return self._idle()
        repeat = 1
        if not preempt and not fills:
            repeat = self._steps(cut_at_arrival=True)
        elif not preempt and len(fills) == 1 and budget == 0:
            i, c = fills[0]
            repeat = max(1, self._left(i) // c)
            if order and repeat > 1:
                repeat = min(repeat, self._steps(cut_at_arrival=False))
        self._emit(repeat, bool(order), fills, preempt)
        return True

    def _left(self, i: int) -> int:
        return next(left for request, left, _ in self.fills if request == i)

    def _head(self) -> int | None:
        """First of the waiting queue."""
        if self.evicted:
            return self.evicted[-1]
        if self.arrived < len(self.arrivals):
            i = self.arrivals[self.arrived]
            if self.arrival_ticks[i] <= self.now_ticks:
                return i
        return None

    def _idle(self) -> bool:
        """Jump to the next arrival; False if whoever waits can never run, or nobody is left."""
        if self._head() is not None or self.arrived == len(self.arrivals):
            return False
        i = self.arrivals[self.arrived]
        self.now_ticks = self.arrival_ticks[i]
        self.start_ns = self.instance.requests[i].arrival_ns
        return True

    def _admit(self, budget: int, running: int, reserved: int = 0) -> tuple[tuple[int, int], ...]:
        """Admit from the queue's head while the budget and memory but ``reserved`` last; (request, tokens) each."""
        admitted: list[tuple[int, int]] = []
        traits = self.traits
        while budget > 0 and running < self.max_running and (i := self._head()) is not None:
            tokens = self.inputs[i] + self.generated[i]
            need = self._held(i)
            if need > self.free_blocks - reserved or (tokens > budget and not traits.chunked):
                break
            if self.evicted:
                self.evicted.pop()
            else:
                self.arrived += 1
            self.free_blocks -= need
            self.fills.append([i, tokens, 0])
            c = min(tokens, budget)
            admitted.append((i, c))
            budget -= c
            running += 1
        return tuple(admitted)

    def _held(self, i: int) -> int:
        """Blocks a request takes at admission and keeps while it is filled."""
        kv = self.inputs[i] + (self.outputs[i] - 1 if self.traits.preemption_free else self.generated[i])
        return self.instance.blocks(kv)

    def _evict_for_decodes(self, held_back: list[int]) -> tuple[int, ...]:
        """Evict from the end of the order until every decode step finds room; whoever is held back is last."""
        if self.traits.preemption_free or not self.decoders.order:
            return ()
        preempt: list[int] = []
        while self.decoders.new_blocks() > self.free_blocks:
            if self.fills and not self._fill_is_safe():
                i = self.fills.pop()[0]
                self.free_blocks += self._held(i)
            elif held_back:
                i = held_back.pop()
                self.free_blocks += self.instance.blocks(self.inputs[i] + self.generated[i] - 1)
            else:
                i = self.decoders.order[-1]
                self.free_blocks += self.instance.blocks(self.decoders.leave(i))
            self.evicted.append(i)
            preempt.append(i)
        return tuple(preempt)

    def _fill_is_safe(self) -> bool:
        """SRF: whether the last fill has processed more than the last decoder (whose newest token counts)."""
        return self.traits.shortest_first and self.fills[-1][2] > self.decoders.kv(self.decoders.order[-1]) + 1

    def _steps(self, cut_at_arrival: bool) -> int:
        """Decode steps until someone is complete, memory is full, or an arrival that may be admitted."""
        decoders = self.decoders
        steps = decoders.steps_to_completion()
        if steps > 1 and not self.traits.preemption_free:
            steps = min(steps, decoders.steps_within(self.free_blocks))
        if steps > 1 and cut_at_arrival and self._head() is None and self.arrived < len(self.arrivals):
            wait_ticks = self.arrival_ticks[self.arrivals[self.arrived]] - self.now_ticks
            n = len(decoders.order)
            first = Features(1, 0, 1, 0, n, n, 0, 0, decoders.reads)
            steps = self.timer.batches_until(first, Features(0, 0, 0, 0, 0, 0, 0, 0, n), steps, wait_ticks)
        return steps

    def _emit(self, repeat: int, decode: bool, fills: tuple[tuple[int, int], ...], preempt: tuple[int, ...]) -> None:
        """Carry out equal batches."""
        decoders = self.decoders
        left, joined = decoders.changes()
        self.runs.append(Run(repeat, decode, left, joined, fills, (), preempt, self.start_ns))
        self.start_ns = None
        n, reads = (len(decoders.order), decoders.reads) if decode else (0, 0)
        tokens = square = prefill_reads = square_step = 0
        progress = {fill[0]: fill for fill in self.fills} if fills else {}
        for i, c in fills:
            m = progress[i][2]
            tokens += c
            square += c * (c + 2 * m)
            square_step += 2 * c * c
            prefill_reads += m
        p = len(fills)
        if n or p:
            first = Features(1, int(p > 0), int(n > 0), p, n, n + tokens, square, prefill_reads, reads)
            self.now_ticks += self.timer.total(first, Features(0, 0, 0, 0, 0, 0, square_step, tokens, n), repeat)
        if n:
            completed, opened = decoders.advance(repeat)
            if not self.traits.preemption_free:
                self.free_blocks -= opened
            for i in completed:
                self._release(i)
        for i, c in fills:
            fill = progress[i]
            fill[1] -= c * repeat
            fill[2] += c * repeat
            if fill[1] == 0:
                self.fills.remove(fill)
                self.generated[i] += 1
                if self.generated[i] == self.outputs[i]:
                    self._release(i)
                else:
                    self._join(i)

    def _release(self, i: int) -> None:
        self.free_blocks += self.instance.blocks(self.inputs[i] + self.outputs[i] - 1)

    def _join(self, i: int) -> None:
        self.sequence += 1
        self.decoders.join(i, self._key(i, self.sequence))

    def _key(self, i: int, place: int) -> Key:
        arrival = 0 if self.traits.decode_first else self.arrival_ticks[i]
        if self.traits.shortest_first:
            return (self.decoders.steps - self.inputs[i] - self.generated[i], arrival, place)
        return (arrival, place)
