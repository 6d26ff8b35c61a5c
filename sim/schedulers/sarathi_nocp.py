"""Sarathi_nocp as in Kim et al.: decode first, hybrid batches, no chunking; C = 4096."""

from __future__ import annotations

from sim.schedulers.sarathi import Sarathi


class SarathiNoChunking(Sarathi):
    """Decode-first, hybrid batches, whole prefills."""

    TOKEN_BUDGET = 4096
    CHUNKED = False


SCHEDULER = SarathiNoChunking
