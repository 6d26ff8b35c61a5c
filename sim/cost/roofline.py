r"""Roofline: the least time an operator can take by the data sheet (Kim et al., section 4.2, equations 2-4).

`operators` counts FLOPs and bytes of each operator of a batch exactly as the equations say, per GPU and layer:

=============  ==========================================  ======================================================
operator       FLOPs                                       elements read and written
=============  ==========================================  ======================================================
n x k matmul   2 T n k                                     n k + T (n + k)
attention      4 c (c + m) H N_Q per request               2 c H N_Q + 2 c (c + m) N_Q
                                                           + 2 ceil(c / H) (c + m) H N_KV per request
elementwise    0                                           norms, rotary embedding, activation, residuals: linear in T
all-reduce     0                                           2 x 2 (G - 1) / G T h over NVLink, G GPUs (ring)
=============  ==========================================  ======================================================

Equation 3 as printed lacks the factor B in its first term; here every request counts its own c. The time of an operator
is max(FLOPs / peak, bytes / bandwidth); bytes = elements x 2 for bf16. The output matrix and the embedding, which are
not part of a layer, are left out, as in the paper.

`roofline_cost_model` is the same in the form all cost models share, affine pieces of `Features`. Matmuls, elementwise
operators, all-reduce and decode attention are exact. Prefill attention is affine only after two steps:

* sum c (c + m) becomes Q = sum c^2 + 2 c m: equal for whole fills (m = 0); for a chunk it counts its reads twice, which
  makes a fill cost the same attention FLOPs however it is cut, and never less than the equation says.
* ceil(c / H) (c + m) becomes the larger of two pieces, one with ceil -> 1 (the sum of c and m) and one with
  ceil -> c / H (that is Q / H): equal for one whole fill up to H tokens or of a multiple of H, below it elsewhere.

Both attentions are one operator group, since their bytes add up in one piece.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from sim.clock import TICKS_PER_MS
from sim.cost.model import CostModel, Features, OperatorGroup, Piece
from sim.cost.setups import Setup

BYTES_PER_ELEMENT = 2


@dataclass(frozen=True, slots=True)
class Slice:
    """Requests of a batch that process c tokens each while holding m KVs each."""

    tokens: int
    kv_before: int = 0
    requests: int = 1
    decode: bool = False


@dataclass(frozen=True, slots=True)
class OperatorCost:
    """FLOPs and bytes of one operator in one layer on one GPU, and what they take at least.

    Parameters
    ----------
    flops
        Floating point operations.
    elements
        Elements read and written, in memory or (all-reduce) over the link.
    compute_s, transfer_s
        FLOPs / peak and bytes / bandwidth, in seconds.
    """

    name: str
    flops: int
    elements: Fraction
    compute_s: Fraction
    transfer_s: Fraction

    @property
    def bytes(self) -> Fraction:
        """Bytes read and written."""
        return self.elements * BYTES_PER_ELEMENT

    @property
    def intensity(self) -> float:
        """FLOPs per byte."""
        return float(self.flops / self.bytes) if self.elements else 0.0

    @property
    def bound(self) -> str:
        """Which side takes longer: "compute" or "memory" ("link" for all-reduce)."""
        if self.compute_s > self.transfer_s:
            return "compute"
        return "link" if self.name == "all-reduce" else "memory"

    @property
    def time_ms(self) -> float:
        """max(compute, transfer) in ms (equation 4)."""
        return float(max(self.compute_s, self.transfer_s) * 1000)


def attention_intensity(setup: Setup, tokens: int) -> float:
    """FLOPs per element that attention approaches as m grows: 2 / (1/H + ceil(c/H) N_KV / (c N_Q)).

    Kim et al., section 5.2.

    >>> from sim.cost.setups import find_setup
    >>> llama = find_setup("llama2-7b-a100")
    >>> attention_intensity(llama, 4096), round(attention_intensity(llama, 1), 2)
    (128.0, 1.98)
    """
    shard, dim = setup.shard, setup.llm.head_dim
    reads = Fraction(-(-tokens // dim) * shard.kv_heads, tokens * shard.query_heads)
    return float(2 / (Fraction(1, dim) + reads))


def operators(setup: Setup, batch: Sequence[Slice]) -> list[OperatorCost]:
    """FLOPs, bytes and least time of every operator of a batch, per layer and GPU.

    Parameters
    ----------
    setup
        LLM, GPU and tensor parallel degree.
    batch
        What it processes.
    """
    shard, gpu = setup.shard, setup.gpu
    tokens = sum(part.tokens * part.requests for part in batch)
    found = []
    for name, (n, k) in shard.matmuls.items():
        found.append(_cost(name, 2 * tokens * n * k, n * k + tokens * (n + k), gpu.flops, gpu.bandwidth))
        if name == "QKV_proj":
            for label, decode in (("prefill attention", False), ("decode attention", True)):
                parts = [part for part in batch if part.decode == decode]
                if parts:
                    flops = sum(_attention_flops(setup, part) for part in parts)
                    elements = sum(_attention_elements(setup, part) for part in parts)
                    found.append(_cost(label, flops, elements, gpu.flops, gpu.bandwidth))
    found.append(_cost("elementwise", 0, tokens * shard.elementwise_elements_per_token, gpu.flops, gpu.bandwidth))
    if setup.tensor_parallel > 1:
        moved = tokens * _all_reduce_elements_per_token(setup)
        found.append(_cost("all-reduce", 0, moved, gpu.flops, gpu.nvlink_bandwidth))
    return found


def _cost(name: str, flops: int, elements: int | Fraction, peak: int, bandwidth: int) -> OperatorCost:
    moved = Fraction(elements)
    return OperatorCost(name, flops, moved, Fraction(flops, peak), moved * BYTES_PER_ELEMENT / bandwidth)


def _attention_flops(setup: Setup, part: Slice) -> int:
    c, m = part.tokens, part.kv_before
    return 4 * c * (c + m) * setup.llm.head_dim * setup.shard.query_heads * part.requests


def _attention_elements(setup: Setup, part: Slice) -> int:
    c, m, dim, shard = part.tokens, part.kv_before, setup.llm.head_dim, setup.shard
    own = 2 * c * dim * shard.query_heads + 2 * c * (c + m) * shard.query_heads
    return (own + 2 * -(-c // dim) * (c + m) * dim * shard.kv_heads) * part.requests


def _all_reduce_elements_per_token(setup: Setup) -> Fraction:
    """Two a layer, each a ring: every GPU sends and receives 2 (G - 1) / G of the activations."""
    degree = setup.tensor_parallel
    return 2 * Fraction(2 * (degree - 1), degree) * setup.llm.hidden


def roofline_cost_model(setup: Setup) -> CostModel:
    """The roofline as a cost model ("roofline/llm-gpu").

    Examples
    --------
    >>> from sim.cost.setups import find_setup
    >>> model = roofline_cost_model(find_setup("llama2-7b-a100"))
    >>> [(group.name, len(group.pieces)) for group in model.groups][:2]
    [('QKV_proj', 2), ('attention', 3)]
    """
    shard, gpu = setup.shard, setup.gpu
    groups = []
    for name, (n, k) in shard.matmuls.items():
        compute = _piece(setup, gpu.flops, tokens=2 * n * k)
        memory = _piece(setup, gpu.bandwidth, BYTES_PER_ELEMENT, batch=n * k, tokens=n + k)
        groups.append(OperatorGroup(name, (compute, memory)))
        if name == "QKV_proj":
            groups.append(_attention_group(setup))
    moved = shard.elementwise_elements_per_token
    groups.append(OperatorGroup("elementwise", (_piece(setup, gpu.bandwidth, BYTES_PER_ELEMENT, tokens=moved),)))
    if setup.tensor_parallel > 1:
        elements = _all_reduce_elements_per_token(setup)
        link = _piece(setup, gpu.nvlink_bandwidth, BYTES_PER_ELEMENT, tokens=elements)
        groups.append(OperatorGroup("all-reduce", (link,)))
    source = (
        f"theory (Kim et al., arXiv:2411.07447, equations 2-4) from the shape ({setup.llm.source}) and {gpu.source}"
    )
    return CostModel(f"roofline/{setup.name}", "roofline", setup.llm.layers, tuple(groups), source)


def _attention_group(setup: Setup) -> OperatorGroup:
    dim, q, kv = setup.llm.head_dim, setup.shard.query_heads, setup.shard.kv_heads
    gpu = setup.gpu
    work = 4 * dim * q
    compute = _piece(setup, gpu.flops, prefill_square=work, n_decode=work, decode_reads=work)
    # A decode entry has c = 1: its own token is in T, its scores and its read of 1 + m KVs are added here.
    scores, read = 2 * q, 2 * dim * kv
    own = 2 * dim * q
    one_pass = _piece(setup, gpu.bandwidth, BYTES_PER_ELEMENT, tokens=own + read, n_decode=scores,
                      decode_reads=scores + read, prefill_square=scores, prefill_reads=read)  # fmt: skip
    many_passes = _piece(setup, gpu.bandwidth, BYTES_PER_ELEMENT, tokens=own, n_decode=scores + read,
                         decode_reads=scores + read, prefill_square=scores + 2 * kv)  # fmt: skip
    return OperatorGroup("attention", (compute, one_pass, many_passes))


def _piece(setup: Setup, rate: int, factor: int = 1, **amounts: int | Fraction) -> Piece:
    """Amounts per feature over a rate a second, as ticks for all layers."""
    scale = Fraction(factor * setup.llm.layers * 1000 * TICKS_PER_MS, rate)
    return tuple(round(amounts.get(feature, 0) * scale) for feature in Features._fields)
