"""Sarathi as in Kim et al.: decode first, then fills under way, then new ones, in chunks and one batch; C = 512."""

from __future__ import annotations

from collections import deque

from sim.replay import State
from sim.schedulers._paper import PaperScheduler


class Sarathi(PaperScheduler):
    """Decode-first, hybrid batches, chunked prefill."""

    TOKEN_BUDGET = 512
    CHUNKED = True

    def fill(self, state: State) -> None:
        """Decodes, then fills under way, then new requests; nobody is admitted in a batch that preempts.

        The next batch's order is that of this one, behind whoever the budget left out.
        """
        left = deque(self.order(self.running, state))
        decodes, fills = self.run_decodes(left, state)
        continued = 0
        while continued < len(fills) and self._budget > 0:
            i = fills[continued]
            self.place(i, min(state.remaining_fill(i), self._budget))
            continued += 1
        left_out = sorted([*fills[continued:], *left], key=lambda i: state.arrival_ticks[i])
        self.running = [*left_out, *decodes, *fills[:continued]]
        if not self.preempted():
            self.running += self.admit_waiting(state)


SCHEDULER = Sarathi
