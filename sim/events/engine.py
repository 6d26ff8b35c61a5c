"""The event engine: forms whole runs of equal batches. `EventEngine` keeps the books, its two subclasses decide."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from sim.clock import TICKS_PER_NS
from sim.cost.model import CostModel, Features
from sim.cost.runs import RunTimer
from sim.events.decoders import Decoders, Key
from sim.events.traits import Traits
from sim.events.waiting import Waiting
from sim.instance import Instance
from sim.runs import Run

Chunk = tuple[int, int]
"""(request, tokens)."""


class Fill:
    """A fill under way: tokens left and done, and whether the last batch passed it over, which puts it in front."""

    __slots__ = ("done", "in_front", "left", "request")

    def __init__(self, request: int, left: int) -> None:
        self.request, self.left, self.done, self.in_front = request, left, 0, False


class EventEngine:
    """One run of one scheduler on one instance; subclasses say how a batch is formed."""

    instance: Instance
    outputs: list[int]
    arrival_ticks: list[int]

    def __init__(self, instance: Instance, cost: CostModel, traits: Traits) -> None:
        self.instance, self.traits, self.timer = instance, traits, RunTimer(cost)
        self.inputs = [r.input_tokens for r in instance.requests]
        self.outputs = [r.output_tokens for r in instance.requests]
        self.arrival_ticks = [r.arrival_ns * TICKS_PER_NS for r in instance.requests]
        self.decoders = Decoders(instance)
        self.generated = self.decoders.generated
        """Tokens generated, true for whoever is not among the decoders."""
        infeasible = set(instance.infeasible())
        rank = traits.rank
        self.waiting = Waiting(
            self.arrival_ticks, [i for i in range(len(self.inputs)) if i not in infeasible],
            None if rank is None else lambda i: rank(i, self),  # type: ignore[arg-type]
        )  # fmt: skip
        self.fills: list[Fill] = []
        self.free_blocks = instance.kv_blocks
        self.now_ticks = 0
        self.start_ns: int | None = None
        self.runs: list[Run] = []
        self._last, self._first = 0, 0
        self._completed: defaultdict[int, int] = defaultdict(int)
        self._total_tokens: defaultdict[int, int] = defaultdict(int)

    def run(self) -> list[Run]:
        """All runs until everything is finished or nothing moves any more."""
        while self.step():
            pass
        return self.runs

    def step(self) -> bool:
        """Append the next run, or wait for an arrival; False at the end."""
        raise NotImplementedError

    def generated_now(self, i: int) -> int:
        """Tokens generated, of a decoder too."""
        return self.decoders.kv(i) + 1 - self.inputs[i] if self.decoders.has(i) else self.generated[i]

    def idle(self) -> bool:
        """Jump to the next arrival; False if whoever waits can never run, or nobody is left."""
        i = self.waiting.next_arrival()
        if i is None or not self.waiting.heeds_arrivals(self.now_ticks):
            return False
        self.now_ticks = self.arrival_ticks[i]
        self.start_ns = self.instance.requests[i].arrival_ns
        return True

    def admit(self, budget: int, running: int, reserved: int = 0) -> tuple[Chunk, ...]:
        """Admit from the queue's head while the budget and memory but ``reserved`` last."""
        admitted: list[Chunk] = []
        traits, waiting = self.traits, self.waiting
        while budget > 0 and running < traits.max_running and (i := waiting.head(self.now_ticks)) is not None:
            tokens = self.inputs[i] + self.generated[i]
            if traits.ignores_unfit and self._never_fits(i, tokens):
                waiting.pop()
                continue
            chunk = tokens if tokens <= budget else budget
            if (chunk < tokens and not traits.chunked) or not self._fits(i, tokens, chunk, running, reserved):
                break
            waiting.pop()
            self.fills.append(Fill(i, tokens))
            self.free_blocks -= self._taken_blocks(i, tokens, chunk)
            admitted.append((i, chunk))
            budget -= chunk
            running += 1
        return tuple(admitted)

    def _taken_blocks(self, i: int, tokens: int, chunk: int) -> int:
        """Blocks a request is given at admission."""
        if self.traits.reserves_peak:
            return self.instance.blocks(self.inputs[i] + self.outputs[i] - 1)
        return self.instance.blocks(chunk if self.traits.blocks_by_chunk else tokens)

    def _never_fits(self, i: int, tokens: int) -> bool:
        blocks = self._taken_blocks(i, tokens, tokens)
        return tokens > self.traits.token_budget or self.instance.kv_blocks - blocks < self.traits.kept_blocks

    def _fits(self, i: int, tokens: int, chunk: int, running: int, reserved: int) -> bool:
        traits, free = self.traits, self.free_blocks - reserved
        need = self._taken_blocks(i, tokens, chunk)
        if traits.blocks_by_chunk and traits.admits_whole:
            need = self.instance.blocks(tokens)
        if running or traits.kept_when_alone:
            need += traits.kept_blocks
            if running and traits.histogram:
                need = max(need, self.instance.blocks(self._expected_tokens(i)))
        return need <= free

    def _expected_tokens(self, i: int) -> int:
        """Mean I + O of completed requests with a prompt of about this length, as `sim.admission.hist` has it."""
        bucket = self.inputs[i].bit_length()
        completed = self._completed[bucket]
        return -(-self._total_tokens[bucket] // completed) if completed else 0

    def evict(self, i: int, kv: int | None = None) -> None:
        """Count a victim's blocks as free (``kv`` of a decoder that has left) and put it in front of the queue."""
        if kv is not None:
            self.free_blocks += self.instance.blocks(kv)
        self.waiting.put_first(i)

    def evict_fill(self, fill: Fill) -> None:
        """Evict a fill under way."""
        self.fills.remove(fill)
        tokens = fill.done if self.traits.blocks_by_chunk else fill.done + fill.left
        self.evict(fill.request, tokens)

    def wanted_blocks(self) -> int:
        """Free blocks without which the next decode step preempts somebody."""
        if self.traits.reserves_peak:
            return 0
        decoders = self.decoders
        wanted = decoders.new_blocks()
        if self.traits.wants_free_block and decoders.order and not decoders.opens_block(decoders.order[-1]):
            wanted += 1
        return wanted

    def decode_steps(self, heed_arrivals: bool) -> int:
        """Decode steps until someone is complete, memory is full, or an arrival that may be admitted."""
        decoders = self.decoders
        steps = decoders.steps_to_completion()
        if steps > 1 and not self.traits.reserves_peak:
            free = self.free_blocks - (1 if self.traits.wants_free_block else 0)
            steps = max(1, min(steps, decoders.steps_within(free)))
        if steps > 1 and heed_arrivals and self.waiting.heeds_arrivals(self.now_ticks):
            i = self.waiting.next_arrival()
            assert i is not None
            n = len(decoders.order)
            first = Features(1, 0, 1, 0, n, n, 0, 0, decoders.reads)
            grow = Features(0, 0, 0, 0, 0, 0, 0, 0, n)
            steps = self.timer.batches_until(first, grow, steps, self.arrival_ticks[i] - self.now_ticks)
        return steps

    def emit(
        self, repeat: int, decode: bool, chunks: Sequence[Chunk] = (), preempt: Sequence[int] = (), in_front: int = 0
    ) -> list[int]:
        """Carry out equal batches.

        Parameters
        ----------
        chunks
            What the fills process in each batch.
        in_front
            Chunks that stand before the decode steps in the batch.

        Returns
        -------
        Requests whose fills are complete and which are not; in order, not yet among the decoders.
        """
        decoders = self.decoders
        left, joined = decoders.changes()
        places = tuple(range(in_front))
        self.runs.append(Run(repeat, decode, left, joined, tuple(chunks), places, tuple(preempt), self.start_ns))
        self.start_ns = None
        n, reads = (len(decoders.order), decoders.reads) if decode else (0, 0)
        tokens = square = prefill_reads = square_step = 0
        progress = {fill.request: fill for fill in self.fills} if chunks else {}
        for i, c in chunks:
            m = progress[i].done
            tokens += c
            square += c * (c + 2 * m)
            square_step += 2 * c * c
            prefill_reads += m
        p = len(chunks)
        if n or p:
            first = Features(1, int(p > 0), int(n > 0), p, n, n + tokens, square, prefill_reads, reads)
            self.now_ticks += self.timer.total(first, Features(0, 0, 0, 0, 0, 0, square_step, tokens, n), repeat)
        if n:
            completed, opened = decoders.advance(repeat)
            if not self.traits.reserves_peak:
                self.free_blocks -= opened
            for i in completed:
                self._complete(i)
        return self._progress([(progress[i], c * repeat) for i, c in chunks])

    def _progress(self, done: list[tuple[Fill, int]]) -> list[int]:
        """Move fills on; who of them is ready now."""
        ready = []
        for fill, tokens in done:
            i = fill.request
            fill.left -= tokens
            fill.done += tokens
            if fill.left == 0:
                self.fills.remove(fill)
                self.generated[i] += 1
                if self.generated[i] == self.outputs[i]:
                    self._complete(i)
                else:
                    ready.append(i)
        return ready

    def _complete(self, i: int) -> None:
        self.free_blocks += self.instance.blocks(self.inputs[i] + self.outputs[i] - 1)
        if self.traits.histogram:
            bucket = self.inputs[i].bit_length()
            self._completed[bucket] += 1
            self._total_tokens[bucket] += self.inputs[i] + self.outputs[i]

    def join(self, requests: Sequence[int], *, first: bool = False) -> None:
        """Put ready requests among the decoders, behind (or before) those whose keys are otherwise equal."""
        if first:
            self._first -= len(requests)
        for place, i in enumerate(requests):
            if first:
                number = self._first + place
            else:
                self._last += 1
                number = self._last
            self.decoders.join(i, self._key(i, number))

    def _key(self, i: int, number: int) -> Key:
        arrival = (self.arrival_ticks[i],) if self.traits.orders_by_arrival else ()
        victim = self.traits.victim
        if victim is None:
            return (*arrival, number)
        key = victim.now(self, i, self.inputs[i] + self.generated[i] - 1, True)
        if victim.drift:
            key = (key[0] + victim.drift * self.decoders.steps,)
        return (*key, *arrival, number)
