"""Look-ahead: checks the future KV profile instead of reserving each peak (knows output lengths).

If every running request decodes in every batch from now on, request r holds s + t KVs after t batches more, until it
completes O - k batches from now. A request starts only if the sum never exceeds M. Peaks that fall at different times
may thus share memory. With fills cut into chunks by the token budget the forecast is not exact, and a preemption can
still happen.
"""

from __future__ import annotations

from sim.admission.asis import AsIs
from sim.replay import State
from sim.schedulers._memory import Memory


class LookAhead(AsIs):
    """Admit if the forecast fits."""

    def allows(self, i: int, state: State, memory: Memory, running: list[int]) -> bool:
        """Whether the forecast with request i never exceeds the memory."""
        slack = self.instance.block_size - 1
        capacity = memory.total_blocks * self.instance.block_size
        forecast = [self._forecast(r, state) for r in (*running, i)]
        lives = sorted(((left, held + slack) for left, held in forecast if left), reverse=True)
        tokens = 0
        for alive, (left, held) in enumerate(lives, start=1):
            tokens += held
            last_of_equals = alive == len(lives) or lives[alive][0] != left
            if last_of_equals and tokens + alive * (left - 1) > capacity:
                return False
        return True

    def _forecast(self, r: int, state: State) -> tuple[int, int]:
        """(batches left with KVs to hold, KVs in the first of them) of a request.

        A fill in a prefill-only batch is over before the others' next decode step; its own batch needs no forecast.
        """
        left, held = state.outputs[r] - state.generated[r], state.sequence_tokens(r)
        if state.ready[r]:
            return left, held
        if self.prefill_only:
            return left - 1, held + 1
        return left + -(-state.remaining_fill(r) // self.instance.token_budget) - 1, held


RULE = LookAhead
