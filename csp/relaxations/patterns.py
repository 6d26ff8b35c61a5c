"""Batch patterns: what one batch can do to the requests in memory, as items with a price and a size.

A request of a type that has generated k >= 1 tokens and is resident occupies w_k = ceil((I + k - 1) / b) blocks. In a
batch it decodes (then it occupies w_{k+1}), holds, or is evicted; an absent request may be filled (then w_{k+1}).
Costs are additive: those of an additive cost model, or, for another, of a convex combination of the pieces of each
operator group, which no batch undercuts. Chunks of a fill count where they end: moving them there changes neither
tokens nor the square, frees memory earlier, and may leave behind a batch that does nothing; such batches cost nothing
here, and a fill's reads and C are left out. So every schedule, chunked or not, maps to patterns that cost no more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from csp.relaxations.aggregate import Relaxation
from csp.relaxations.load import Load
from sim.cost.model import CostModel

Ints = npt.NDArray[np.int64]
Weights = tuple[tuple[Fraction, ...], ...]

DECODE, HOLD, EVICT, FILL, LEAVE = range(5)


@dataclass(frozen=True, slots=True)
class Charges:
    """Additive costs in ticks, rounded down: fixed ones per batch, and the entries' coefficients."""

    batch: int
    prefill_batch: int
    decode_batch: int
    tokens: int
    n_prefill: int
    n_decode: int
    square: int
    decode_reads: int

    def fill(self, size: int) -> int:
        """A fill of ``size`` tokens."""
        return self.n_prefill + self.tokens * size + self.square * size * size

    def decode(self, size: int) -> int:
        """A decode step that ends with ``size`` KVs."""
        return self.n_decode + self.tokens + self.decode_reads * (size - 1)

    @property
    def least(self) -> int:
        """Least cost of a batch that processes anything."""
        return self.batch + min(self.prefill_batch, self.decode_batch)


def charges(load: Load, cost: CostModel, weights: Weights) -> Charges:
    """Costs no batch undercuts, for convex weights of the pieces (see `csp.relaxations.aggregate.Multipliers`)."""
    a = {name: math.floor(x) for name, x in Relaxation(load, cost, 1, 1).combined(weights).items()}
    return Charges(a["batch"], a["prefill_batch"], a["decode_batch"], a["tokens"], a["n_prefill"], a["n_decode"],
                   a["prefill_square"], a["decode_reads"])  # fmt: skip


@dataclass(frozen=True, slots=True)
class Items:
    """What can be in a pattern, one row per item.

    Attributes
    ----------
    action, kind, progress
        Action, type of request (index into the load's lengths) and tokens generated before.
    before, after
        Blocks of the resident it takes up before the batch, and of memory after it.
    cost
        Ticks, fixed charges left out.
    completes
        Whether the request is complete after the batch (its blocks are then free).
    """

    action: Ints
    kind: Ints
    progress: Ints
    before: Ints
    after: Ints
    cost: Ints
    completes: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.action)


def items_of(load: Load, charge: Charges, *, leave: bool) -> Items:
    """All items of a load; with ``leave`` completed requests stay in memory until they leave in a later batch.

    Holds are the same for all residents of one size, so each size has one.
    """

    def blocks(tokens: int) -> int:
        return -(-tokens // load.block_size)

    rows: list[tuple[int, int, int, int, int, int, bool]] = []
    sizes: set[int] = set()
    for kind, (i, o, _) in enumerate(load.lengths):
        for k in range(o):
            size = i + k
            if k:
                here = blocks(size - 1)
                rows.append((DECODE, kind, k, here, blocks(size), charge.decode(size), k + 1 == o))
                rows.append((EVICT, kind, k, here, 0, 0, False))
                sizes.add(here)
            rows.append((FILL, kind, k, 0, blocks(size), charge.fill(size), k + 1 == o))
        if leave:
            peak = blocks(i + o - 1)
            rows.append((LEAVE, kind, o, peak, 0, 0, False))
            sizes.add(peak)
    rows += [(HOLD, -1, 0, here, here, 0, False) for here in sorted(sizes)]
    columns = list(zip(*rows, strict=True))
    a, kinds, progress, before, after, cost = (np.array(column, np.int64) for column in columns[:6])
    return Items(a, kinds, progress, before, after, cost, np.array(columns[6], bool))
