"""Decode-first schedulers: decode steps, then fills under way, then admissions, in one batch."""

from __future__ import annotations

from sim.events.engine import Chunk, EventEngine, Fill


class DecodeFirst(EventEngine):
    """Sarathi and its kin of the paper, and vLLM V1 first come first served.

    Each decoder joined in a batch that held all the others, so they never outnumber the token budget.
    """

    def step(self) -> bool:
        """One run; see `EventEngine.step`."""
        order, traits = self.decoders.order, self.traits
        preempt = self._evict()
        reserved = 0 if traits.reserves_peak else self.decoders.new_blocks()
        chunks = self._continue(traits.token_budget - len(order))
        if traits.blocks_by_chunk and chunks and not self._grow(self.fills[0], chunks[0][1], reserved):
            preempt.append(chunks[0][0])
            self.evict_fill(self.fills[0])
            chunks = []
        budget = traits.token_budget - len(order) - sum(c for _, c in chunks)
        if not preempt:
            admitted = self.admit(budget, len(order) + len(self.fills), reserved)
            chunks += admitted
            budget -= sum(c for _, c in admitted)
        if not (order or chunks or preempt):
            return self.idle()
        repeat = 1 if preempt else self._repeat(chunks, budget)
        self.join(self.emit(repeat, bool(order), chunks, preempt))
        self._line_up(chunks)
        return True

    def _continue(self, budget: int) -> list[Chunk]:
        """Chunks of the fills under way, in order, while the budget lasts."""
        victim = self.traits.victim
        if victim is not None and len(self.fills) > 1:
            self.fills.sort(key=lambda fill: victim.now(self, fill.request, fill.done, False))
        chunks: list[Chunk] = []
        for fill in self.fills:
            if budget <= 0:
                break
            chunks.append((fill.request, min(fill.left, budget)))
            budget -= chunks[-1][1]
        return chunks

    def _grow(self, fill: Fill, tokens: int, reserved: int) -> bool:
        """Give a fill the blocks of its next chunk; False if there are none. It is the last in vLLM's list."""
        more = self.instance.blocks(fill.done + tokens) - self.instance.blocks(fill.done)
        if more > self.free_blocks - reserved:
            return False
        self.free_blocks -= more
        return True

    def _repeat(self, chunks: list[Chunk], budget: int) -> int:
        """How often the batch is formed again."""
        order = self.decoders.order
        if not chunks:
            return self.decode_steps(heed_arrivals=budget > 0)
        if len(chunks) > 1 or len(self.fills) > 1 or budget > 0:
            return 1
        fill, (_, tokens) = self.fills[0], chunks[0]
        repeat = max(1, fill.left // tokens)
        if order and repeat > 1:
            repeat = min(repeat, self.decode_steps(heed_arrivals=False))
        return 1 if self.traits.blocks_by_chunk else repeat

    def _line_up(self, chunks: list[Chunk]) -> None:
        """Fills that were passed over stand in front of everybody from now on, by arrival; the others behind."""
        if not self.fills:
            return
        if len(self.fills) == 1 and chunks and chunks[-1][0] == self.fills[0].request:
            self.fills[0].in_front = False
            return
        continued = {i for i, _ in chunks}
        for fill in self.fills:
            fill.in_front = fill.request not in continued
        passed_over = sorted((f for f in self.fills if f.in_front), key=lambda f: self.arrival_ticks[f.request])
        self.fills = passed_over + [f for f in self.fills if not f.in_front]

    def _evict(self) -> list[int]:
        """Evict from the end of the running list until every decode step finds room."""
        preempt: list[int] = []
        while self.decoders.order and self.wanted_blocks() > self.free_blocks:
            fill = self._last_fill()
            if fill is not None:
                preempt.append(fill.request)
                self.evict_fill(fill)
            else:
                i = self.decoders.order[-1]
                preempt.append(i)
                self.evict(i, self.decoders.leave(i))
        return preempt

    def _last_fill(self) -> Fill | None:
        """The fill that stands behind all decoders, if there is one."""
        if not self.fills:
            return None
        victim = self.traits.victim
        if victim is None:
            return None if self.fills[-1].in_front else self.fills[-1]
        last = self.decoders.order[-1]
        keys = [(victim.now(self, f.request, f.done, False), not f.in_front, n) for n, f in enumerate(self.fills)]
        key, behind, number = max(keys)
        decoder = victim.now(self, last, self.decoders.kv(last), True)
        return self.fills[number] if (key, behind) > (decoder, False) else None
