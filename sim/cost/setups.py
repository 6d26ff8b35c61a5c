"""An LLM on one or several GPUs: its name, and how many KV tokens fit."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sim.cost.hardware import GPUS, Gpu, find_gpu
from sim.cost.llm import LLMS, TENSOR_PARALLEL, Llm, Shard, find_llm
from sim.errors import InputError

DEFAULT_UTILISATION = 0.9
"""Share of GPU memory an engine may use; the default of vLLM's ``gpu_memory_utilization``."""


@dataclass(frozen=True, slots=True)
class Setup:
    """An LLM split over ``tensor_parallel`` GPUs of one kind."""

    llm: Llm
    gpu: Gpu
    tensor_parallel: int = 1

    def __post_init__(self) -> None:
        self.llm.shard(self.tensor_parallel)

    @property
    def shard(self) -> Shard:
        """What one GPU computes."""
        return self.llm.shard(self.tensor_parallel)

    @property
    def name(self) -> str:
        """As in names of cost models.

        >>> find_setup("llama3-70b-4xa100").name
        'llama3-70b-4xa100'
        """
        count = "" if self.tensor_parallel == 1 else f"{self.tensor_parallel}x"
        return f"{self.llm.name}-{count}{self.gpu.name}"

    def kv_capacity_tokens(
        self, *, utilisation: float = DEFAULT_UTILISATION, reserved_bytes: int = 0, bytes_per_element: int = 2
    ) -> int:
        """M: KV tokens that fit beside the weights.

        M = floor((utilisation x memory - weights - reserved) / KV bytes of a token), all per GPU; 0 if the weights do
        not fit.

        Parameters
        ----------
        utilisation
            Share of the memory the engine may use.
        reserved_bytes
            Kept for activations and buffers, per GPU.
        bytes_per_element
            Of weights and KVs (2 for bf16).

        Examples
        --------
        >>> find_setup("llama2-7b-a100").kv_capacity_tokens()
        111624
        """
        free = int(self.gpu.memory_bytes * utilisation) - self.shard.weight_bytes(bytes_per_element) - reserved_bytes
        return max(0, free // self.shard.kv_bytes_per_token(bytes_per_element))


def find_setup(name: str) -> Setup:
    """A setup by name: "llm-gpu" or "llm-Nxgpu".

    Raises
    ------
    InputError
        If the LLM, the GPU or the number of GPUs is unknown.
    """
    match = re.fullmatch(r"(.+)-(?:(\d+)x)?([^-]+)", name)
    if match is None:
        raise InputError('must be "llm-gpu" or "llm-Nxgpu"', field="setup", value=name)
    llm, count, gpu = match.groups()
    return Setup(find_llm(llm), find_gpu(gpu), int(count or 1))


_USUAL_KV_TOKENS = 100_000
"""The M of Kim et al., section 5.1."""


def all_setups() -> list[Setup]:
    """Every LLM on the fewest GPUs of each kind that hold its weights and 100,000 KV tokens."""
    found = []
    for llm in LLMS.values():
        for gpu in GPUS.values():
            for degree in TENSOR_PARALLEL:
                setup = Setup(llm, gpu, degree)
                if setup.kv_capacity_tokens() >= _USUAL_KV_TOKENS:
                    found.append(setup)
                    break
    return found
