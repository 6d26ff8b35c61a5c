"""Shapes of large language models: what their operators read, multiply and store.

Symbols follow Kim et al. (arXiv:2411.07447), section 4.2: h embedding dimension (``hidden``), h' hidden dimension of
the feed-forward block (``intermediate``), N_Q and N_KV query and KV heads, H head dimension. Shapes are those of each
LLM's published ``config.json``.
"""

from __future__ import annotations

from dataclasses import dataclass

from sim.errors import InputError
from sim.registry import unknown


@dataclass(frozen=True, slots=True)
class Llm:
    """One decoder-only Transformer with gated feed-forward blocks.

    Parameters
    ----------
    name
        As used in names of cost models ("llama3-8b").
    title
        As its makers write it.
    layers, hidden, intermediate, query_heads, kv_heads, head_dim, vocabulary
        Shape.
    qkv_bias
        Whether the query, key and value projections have biases.
    max_context_tokens
        Context length it was trained for.
    source
        Where the shape is published.
    """

    name: str
    title: str
    layers: int
    hidden: int
    intermediate: int
    query_heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    max_context_tokens: int
    source: str
    qkv_bias: bool = False

    @property
    def layer_parameters(self) -> int:
        """Weights of one layer, norms included."""
        q, kv = self.query_heads * self.head_dim, self.kv_heads * self.head_dim
        attention = self.hidden * (q + 2 * kv) + q * self.hidden + (q + 2 * kv if self.qkv_bias else 0)
        return attention + 3 * self.hidden * self.intermediate + 2 * self.hidden

    @property
    def parameters(self) -> int:
        """All weights: layers, input and output embeddings (untied), last norm.

        >>> LLMS["llama2-7b"].parameters, LLMS["llama3-70b"].parameters
        (6738415616, 70553706496)
        """
        return self.layers * self.layer_parameters + 2 * self.vocabulary * self.hidden + self.hidden

    def kv_bytes_per_token(self, bytes_per_element: int = 2) -> int:
        """KV cache bytes of one token over all layers.

        >>> LLMS["llama2-7b"].kv_bytes_per_token(), LLMS["llama3-8b"].kv_bytes_per_token()
        (524288, 131072)
        """
        return 2 * self.layers * self.kv_heads * self.head_dim * bytes_per_element

    def shard(self, tensor_parallel: int) -> Shard:
        """What one GPU of a tensor-parallel group holds.

        Raises
        ------
        InputError
            If the degree is not 1, 2, 4 or 8 or does not divide the heads and h'.
        """
        if tensor_parallel not in TENSOR_PARALLEL:
            raise InputError(f"must be one of {TENSOR_PARALLEL}", field="tensor parallel degree", value=tensor_parallel)
        if self.query_heads % tensor_parallel or self.intermediate % tensor_parallel:
            raise InputError(f"does not divide the {self.query_heads} query heads of {self.title}",
                             field="tensor parallel degree", value=tensor_parallel)  # fmt: skip
        return Shard(self, tensor_parallel)


@dataclass(frozen=True, slots=True)
class Shard:
    """The part of an LLM's layer that one of ``tensor_parallel`` GPUs computes; KV heads are copied where too few."""

    llm: Llm
    tensor_parallel: int

    @property
    def query_heads(self) -> int:
        """N_Q per GPU."""
        return self.llm.query_heads // self.tensor_parallel

    @property
    def kv_heads(self) -> int:
        """N_KV per GPU, at least 1."""
        return max(1, self.llm.kv_heads // self.tensor_parallel)

    @property
    def intermediate(self) -> int:
        """h' per GPU."""
        return self.llm.intermediate // self.tensor_parallel

    @property
    def matmuls(self) -> dict[str, tuple[int, int]]:
        """(outputs n, inputs k) of each weight matrix per layer.

        >>> LLMS["llama2-7b"].shard(1).matmuls["UG_proj"]
        (22016, 4096)
        """
        h, dim = self.llm.hidden, self.llm.head_dim
        return {
            "QKV_proj": ((self.query_heads + 2 * self.kv_heads) * dim, h),
            "O_proj": (h, self.query_heads * dim),
            "UG_proj": (2 * self.intermediate, h),
            "D_proj": (h, self.intermediate),
        }

    @property
    def elementwise_elements_per_token(self) -> int:
        """Elements that norms, rotary embedding, activation and residual additions read and write per token."""
        h, dim = self.llm.hidden, self.llm.head_dim
        norms, residuals = 2 * 2 * h, 2 * 3 * h
        rotary = 2 * (self.query_heads + self.kv_heads) * dim
        return norms + residuals + rotary + 3 * self.intermediate

    def weight_bytes(self, bytes_per_element: int = 2) -> int:
        """Bytes of weights on one GPU; all but the norms are split."""
        split = sum(n * k for n, k in self.matmuls.values())
        embeddings = 2 * self.llm.vocabulary * self.llm.hidden // self.tensor_parallel
        norms = (2 * self.llm.layers + 1) * self.llm.hidden
        biases = self.llm.layers * self.matmuls["QKV_proj"][0] if self.llm.qkv_bias else 0
        return (self.llm.layers * split + embeddings + norms + biases) * bytes_per_element

    def kv_bytes_per_token(self, bytes_per_element: int = 2) -> int:
        """KV cache bytes of one token on one GPU."""
        return 2 * self.llm.layers * self.kv_heads * self.llm.head_dim * bytes_per_element


TENSOR_PARALLEL = (1, 2, 4, 8)

_META = "config.json of {} (Hugging Face), Touvron et al. 2023, table 1"
_META3 = "config.json of {} (Hugging Face), Llama 3 herd of models 2024, table 3"

LLMS: dict[str, Llm] = {
    llm.name: llm
    for llm in (
        Llm("llama2-7b", "Llama-2-7B", 32, 4096, 11008, 32, 32, 128, 32000, 4096,
            _META.format("meta-llama/Llama-2-7b-hf")),
        Llm("llama2-70b", "Llama-2-70B", 80, 8192, 28672, 64, 8, 128, 32000, 4096,
            _META.format("meta-llama/Llama-2-70b-hf")),
        Llm("llama3-8b", "Llama-3-8B", 32, 4096, 14336, 32, 8, 128, 128256, 8192,
            _META3.format("meta-llama/Meta-Llama-3-8B")),
        Llm("llama3-70b", "Llama-3-70B", 80, 8192, 28672, 64, 8, 128, 128256, 8192,
            _META3.format("meta-llama/Meta-Llama-3-70B")),
        Llm("mistral-7b", "Mistral-7B-v0.1", 32, 4096, 14336, 32, 8, 128, 32000, 32768,
            "config.json of mistralai/Mistral-7B-v0.1 (Hugging Face), Jiang et al. 2023, table 1"),
        Llm("qwen2.5-7b", "Qwen2.5-7B", 28, 3584, 18944, 28, 4, 128, 152064, 131072,
            "config.json of Qwen/Qwen2.5-7B (Hugging Face), Qwen2.5 technical report 2024", qkv_bias=True),
        Llm("qwen2.5-72b", "Qwen2.5-72B", 80, 8192, 29568, 64, 8, 128, 152064, 131072,
            "config.json of Qwen/Qwen2.5-72B (Hugging Face), Qwen2.5 technical report 2024", qkv_bias=True),
    )
}  # fmt: skip


def find_llm(name: str) -> Llm:
    """An LLM by name, in any case.

    Raises
    ------
    InputError
        If it is unknown; names the nearest one.
    """
    try:
        return LLMS[name.lower()]
    except KeyError:
        raise InputError(unknown(name, list(LLMS)), field="llm") from None
