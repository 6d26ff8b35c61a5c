"""vLLM V0 (0.6.3.post1) with chunked prefill: running requests first, then new prefills, in one batch."""

from __future__ import annotations

from sim.replay import State
from sim.schedulers._vllm_v0 import VllmV0

NAME = "vllm-v0-chunked"


class VllmV0Chunked(VllmV0):
    """Decode first, hybrid batches; admits even in a batch that preempts, and ignores priorities."""

    CHUNKED = True

    def schedule(self, state: State) -> list[tuple[int, int]]:
        """Running requests, swap-ins, then prefills; victims are put back only afterwards."""
        decodes, fills = self.run_running(state)
        swapped_in, swapped_fills = self.swap_in(state)
        prefills = self.admit_waiting(state)
        self.put_back_victims()
        # Whoever the budget left out stands first from now on.
        self.running.extend(i for i, _ in (*swapped_in, *swapped_fills, *decodes, *fills, *prefills))
        return [*prefills, *fills, *swapped_fills, *decodes, *swapped_in]


SCHEDULER = VllmV0Chunked
