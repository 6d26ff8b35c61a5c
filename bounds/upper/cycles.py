"""Cycles: many equal requests in a small memory served by a schedule that repeats itself, with preemption.

A cycle of L batches serves g requests; F of its batches may fill. Each request follows a path through the batches:
decoding, holding, or evicted and refilled where that leaves room. Local search (`bounds.upper._paths.search`) looks for
paths that fit in memory, for ever shorter cycles. The schedule repeats the cycle; what memory its beginning and its end
leave free is filled with further requests.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from csp.relaxations.combinatorial import additive_weights
from csp.relaxations.load import Load, load_of
from csp.relaxations.patterns import Charges, charges
from sim.clock import TICKS_PER_MS
from sim.cost.model import CostModel
from sim.instance import Instance
from sim.schedule import Batch, Schedule

OBJECTIVES = ("makespan",)
MOST_WORK = 400_000
"""Steps of one request's dynamic program times fills of a cycle; beyond it the method steps aside."""
MOST_TOKENS = 4_000_000
LEAST_REQUESTS = 4
ROUNDS = 20_000
"""Paths replaced per cycle tried at first."""
ATTEMPTS = 60
SHAPES = 8
"""Of cycles, tried per attempt."""
PRICES = (10.0, 3.0, 30.0)
"""Of a block beyond the memory, in units of its share of a batch; taken in turn. Low ones avoid refills."""
_SHAKES = 512
_LESS = 0.9995
"""What a cycle must at least save to be tried."""

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Cycle:
    """Paths that fit around a cycle.

    Attributes
    ----------
    fill
        Per batch of the cycle, whether it may fill.
    times, absent
        Per request and token, the batch that generates it and whether by a refill.
    """

    fill: Flags
    times: Ints
    absent: Flags

    @property
    def length(self) -> int:
        """Batches."""
        return len(self.fill)

    def describe(self) -> str:
        """In a few words, for reports."""
        return f"cycle({len(self.times)} requests in {self.length} batches, {int(self.fill.sum())} with fills)"


def schedules(
    instance: Instance, cost: CostModel, objective: str, until: Callable[[], bool], below_ticks: float
) -> Iterator[tuple[Schedule, str]]:
    """Ever better schedules until ``until()`` says stop; none for workloads the method is not made for."""
    if not applies(instance):
        return
    load = load_of(instance)
    charge = charges(load, cost, additive_weights(load, cost))
    if charge.least <= 0:
        return
    for cycle in cycles(load, charge, until, below_ticks / TICKS_PER_MS / len(instance.requests)):
        yield repeat(instance, load, charge, cycle), cycle.describe()


def applies(instance: Instance) -> bool:
    """Whether requests are equal, present from the start, and memory the only limit that matters."""
    first = instance.requests[0]
    i, o = first.input_tokens, first.output_tokens
    return (
        instance.offline
        and o > 1
        and len(instance.requests) >= LEAST_REQUESTS
        and len({(r.input_tokens, r.output_tokens) for r in instance.requests}) == 1
        and not any(r.prefilled or r.prefix for r in instance.requests)
        and instance.kv_capacity_tokens <= instance.token_budget
        and (instance.max_num_seqs is None or instance.max_num_seqs * i >= instance.kv_capacity_tokens)
        and len(instance.requests) * o <= MOST_TOKENS
        and 4 * o * o <= MOST_WORK
    )


class _Prices:
    """What a cycle costs, in ms, and the arrays the search takes."""

    def __init__(self, load: Load, charge: Charges) -> None:
        ((i, o, _),) = load.lengths
        self.limit = load.kv_blocks
        self.tokens = o
        self.sizes = np.array([-(-(i + k) // load.block_size) for k in range(o)], np.int64)
        decode = [charge.decode(i + k) / TICKS_PER_MS for k in range(1, o)]
        fill = [charge.fill(i + k) / TICKS_PER_MS for k in range(o)]
        self.refill = np.array([0.0, *(f - d for f, d in zip(fill[1:], decode, strict=True))])
        self.entries = fill[0] + sum(decode)
        self.batch = (charge.batch + charge.decode_batch) / TICKS_PER_MS
        self.fill_batch = charge.prefill_batch / TICKS_PER_MS
        self.per_request = float(self.sizes.sum()) / self.limit
        """Batches that a request fills on its own."""

    def value(self, requests: int, length: int, fills: int, refills: float = 0.0) -> float:
        """Per request."""
        return (length * self.batch + fills * self.fill_batch + refills) / requests + self.entries

    def longest(self, requests: int, fills: int, below: float) -> int:
        """The longest cycle whose value is below a bound, refills left out; as long as you like for no bound."""
        if not math.isfinite(below):
            return 4 * self.tokens
        room = (below - self.entries) * requests - fills * self.fill_batch
        return math.ceil(room / self.batch) - 1


def cycles(load: Load, charge: Charges, until: Callable[[], bool], below: float) -> Iterator[Cycle]:
    """Ever cheaper cycles of less than ``below`` ms a request; deterministic but for when it is stopped."""
    prices = _Prices(load, charge)
    best: tuple[int, int] | None = None
    for attempt in range(ATTEMPTS):
        for requests, fills in _shapes(prices, load.requests, np.random.default_rng(attempt), best):
            length = 4 * prices.tokens
            while not until():
                length = min(length - 1, prices.longest(requests, fills, _LESS * below))
                found = _try(prices, requests, fills, length, attempt)
                if found is None:
                    break
                cycle, value = found
                if value < below:
                    below, best = value, (requests, fills)
                    yield cycle
            if until():
                return
        if attempt + 1 == len(PRICES) and best is None:
            return


def _try(prices: _Prices, requests: int, fills: int, length: int, attempt: int) -> tuple[Cycle, float] | None:
    """A cycle of this shape and its value, if the search finds one."""
    from bounds.upper._paths import search

    if length < max(prices.tokens, prices.per_request * requests, fills):
        return None
    rng = np.random.default_rng(attempt)
    picks = rng.integers(0, requests, ROUNDS * (1 + attempt // len(PRICES)))
    shakes = np.exp(0.1 * rng.standard_normal((_SHAKES, length)))
    fill = np.zeros(length, np.bool_)
    fill[np.arange(fills) * length // fills] = True
    over, refills, times, absent = search(
        length, requests, fill, min(length, 2 * prices.tokens + 8), prices.sizes, prices.limit, prices.refill,
        PRICES[attempt % len(PRICES)] * prices.batch / prices.limit, picks, shakes,
    )  # fmt: skip
    if over > 0:
        return None
    return Cycle(fill, times, absent), prices.value(requests, length, fills, refills)


def _shapes(
    prices: _Prices, most: int, rng: np.random.Generator, best: tuple[int, int] | None
) -> Iterator[tuple[int, int]]:
    """(requests, fills) of cycles worth trying: the best so far, and one to three outputs long or near the best."""
    seen = set()
    if best is not None:
        seen.add(best)
        yield best
    for at in range(SHAPES):
        if best is not None and at % 2:
            requests, fills = best[0] + int(rng.integers(-2, 3)), best[1] + int(rng.integers(-1, 2))
        else:
            outputs, apart = rng.choice([2.0, rng.uniform(1.1, 3.2)]), rng.choice([4.0, rng.uniform(2, 10)])
            requests = round(outputs * prices.tokens / (1.1 * prices.per_request)) + int(rng.integers(3))
            fills = round(requests / apart)
        requests, fills = min(most, max(1, requests)), max(1, fills)
        if (requests, fills) not in seen:
            seen.add((requests, fills))
            yield requests, fills


def repeat(instance: Instance, load: Load, charge: Charges, cycle: Cycle) -> Schedule:
    """The cycle over and over for all requests of an instance, its free beginning and end filled up."""
    n = len(instance.requests)
    prices = _Prices(load, charge)
    rounds = -(-n // len(cycle.times))
    times, absent = _unrolled(cycle, prices, rounds)
    while rounds > 1:
        fewer = _unrolled(cycle, prices, rounds - 1)
        if len(fewer[0]) < n:
            break
        rounds, (times, absent) = rounds - 1, fewer
    kept = np.argsort(times[:, -1], kind="stable")[:n]
    times, absent = _tightened(times[kept], absent[kept], cycle, prices)
    return _schedule(times, absent, load.lengths[0][0])


def _tightened(times: Ints, absent: Flags, cycle: Cycle, prices: _Prices) -> tuple[Ints, Flags]:
    """The same with an earlier end, if the requests that start last find room elsewhere in the last batches."""
    from bounds.upper._paths import insert, take

    span = 2 * prices.tokens + 8
    end = int(times[:, -1].max()) + 1
    fill = np.resize(cycle.fill, end)
    for window in (span // 2, span, 2 * span, 3 * span):
        first = max(0, end - window)
        stays = times[:, 0] < first
        fixed = np.zeros(len(fill), np.int64)
        for at in np.flatnonzero(stays):
            take(fixed, times[at], absent[at], prices.sizes, 1)
        while end > int(times[stays, -1].max(initial=0)) + 1:
            taken = fixed.copy()
            moved, outside, _ = insert(taken, fill, first, end, span, end - 1, prices.sizes, prices.limit,
                                       prices.refill, int((~stays).sum()))  # fmt: skip
            if len(moved) < int((~stays).sum()):
                break
            times, absent = np.concatenate([times[stays], moved]), np.concatenate([absent[stays], outside])
            stays = np.arange(len(times)) < int(stays.sum())
            end = int(times[:, -1].max()) + 1
    return times, absent


def _unrolled(cycle: Cycle, prices: _Prices, rounds: int) -> tuple[Ints, Flags]:
    """Paths of so many rounds of a cycle, and of as many requests as fit around them."""
    from bounds.upper._paths import insert, take

    shifts = np.arange(rounds) * cycle.length
    times = (cycle.times[None, :, :] + shifts[:, None, None]).reshape(-1, prices.tokens)
    absent = np.tile(cycle.absent, (rounds, 1))
    end = int(times[:, -1].max()) + 1
    taken = np.zeros(end, np.int64)
    for at in range(len(times)):
        take(taken, times[at], absent[at], prices.sizes, 1)
    fill = np.resize(cycle.fill, end)
    span = 2 * prices.tokens + 8
    for first, last in ((0, min(end, 2 * span)), (max(0, end - 2 * span), end)):
        more, outside, _ = insert(taken, fill, first, last, span, end, prices.sizes, prices.limit, prices.refill,
                                  4 * len(cycle.times))  # fmt: skip
        times, absent = np.concatenate([times, more]), np.concatenate([absent, outside])
    return times, absent


def _schedule(times: Ints, absent: Flags, input_tokens: int) -> Schedule:
    """Batches from paths; batches that process nothing are left out, and so are evictions that they made necessary."""
    used, place = np.unique(times, return_inverse=True)
    placed = np.asarray(place, np.int64).reshape(times.shape)
    process: dict[int, list[tuple[int, int]]] = defaultdict(list)
    preempt: dict[int, list[int]] = defaultdict(list)
    for request in range(len(placed)):
        path, out = list(map(int, placed[request])), list(map(bool, absent[request]))
        process[path[0]].append((request, input_tokens))
        for k in range(1, len(path)):
            refilled = out[k] and path[k] > path[k - 1] + 1
            if refilled:
                preempt[path[k - 1] + 1].append(request)
            process[path[k]].append((request, input_tokens + k if refilled else 1))
    return Schedule(tuple(Batch(tuple(process[t]), tuple(preempt[t])) for t in range(len(used))))
