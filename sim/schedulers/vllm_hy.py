"""vLLM_hy as in Kim et al.: prefill first, prefills and decodes in one batch; C = 4096."""

from __future__ import annotations

from sim.schedulers.vllm import Vllm


class VllmHybrid(Vllm):
    """Prefill-first, hybrid batches, no chunking."""

    PREFILL_ONLY = False


SCHEDULER = VllmHybrid
