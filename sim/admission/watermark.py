"""Watermark: keeps int(w x blocks) free for those already running (parameter ``watermark``, default 0.01, as vLLM)."""

from __future__ import annotations

from sim.admission.asis import AsIs
from sim.replay import State
from sim.schedulers._memory import Memory


class Watermark(AsIs):
    """Admit while the watermark stays free."""

    def allows(self, i: int, state: State, memory: Memory, running: list[int]) -> bool:
        """Whether the watermark is free after allocating."""
        kept = int(self.parameters.watermark * memory.total_blocks)
        return memory.free_blocks - memory.missing(i, self.hold_tokens(i, state)) >= kept


RULE = Watermark
