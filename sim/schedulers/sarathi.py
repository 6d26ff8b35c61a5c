"""Sarathi as in Kim et al.: decode first, then fills under way, then new ones, in chunks and one batch; C = 512."""

from __future__ import annotations

from sim.replay import State
from sim.schedulers._paper import PaperScheduler


class Sarathi(PaperScheduler):
    """Decode-first, hybrid batches, chunked prefill."""

    TOKEN_BUDGET = 512
    CHUNKED = True

    def fill(self, state: State) -> None:
        """Decodes, then fills under way, then new requests; nobody is admitted in a batch that preempts."""
        decodes = [i for i in self.running if state.ready[i]]
        fills = [i for i in self.running if not state.ready[i]]
        self.running = self.run_running([*decodes, *fills], state)
        if not self._preempt:
            self.running += self.admit_waiting(state)


SCHEDULER = Sarathi
