"""Window re-optimisation: a good schedule made better, one window of batches after the other (makespan).

Some requests that are filled near each other are taken out, and each is put back at its cheapest place within a window
around them, everything else staying as it is (`bounds.upper._windows`): a window begins and ends in the same states as
before. Whether the new window is kept is decided as in simulated annealing, by the flags of batches used and of batches
that prefill, and by a price on memory that rises towards one end of the schedule: requests drift to the other end, and
batches at the dear end run empty.

Kinds of windows take turns. *Plain* ones move whole requests, and nobody who is preempted, filled in chunks or
held between decode steps: under an additive cost only flags vary, and a window may span thousands of batches.
*Preempting* ones are short and open each request's way between the state it enters the window in and the state it
leaves it in: filled, held, decoded or evicted as is cheapest (`csp.search._between`). *Exact* ones are shorter still,
solved as integer programs (`bounds.upper._exact`), under any cost. Where costs do not add up, *spread* ones take the
place of the first two: a request's prompt is filled anew, in chunks, over the batches before it decodes
(`bounds.upper._spread`). The others go on until they gain nothing more; exact ones have a share of the time until then,
and all of it afterwards.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from itertools import count, pairwise
from typing import TYPE_CHECKING

import numpy as np

from bounds.upper._events import Events, occupied, read, runs_of, write
from bounds.upper._exact import Tally, improved_exactly
from bounds.upper._preempting import Preempting
from bounds.upper._spread import Spread
from sim.cost.model import CostModel
from sim.instance import Instance
from sim.replay import Replay, RuleError, replay
from sim.schedule import Schedule

if TYPE_CHECKING:
    from bounds.upper._windows import Places, Prices

OBJECTIVES = ("makespan",)
_HOT, _COLD = (0.3, 1.0, 3.0), 0.1
"""First temperature of a round, in flags of a batch that prefills, taken in turn; the last as a share of it."""
_SLOPES = (1.0, -1.0, 0.3, -0.3)
"""Price of memory at its dear end (the first batch if below 0) in what memory is worth; at the other end it is 0.
Taken in turn."""
_MOST_OUT = (6, 10)
_MOVES_PER_REQUEST, _PASSES = 100, 32
_MOST_MOVES = 5_000
"""Of one pass: between passes it is asked whether time is over."""
_NEAR = 2.0
"""Requests are near each other if no more than so many times those that run at once are filled between them."""
_IN_VAIN, _WORTH = 8, 1e-4
"""Rounds in a row that gain less than this share, after which to stop."""
_EXACT_SHARE = 0.15
"""Of the time that the others took so far, what exact windows may take while those still gain."""


def applies(instance: Instance, cost: CostModel) -> bool:
    """Whether nobody's KVs come from elsewhere; where costs do not add up, offline only."""
    return (cost.additive or instance.offline) and not any(r.prefilled or r.prefix for r in instance.requests)


def improved(
    start: Replay, cost: CostModel, objective: str, until: Callable[[], bool], *, seed: int = 0,
    tally: Tally | None = None,
) -> Iterator[Schedule]:  # fmt: skip
    """Ever better schedules than ``start`` until ``until()`` says stop or little more is gained.

    Parameters
    ----------
    tally
        Where exact windows are counted.
    """
    if not applies(start.instance, cost) or any(not (run.decode or run.fills) for run in runs_of(start)):
        return
    random = np.random.default_rng(seed)
    best, tally = start, Tally() if tally is None else tally
    kinds: tuple[Kind, ...] = (Plain, Preempting) if cost.additive else (Spread,)
    while True:
        enough, began = (1 - _WORTH) * best.makespan_ticks, time.monotonic()
        for kind in kinds:
            for better in _rounds(kind, best, cost, random, until):
                best = better
                yield best.schedule
        share = _EXACT_SHARE if best.makespan_ticks <= enough else math.inf
        within = _within(share * (time.monotonic() - began), until)
        for better in improved_exactly(best, cost, random, within, tally):
            best = better
            yield best.schedule
        if until() or best.makespan_ticks > enough:
            return


def _within(seconds: float, until: Callable[[], bool]) -> Callable[[], bool]:
    """Stop after so many seconds from now too."""
    limit = time.monotonic() + seconds
    return lambda: until() or time.monotonic() >= limit


def _rounds(
    kind: Kind, best: Replay, cost: CostModel, random: np.random.Generator, until: Callable[[], bool]
) -> Iterator[Replay]:  # fmt: skip
    """Better schedules, replayed, by windows of one kind, until too many rounds are in vain."""
    in_vain = 0
    for number in count():
        if in_vain >= _IN_VAIN or until():
            return
        windows = kind(best, cost)
        if not windows.applies:
            return
        windows.round(number, random, until)
        in_vain += 1
        try:
            made = replay(best.instance, windows.schedule(), cost=cost)
        except RuleError:  # an eviction put off to where its request is filled again
            continue
        if made.makespan_ticks < best.makespan_ticks:
            if made.makespan_ticks < (1 - _WORTH) * best.makespan_ticks:
                in_vain = 0
            best = made
            yield best


class Plain:
    """Windows without preemption: places of those that may move (`free`), and sums over all requests per batch."""

    def __init__(self, start: Replay, cost: CostModel) -> None:
        from bounds.upper._windows import Limits, Sums

        instance = start.instance
        self.instance, self.batches = instance, len(start.schedule)
        self.events = read(start)
        self.flags = [float(cost.coefficient(f"{kind}batch")) for kind in ("", "prefill_", "decode_")]
        n = len(instance.requests)
        self.limits = Limits(instance.kv_blocks, instance.block_size, instance.token_budget, instance.max_num_seqs or n)
        self.free = np.flatnonzero([self._plain(i) for i in range(n)])
        self.applies = len(self.free) > 0
        if not self.applies:
            return
        self.places = self._places(start)
        self.sums = Sums(*(np.zeros(self.batches, np.int64) for _ in range(4)))
        for i in sorted(set(range(n)) - set(self.free.tolist())):
            self._fix(i)

    def _plain(self, i: int) -> bool:
        """Filled whole, then decoding without a break."""
        request, events = self.instance.requests[i], self.events[i]
        steps = sum(stop - start for start, stop in events.decodes)
        return (
            [tokens for _, tokens in events.fills] == [request.input_tokens]
            and not events.evictions and len(events.decodes) <= 1 and steps == request.output_tokens - 1
        )  # fmt: skip

    def _places(self, start: Replay) -> Places:
        from bounds.upper._windows import Places

        requests = self.instance.requests
        inputs = np.array([r.input_tokens for r in requests], np.int64)
        outputs = np.array([r.output_tokens for r in requests], np.int64)
        fill = np.array([events.fills[0][0] for events in self.events], np.int64)
        decode = np.array([events.decodes[0][0] if events.decodes else events.fills[0][0] + 1
                           for events in self.events], np.int64)  # fmt: skip
        sizes = [-(-(r.input_tokens + 1 + np.arange(r.output_tokens - 1)) // self.instance.block_size)
                 for r in requests]  # fmt: skip
        area = np.array([size.sum() for size in sizes], float)
        moment = np.array([size @ np.arange(len(size)) for size in sizes], float)
        earliest = np.zeros(len(requests), np.int64)
        if not self.instance.offline:
            starts_ns = [start for start, _ in start.times_ns]
            earliest = np.searchsorted(starts_ns, [r.arrival_ns for r in requests])
        return Places(inputs, outputs, fill, decode, area, moment, earliest)

    def _fix(self, i: int) -> None:
        """Count a request that stays."""
        used, fills, decodes, tokens = self.sums
        used += occupied(self.events[i], self.instance, i, self.batches)
        for t, c in self.events[i].fills:
            fills[t] += 1
            tokens[t] += c
        for start, stop in self.events[i].decodes:
            decodes[start:stop] += 1
            tokens[start:stop] += 1

    def round(self, number: int, random: np.random.Generator, until: Callable[[], bool]) -> None:
        """Anneal from hot to cold."""
        from bounds.upper import _windows as kernel

        places, n = self.places, len(self.free)
        hot, most = _HOT[number % len(_HOT)] * self.flags[1], int(random.choice(_MOST_OUT))
        prices = self._prices(_SLOPES[number % len(_SLOPES)])
        for i in self.free.tolist():
            kernel.put(i, 1, places, self.sums, self.limits, prices)
        span = float((places.decode + places.outputs - places.fill)[self.free].mean())
        wide = int(min(n, max(4, _NEAR * n * span / self.batches)))
        reach = int(2 * span) + 8
        moves = _MOVES_PER_REQUEST * n
        passes = max(_PASSES, moves // _MOST_MOVES)
        heats = hot * _COLD ** (np.arange(passes + 1) / passes)
        now = best = 0.0
        fill, decode = places.fill.copy(), places.decode.copy()
        for first, last in pairwise(heats):
            order = self.free[np.argsort(places.fill[self.free], kind="stable")]
            now, best = kernel.anneal(
                order, places, self.sums, self.limits, prices, moves // passes, first, last, most, wide, reach,
                now, best, fill, decode, random,
            )  # fmt: skip
            if until():
                break
        places.fill[:], places.decode[:] = fill, decode

    def _prices(self, slope: float) -> Prices:
        """Memory is worth a batch's flags, over the capacity."""
        from bounds.upper._windows import Prices

        batch, prefill, decode = self.flags
        worth = (batch + decode) / self.limits.blocks
        return Prices(batch, prefill, decode, worth * max(0.0, -slope), worth * slope / self.batches)

    def schedule(self) -> Schedule:
        """As it is now."""
        fill, decode = self.places.fill.tolist(), self.places.decode.tolist()
        for i in self.free.tolist():
            steps = self.instance.requests[i].output_tokens - 1
            self.events[i] = Events([(fill[i], self.instance.requests[i].input_tokens)],
                                    [(decode[i], decode[i] + steps)] if steps else [])  # fmt: skip
        return write(self.events, self.batches)


Kind = type[Plain] | type[Preempting] | type[Spread]
