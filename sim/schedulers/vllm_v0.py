"""vLLM V0 (0.6.3.post1) without chunking: prefills only whenever one fits, decodes otherwise."""

from __future__ import annotations

from sim.replay import State
from sim.schedulers._vllm_v0 import VllmV0

NAME = "vllm-v0"


class VllmV0Default(VllmV0):
    """Prefill first; priorities preempt only in batches without prefill."""

    def schedule(self, state: State) -> list[tuple[int, int]]:
        """Prefills (none while somebody is swapped out), else decodes and, if nobody was evicted, swap-ins."""
        self._sequences = len(self.running)
        prefills = [] if self.swapped else self.admit_waiting(state)
        if prefills:
            self.running.extend(i for i, _ in prefills)
            return prefills
        if self.by_priority:
            self.preempt_for_urgent(state)
        decodes, _ = self.run_running(state)
        swapped_in, _ = self.swap_in(state)
        self.put_back_victims()
        entries = [*decodes, *swapped_in]
        self.running.extend(i for i, _ in entries)
        return entries


SCHEDULER = VllmV0Default
