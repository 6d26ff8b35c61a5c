"""What the requests of a search over states cost and occupy, by type."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from csp.search.space import HYBRID, PREEMPTION, Space

Ints = npt.NDArray[np.int64]


class Costs(NamedTuple):
    """What requests cost and occupy, per type and tokens generated before.

    Attributes
    ----------
    outputs, counts
        Per type.
    fill, decode
        Ticks of the entry that generates the next token; ``[type, k]``.
    blocks, held
        Blocks after it, and of a resident that holds; ``[type, k]``.
    capacity, batch, prefill_batch, decode_batch
        M in blocks, and ticks of the flags.
    evicts, hybrid
        Whether preempting, and both kinds in one batch, are allowed.
    """

    outputs: Ints
    counts: Ints
    fill: Ints
    decode: Ints
    blocks: Ints
    held: Ints
    capacity: int
    batch: int
    prefill_batch: int
    decode_batch: int
    evicts: bool
    hybrid: bool


def costs_of(space: Space) -> Costs:
    """What requests cost by type; types in the order of the space."""
    a, instance = space.floor, space.instance
    requests = [instance.requests[i] for i in space.order]
    types = list(dict.fromkeys((r.input_tokens, r.output_tokens) for r in requests))
    counts = [sum((r.input_tokens, r.output_tokens) == one for r in requests) for one in types]
    k = np.arange(max(o for _, o in types) + 1)
    size = np.array([i for i, _ in types], np.int64)[:, None] + k[None, :]
    fill = a.prefill_square * size * size + a.tokens * size + a.n_prefill
    decode = a.decode_reads * (size - 1) + a.tokens + a.n_decode
    limits: Any = space.tables.limits
    return Costs(
        np.array([o for _, o in types], np.int64), np.array(counts, np.int64), fill, decode,
        -(-size // instance.block_size), -(-(size - 1) // instance.block_size), instance.kv_blocks, a.batch,
        a.prefill_batch, a.decode_batch, bool(limits[PREEMPTION]), bool(limits[HYBRID]),
    )  # fmt: skip
