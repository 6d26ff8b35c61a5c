"""Recompute or swap: what is quicker when a preempted request's KVs are needed again (paper, section 5.3).

Recomputing m KVs is a prefill of m tokens; swapping them in moves m x (KV bytes of a token) over a link. Both are taken
for the whole LLM; with tensor parallelism every GPU moves its share over its own link. Recomputing is counted twice: as
a batch of its own, which loads the weights for it alone, and as what it adds to a batch that prefills anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from bounds._piecewise import SignedMax, evaluate, negative_intervals
from bounds.breakeven import added_terms, fill, signed_terms
from sim.clock import TICKS_PER_MS
from sim.cost.hardware import LINKS, Link
from sim.cost.model import CostModel
from sim.cost.setups import Setup, find_setup
from sim.errors import InputError

DEFAULT_LATENCY_US = 10.0
"""Fixed time of one copy: launching it and its first bytes, of the order that copy benchmarks report."""


@dataclass(frozen=True, slots=True)
class Swap:
    """How KVs travel.

    Parameters
    ----------
    setup
        LLM and GPUs; fixes the bytes per token and GPU.
    link
        Between GPU and host memory.
    latency_us
        Fixed time of a copy.
    block_tokens
        Tokens per block, where KVs are scattered and every block takes a copy for the K and for the V of each layer;
        None where one copy moves them all.
    efficiency
        Share of the link's bandwidth that is reached.
    trips
        1 for the way in; 2 if the way out is charged too.
    """

    setup: Setup
    link: Link
    latency_us: float = DEFAULT_LATENCY_US
    block_tokens: int | None = None
    efficiency: float = 1.0
    trips: int = 1

    @property
    def ms_per_kv_token(self) -> float:
        """Time per KV token over all layers."""
        bandwidth = self.link.bandwidth * self.efficiency
        return self.trips * self.setup.shard.kv_bytes_per_token() / bandwidth * 1e3

    @property
    def copies_per_block(self) -> int:
        """Copies that one block takes."""
        return 1 if self.block_tokens is None else 2 * self.setup.llm.layers

    def time_ms(self, kv_tokens: int) -> float:
        """Time to move so many KV tokens."""
        blocks = 1 if self.block_tokens is None else -(-kv_tokens // self.block_tokens)
        fixed = self.trips * self.latency_us * self.copies_per_block * blocks / 1e3
        return fixed + self.ms_per_kv_token * kv_tokens

    def terms(self, sign: int) -> list[SignedMax]:
        """The time as a function of real m, in ticks; the last block counts by the share of it that is full."""
        fixed = round(self.trips * self.latency_us * self.copies_per_block * TICKS_PER_MS / 1000)
        moved = round(self.ms_per_kv_token * TICKS_PER_MS)
        if self.block_tokens is None:
            return [(sign, [(fixed, moved, 0)])]
        return [(sign, [(fixed, moved, 0), (0, moved + fixed // self.block_tokens, 0)])]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Where swapping in beats recomputing, for one cost model and link.

    Parameters
    ----------
    swap
        How KVs travel.
    faster_alone
        Intervals of m >= 1 where the swap is quicker than a batch that only recomputes.
    faster_joined
        The same against what recomputing adds to a batch that prefills one token anyway.
    """

    cost: CostModel
    swap: Swap
    faster_alone: tuple[tuple[float, float | None], ...]
    faster_joined: tuple[tuple[float, float | None], ...]

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "cost_model": self.cost.name, "link": self.swap.link.title,
            "link_gb_per_s": self.swap.link.bandwidth * self.swap.efficiency / 1e9, "trips": self.swap.trips,
            "swap_faster_than_own_batch": [list(pair) for pair in self.faster_alone],
            "swap_faster_than_joining": [list(pair) for pair in self.faster_joined],
        }  # fmt: skip


def compare(cost: CostModel, swap: Swap) -> Comparison:
    """Where swapping in beats recomputing.

    Examples
    --------
    >>> from sim.cost import load_cost_model
    >>> cost = load_cost_model("linear/llama2-7b-a100")
    >>> compare(cost, Swap(setup_of(cost), LINKS["pcie4"])).faster_alone
    ((1.0, None),)
    """
    alone = [(-sign, parts) for sign, parts in _alone(cost)]
    joined = [(-sign, parts) for sign, parts in added_terms(cost, (0, 1, 0), True, 1)]
    return Comparison(cost, swap, negative_intervals(swap.terms(1) + alone, 1),
                      negative_intervals(swap.terms(1) + joined, 1))  # fmt: skip


def recompute_ms(cost: CostModel, kv_tokens: int, *, joined: bool = False) -> float:
    """Time to recompute m KVs in a batch of its own, or (``joined``) what it adds to a batch that fills one token."""
    terms = added_terms(cost, (0, 1, 0), True, 1) if joined else _alone(cost)
    return float(evaluate(terms, Fraction(kv_tokens)) / TICKS_PER_MS)


def gpu_read_ms(setup: Setup, kv_tokens: int) -> float:
    """Time to read m KVs from GPU memory by the data sheet: what keeping them costs a decode step."""
    return setup.shard.kv_bytes_per_token() * kv_tokens / setup.gpu.bandwidth * 1e3


def break_even_bandwidth(cost: CostModel, setup: Setup, kv_tokens: int, *, joined: bool = False) -> float:
    """Bytes per second and GPU from which on swapping m KVs in beats recomputing them, latency left out."""
    return setup.shard.kv_bytes_per_token() * kv_tokens / (recompute_ms(cost, kv_tokens, joined=joined) / 1e3)


def setup_of(cost: CostModel) -> Setup:
    """The setup that a cost model's name ends with.

    Raises
    ------
    InputError
        If the name does not tell.
    """
    try:
        return find_setup(cost.name.rsplit("/", 1)[-1])
    except InputError:
        raise InputError('name does not tell the LLM and GPU ("kind/llm-gpu"); give --llm and --gpu',
                         field="cost_model", value=cost.name) from None  # fmt: skip


def links(names: Sequence[str]) -> list[Link]:
    """Links by name; all of them for no names."""
    from sim.registry import unknown

    for name in names:
        if name not in LINKS:
            raise InputError(unknown(name, list(LINKS)), field="link")
    return [LINKS[name] for name in names or LINKS]


def _alone(cost: CostModel) -> list[SignedMax]:
    return signed_terms(cost, 1, fill((0, 1, 0)))
