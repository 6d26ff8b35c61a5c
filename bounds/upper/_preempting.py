"""Windows of schedules that preempt: every request may be filled, held, decoded and evicted anew within a window."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from bounds.upper._events import Events, read, write
from sim.cost.model import CostModel
from sim.instance import Instance
from sim.replay import Replay
from sim.schedule import Schedule

if TYPE_CHECKING:
    from csp.search._ruin import Grid, Rates

MOST_CELLS = 30_000_000
"""Requests times batches, and requests times output tokens, up to which it is tried."""
_HOT, _COLD = (0.1, 0.3, 1.0), 0.1
"""First temperature of a round, in flags of a batch, taken in turn; the last as a share of it."""
_SLOPES = (1.0, -1.0, 0.3, -0.3)
"""As in `bounds.upper.windows`."""
_WIDEST, _MOST_OUT = 64, 6
_MOVES_PER_BATCH, _PASSES = 1, 40
_SPARE = 64
"""A batch in which nothing happens is opened after every so many."""


def _applies(start: Replay, events: list[Events]) -> bool:
    """Whether the grid is small enough and all fills are whole."""
    instance = start.instance
    cells = len(instance.requests) * max(len(start.schedule), *(r.output_tokens for r in instance.requests))
    whole = all(len(e.fills) == 1 + len(e.evictions) for e in events)
    return instance.offline and whole and cells <= MOST_CELLS


class Preempting:
    """A schedule on a grid of requests and batches."""

    def __init__(self, start: Replay, cost: CostModel) -> None:
        self.instance = start.instance
        batches = len(start.schedule)
        self.batches = batches + batches // _SPARE + 1
        self.events = read(start)
        self.applies = _applies(start, self.events)
        if self.applies:
            self.rates, self.grid = rates_of(self.instance, cost), self._grid()

    def _grid(self) -> Grid:
        from csp.search import _ruin as kernel

        action = np.zeros((len(self.events), self.batches), np.int8)
        for row, events in zip(action, self.events, strict=True):
            marks = [(_moved(t), kernel.FILLS) for t, _ in events.fills]
            marks += [(_moved(t), kernel.EVICTED) for t in events.evictions]
            marks += [(_moved(t), kernel.DECODES) for start, stop in events.decodes for t in range(start, stop)]
            marks.sort()
            for (t, a), (then, _) in pairwise(marks):
                row[t] = a
                if a != kernel.EVICTED:
                    row[t + 1 : then] = kernel.HOLDS
            row[marks[-1][0]] = marks[-1][1]
        return kernel.Grid(action, *(np.zeros(self.batches, np.int64) for _ in range(4)))

    def round(self, number: int, random: np.random.Generator, until: Callable[[], bool]) -> None:
        """Anneal from hot to cold."""
        from csp.search import _between as kernel
        from csp.search._ruin import DECODES, FILLS, recount

        recount(self.grid, self.rates)
        slope = _SLOPES[number % len(_SLOPES)]
        action = self.grid.action
        worked = (action == FILLS) | (action == DECODES)
        span = kernel.Span(worked.argmax(axis=1), self.batches - 1 - worked[:, ::-1].argmax(axis=1))
        flag = float(self.rates.batch + self.rates.prefill_batch)
        worth = float(self.rates.batch + self.rates.decode_batch) / self.rates.capacity
        base, rise = worth * max(0.0, -slope), worth * slope / self.batches
        heats = _HOT[number % len(_HOT)] * flag * _COLD ** (np.arange(_PASSES + 1) / _PASSES)
        best_action = action.copy()
        now = best = 0.0
        for first, last in pairwise(heats):
            search = kernel.Search(first, last, base, rise, min(_WIDEST, self.batches), _MOST_OUT)
            now, best = kernel.anneal(self.grid, self.rates, span, search, _MOVES_PER_BATCH * self.batches, now, best,
                                      best_action, random)  # fmt: skip
            if until():
                break
        action[:, :] = best_action

    def schedule(self) -> Schedule:
        """As it is now."""
        from csp.search import _ruin as kernel

        events = []
        for i, row in enumerate(self.grid.action):
            worked = np.flatnonzero((row == kernel.FILLS) | (row == kernel.DECODES))
            fills = [(int(t), self.instance.requests[i].input_tokens + k) for k, t in enumerate(worked)
                     if row[t] == kernel.FILLS]  # fmt: skip
            decodes = np.flatnonzero(row == kernel.DECODES)
            cuts = np.flatnonzero(np.diff(decodes) > 1) + 1
            stretches = [(int(part[0]), int(part[-1]) + 1) for part in np.split(decodes, cuts) if len(part)]
            events.append(Events(fills, stretches, np.flatnonzero(row == kernel.EVICTED).tolist()))
        return write(events, self.batches)


def _moved(t: int) -> int:
    """Batch t with spare ones before it."""
    return t + t // _SPARE


def rates_of(instance: Instance, cost: CostModel) -> Rates:
    """What requests cost and occupy, under an additive cost."""
    from csp.search._ruin import Rates

    inputs = np.array([r.input_tokens for r in instance.requests], np.int64)
    outputs = np.array([r.output_tokens for r in instance.requests], np.int64)
    size = inputs[:, None] + np.arange(int(outputs.max()) + 1)
    names = ("prefill_square", "n_prefill", "tokens", "decode_reads", "n_decode")
    square, n_prefill, tokens, reads, n_decode = map(cost.coefficient, names)
    fill = square * size * size + tokens * size + n_prefill
    decode = reads * (size - 1) + tokens + n_decode
    batch, prefill, decoding = map(cost.coefficient, ("batch", "prefill_batch", "decode_batch"))
    return Rates(
        outputs, fill, decode, -(-size // instance.block_size), -(-(size - 1) // instance.block_size), size,
        instance.kv_blocks, instance.token_budget, instance.max_num_seqs or len(inputs), batch, prefill,
        decoding, True, True,
    )  # fmt: skip
