"""vLLM as in Kim et al.: prefill first, prefills only whenever one fits, decodes otherwise; C = 4096."""

from __future__ import annotations

from collections import deque

from sim.replay import State
from sim.schedulers._paper import PaperScheduler


class Vllm(PaperScheduler):
    """Prefill-first, prefill and decode never in one batch, no chunking."""

    PREFILL_ONLY = True

    def fill(self, state: State) -> None:
        """Admit; unless something was admitted (and batches are not hybrid), decode in order of arrival.

        In a hybrid batch new prefills stand ahead of old decodes of the same arrival from then on.
        """
        admitted = self.admit_waiting(state)
        if admitted and self.PREFILL_ONLY:
            self.running += admitted
            return
        by_arrival = sorted(self.running, key=lambda i: state.arrival_ticks[i])
        left = deque(self.order(by_arrival, state))
        decodes, _ = self.run_decodes(left, state)
        self.running = [*left, *admitted, *decodes]


SCHEDULER = Vllm
