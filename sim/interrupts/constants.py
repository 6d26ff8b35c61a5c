"""Every constant of the decode-preemption benchmark, with its source. None is fitted to a published result.

Batch times are those of a cost model (`COST_MODEL` unless another is asked for). The rest follows from an LLM's shape
and data sheets. What is a choice rather than a fact says so.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sim.clock import TICKS_PER_MS
from sim.cost.hardware import LINKS, find_gpu
from sim.cost.llm import find_llm
from sim.cost.model import CostModel, Features
from sim.cost.setups import Setup
from sim.replay import SwapLink

COST_MODEL = "linear/llama2-7b-a100"

LLM = find_llm("llama2-7b")
KV_BYTES_PER_TOKEN = LLM.kv_bytes_per_token()
"""fp16: a key and a value per layer and head, 524,288 bytes."""
CONTEXT_TOKENS = LLM.max_context_tokens
LINK = LINKS["pcie4"]
"""The A100's host link, one direction: 31.5 GB/s by its line rate."""
TRANSFER_LATENCY_US = 10
"""Starting a host copy; a choice, the order of a CUDA copy call. It is 1 % of moving 60 tokens."""

# The smaller A100 (data sheet: 40 GB HBM2, same compute and PCIe as the 80 GB card): few slots, so that they run out.
GPU_MEMORY_BYTES = 40 * 10**9
KV_CAPACITY_TOKENS = Setup(LLM, replace(find_gpu("a100"), memory_bytes=GPU_MEMORY_BYTES)).kv_capacity_tokens()
"""What is left beside the weights at vLLM's default share of memory: 42,959 tokens (activations are neglected)."""
MAX_NUM_SEQS = KV_CAPACITY_TOKENS // CONTEXT_TOKENS
"""Slots: requests of full context that fit in memory, what vLLM prints as its maximum concurrency: 10."""
KV_PRESSURE_CAPACITY_TOKENS = CONTEXT_TOKENS
"""Least memory a server starts with: one request of full context (vLLM refuses less)."""
TOKEN_BUDGET = 512
"""Tokens a batch, Sarathi's chunk size in Kim et al. (arXiv:2411.07447), so that no prompt blocks a batch for long."""

KV_PRESSURE_THRESHOLD = 0.75
"""The KV-pressure policy interrupts above this share of allocated KVs; given by the original benchmark."""


@dataclass(frozen=True, slots=True)
class ServiceClass:
    """A class of requests and what it was promised.

    Parameters
    ----------
    ttft_slo_ms, tpot_slo_ms
        Longest time to first token, and per output token after it.
    value
        Weight in the value score.
    """

    name: str
    ttft_slo_ms: float
    tpot_slo_ms: float
    value: int


# Latency limits of MLPerf Inference v5.0 (server scenario): Llama-2-70B interactive, Llama-2-70B, Llama-3.1-405B.
# The weights are a choice: each class is worth twice the next.
CLASSES = (
    ServiceClass("urgent", 450.0, 40.0, 4),
    ServiceClass("standard", 2000.0, 200.0, 2),
    ServiceClass("best_effort", 6000.0, 175.0, 1),
)
"""By priority: 0 urgent (or premium), 1 standard, 2 best effort."""
URGENT, STANDARD, BEST_EFFORT = range(3)


def swap_link(*, overlap: bool = False) -> SwapLink:
    """The PCIe link over which checkpoints travel, one direction."""
    per_token = round(KV_BYTES_PER_TOKEN * 1000 * TICKS_PER_MS / LINK.bandwidth)
    return SwapLink(TRANSFER_LATENCY_US * TICKS_PER_MS // 1000, per_token, overlap)


def transfer_ms_per_mb() -> float:
    """Cost of moving one MB (10^6 bytes) one way, in ms.

    >>> round(transfer_ms_per_mb(), 5)
    0.03174
    """
    return 1e6 / LINK.bandwidth * 1e3


def prefill_ticks(cost: CostModel, tokens: int) -> int:
    """A prompt of this many tokens alone in a batch."""
    return cost.batch_ticks(Features(1, 1, 0, 1, 0, tokens, tokens * tokens, 0, 0))


def prefill_ms_per_token(cost: CostModel, tokens: int = TOKEN_BUDGET) -> float:
    """Slope of a prompt's prefill time: what one more token adds to a batch that prefills this many, in ms.

    >>> from sim.cost.model import load_cost_model
    >>> round(prefill_ms_per_token(load_cost_model(COST_MODEL)), 5)
    0.06662
    """
    return (prefill_ticks(cost, tokens + 1) - prefill_ticks(cost, tokens)) / TICKS_PER_MS
