"""Prefill-first schedulers: admit what fits; decode if nothing was admitted, or beside it in hybrid batches."""

from __future__ import annotations

from sim.events.engine import EventEngine


class PrefillFirst(EventEngine):
    """vLLM and vLLM_hy of the paper, and vLLM V0 without chunking. There are no fills under way between batches."""

    def step(self) -> bool:
        """One run; see `EventEngine.step`."""
        order, traits = self.decoders.order, self.traits
        prefills = self.admit(traits.token_budget, len(order))
        if prefills and not traits.hybrid:
            self.join(self.emit(1, False, prefills))
            return True
        if not order and not prefills:
            return self.idle()
        budget = traits.token_budget - sum(c for _, c in prefills) if traits.caps_decodes else len(order)
        held_back = order[budget:]
        for i in held_back:
            self.decoders.leave(i)
        preempt = self._evict(held_back)
        repeat = 1
        if order and not (prefills or preempt or held_back):
            repeat = self.decode_steps(heed_arrivals=True)
        ready = self.emit(repeat, bool(order), prefills, preempt, in_front=len(prefills))
        self.join([*held_back, *ready], first=True)
        return True

    def _evict(self, held_back: list[int]) -> list[int]:
        """Evict from the end of the order, whoever is held back first, until every decode step finds room."""
        preempt: list[int] = []
        order = self.decoders.order
        while order and self.wanted_blocks() > self.free_blocks:
            if held_back:
                i = held_back.pop()
                self.evict(i, self.inputs[i] + self.generated[i] - 1)
            else:
                i = order[-1]
                self.evict(i, self.decoders.leave(i))
            preempt.append(i)
        return preempt
