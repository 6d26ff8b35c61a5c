"""vLLM as in Kim et al.: prefill first, prefills only whenever one fits, decodes otherwise; C = 4096."""

from __future__ import annotations

from sim.replay import State
from sim.schedulers._paper import PaperScheduler


class Vllm(PaperScheduler):
    """Prefill-first, prefill and decode never in one batch, no chunking."""

    def fill(self, state: State) -> None:
        """Admit; only if nothing was admitted, decode in order of arrival (then by victim rule)."""
        admitted = self.admit_waiting(state)
        if admitted:
            self.running += admitted
            return
        by_arrival = sorted(self.running, key=lambda i: state.arrival_ticks[i])
        self.running = self.run_running(self.order(by_arrival, state), state)


SCHEDULER = Vllm
