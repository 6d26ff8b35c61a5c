"""vLLM V1 as of 0.33.0: admits only what fits whole, with an optional watermark."""

from __future__ import annotations

from sim.schedulers._vllm_v1 import VllmV1

NAME = "vllm-v1-0.33"
SCHEDULER = VllmV1
