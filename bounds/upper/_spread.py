"""Windows of costs that do not add up: each request's first fill is spread anew over the batches before it decodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from bounds.upper._events import Events, read, write
from bounds.upper._part import trail_of
from sim.cost.model import CostModel, Features
from sim.instance import Request
from sim.replay import Replay
from sim.schedule import Schedule

if TYPE_CHECKING:
    from csp.search._spread import Batches, Rates

_WIDEST, _MOST_CUTS = 64, 24
"""Batches of a window; numbers of KVs tried in addition to the present ones."""
MOST_BATCHES = 500_000
"""Up to which it is tried."""
_ASKED_EVERY = 64
"""Requests after which it is asked whether time is over."""


class Spread:
    """A schedule with the pieces of the cost of each batch."""

    def __init__(self, start: Replay, cost: CostModel) -> None:
        self.instance, self.size = start.instance, len(start.schedule)
        self.applies = self.instance.offline and self.size <= MOST_BATCHES
        if not self.applies:
            return
        self.events = read(start)
        pairs = zip(self.instance.requests, self.events, strict=True)
        self.free = [i for i, (request, events) in enumerate(pairs) if _spreadable(request, events)]
        self.batches, self.rates = _batches(start, cost), _rates(start, cost)

    def round(self, number: int, random: np.random.Generator, until: Callable[[], bool]) -> None:
        """Every request once, in random order."""
        from csp.search._spread import respread

        for count, i in enumerate(random.permutation(self.free).tolist()):
            if count % _ASKED_EVERY == 0 and until():
                return
            events, inputs = self.events[i], self.instance.requests[i].input_tokens
            fills = [(t, c) for t, c in events.fills if t < events.decodes[0][0]]
            stop = events.decodes[0][0]
            low = max(0, min(fills[0][0], stop - int(random.integers(2, _WIDEST))))
            added = np.zeros(stop - low, np.int64)
            for t, c in fills:
                added[t - low] = c
            way = np.cumsum(added)
            cuts = random.integers(0, inputs + 1, min(_MOST_CUTS, inputs))
            if respread(self.batches, self.rates, low, way, np.unique(np.concatenate((way, cuts, [0, inputs])))) > 1.0:
                added = np.diff(way, prepend=0)
                new = [(low + x, int(added[x])) for x in np.flatnonzero(added).tolist()]
                events.fills = new + events.fills[len(fills) :]

    def schedule(self) -> Schedule:
        """As it is now."""
        return write(self.events, self.size)


def _spreadable(request: Request, events: Events) -> bool:
    """Whether it decodes after its first fill and is not evicted before."""
    if not events.decodes:
        return False
    decodes = events.decodes[0][0]
    filled, generated = next((t, k) for t, k, m in trail_of(request, events) if not m)
    return generated == 1 and filled < decodes and not any(t < decodes for t in events.evictions)


def _batches(start: Replay, cost: CostModel) -> Batches:
    from csp.search._spread import Batches

    features = np.array([record.features for record in start.records], np.int64)
    used = np.array([record.kv_blocks for record in start.records], np.int64)
    pieces = features.astype(float) @ _pieces(cost).T
    prefill, decode, tokens = (
        features[:, Features._fields.index(name)] for name in ("n_prefill", "n_decode", "tokens")
    )
    return Batches(pieces, used, prefill.copy(), prefill + decode, tokens.copy())


def _pieces(cost: CostModel) -> npt.NDArray[np.float64]:
    return np.array([piece for group in cost.groups for piece in group.pieces], float)


def _rates(start: Replay, cost: CostModel) -> Rates:
    from csp.search._spread import Rates

    instance, pieces = start.instance, _pieces(cost)
    batch, prefill_batch, n_prefill, tokens, square, reads = (
        pieces[:, Features._fields.index(name)].copy()
        for name in ("batch", "prefill_batch", "n_prefill", "tokens", "prefill_square", "prefill_reads")
    )
    last = np.cumsum([len(group.pieces) for group in cost.groups])
    return Rates(batch, prefill_batch, n_prefill, tokens, square, reads, last, instance.kv_blocks, instance.block_size,
                 instance.token_budget, instance.max_num_seqs or len(instance.requests))  # fmt: skip
