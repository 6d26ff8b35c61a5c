"""Sarathi_{C=S} as in Kim et al.: Sarathi with the context size as token budget; C = 4096."""

from __future__ import annotations

from sim.schedulers.sarathi import Sarathi


class SarathiContextSize(Sarathi):
    """Decode-first, hybrid batches, chunked prefill with a large budget."""

    TOKEN_BUDGET = 4096


SCHEDULER = SarathiContextSize
