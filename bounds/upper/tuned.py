"""Tuned: a service that knows all lengths (`bounds.upper._service`), its rules fitted to the workload by local search.

Requests are ranked by a weighted sum of the work of their fill and of their decode steps, the memory they take while
they decode, and their number of batches: the volume of `csp.relaxations.volumes` with free weights. Weights and rules
(how often batches fill, how many requests run, whether the largest are evicted) are changed at random, in logarithms,
and what is better is kept, with steps that grow after a success and shrink otherwise; from two starts and the best
found, in turn, until nothing is gained. A trial takes about as long as reading the workload.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import count

import numpy as np

from bounds.upper._events import Events, write
from csp.relaxations.load import load_of
from csp.relaxations.patterns import charges
from csp.relaxations.volumes import Floats, weights_to_try
from sim.clock import TICKS_PER_NS
from sim.cost.model import CostModel
from sim.instance import Instance
from sim.schedule import Schedule

OBJECTIVES = ("mean_completion",)
_WEIGHTS = 4
_SPACING, _HURRY, _MOST, _PEAKS, _PASSED, _FILL, _APART, _EVICT = range(_WEIGHTS, _WEIGHTS + 8)
_STEP = np.array([0.3, 0.3, 0.5, 1.0, 0.7, 1.0, 0.4, 0.3, 0.5, 0.5, 1.0, 0.6])
"""First standard deviations, of logarithms (of `_HURRY` and `_APART`: of what is yes above 0)."""
_NO_EVICTION = 4.0
_SHARE_CHANGED = 0.3
_GROW, _SHRINK, _LEAST = 1.3, 0.97, 0.05
_IN_VAIN = 100
"""Trials in a row after which to start anew."""
_STARTS_IN_VAIN, _WORTH = 9, 1e-4
"""Starts in a row that gain less than this share, after which to stop."""


def schedules(
    instance: Instance, cost: CostModel, objective: str, until: Callable[[], bool], below_ticks: float
) -> Iterator[tuple[Schedule, str]]:
    """The best schedule of each start that is better than those before.

    None where requests arrive prefilled or share prefixes, or a prompt is longer than C.
    """
    requests = instance.requests
    if any(r.prefilled or r.prefix or r.input_tokens > instance.token_budget for r in requests):
        return
    service = _Service(instance, cost)
    random = np.random.default_rng(0)
    starts = [service.start(evicting=False), service.start(evicting=True)]
    best, in_vain = math.inf, 0
    for number in count():
        if in_vain == _STARTS_IN_VAIN or until():
            return
        settings, value = _climbed(service, random, starts[number % len(starts)], until)
        in_vain = 0 if value < (1 - _WORTH) * best else in_vain + 1
        if value < best:
            best = value
            starts[2:] = [settings]
            yield service.schedule(settings), "tuned service"


def _climbed(
    service: _Service, random: np.random.Generator, start: Floats, until: Callable[[], bool]
) -> tuple[Floats, float]:
    """Settings at a local optimum and the sum of completions less arrivals in ticks."""
    at, value = start, service.value(start, math.inf)
    step, in_vain = 1.0, 0
    while in_vain < _IN_VAIN and not until():
        changed = random.random(len(at)) < _SHARE_CHANGED
        other = at + step * _STEP * changed * random.standard_normal(len(at))
        there = service.value(other, value)
        if there < value:
            at, value, in_vain, step = other, there, 0, min(2.0, step * _GROW)
        else:
            in_vain, step = in_vain + 1, max(_LEAST, step * _SHRINK)
    return at, value


class _Service:
    """The workload as arrays, and what some settings make of it."""

    def __init__(self, instance: Instance, cost: CostModel) -> None:
        from bounds.upper._batch_times import cost_pieces
        from bounds.upper._service import Limits, Log, Requests

        self.instance = instance
        requests, n = instance.requests, len(instance.requests)
        self.order = sorted(range(n), key=lambda i: requests[i].arrival_ns)
        inputs = np.array([requests[i].input_tokens for i in self.order])
        outputs = np.array([requests[i].output_tokens for i in self.order])
        arrival = np.array([requests[i].arrival_ns * TICKS_PER_NS for i in self.order], float)
        load = load_of(instance)
        self.requests = Requests(inputs, outputs, arrival)
        self.limits = Limits(load.kv_capacity_tokens, load.block_size, instance.token_budget, load.max_num_seqs or n)
        self.log = Log(np.zeros((2 * n, 2), np.int64), np.zeros((n, 2), np.int64), np.zeros(2 * n, np.int64))
        self.pieces = cost_pieces(cost)
        charge = charges(load, cost, weights_to_try(load, cost)[0])
        size, steps = inputs.astype(float), outputs - 1.0
        fill = charge.n_prefill + charge.tokens * size + charge.square * size * size
        reads = steps * size + steps * (steps - 1) / 2
        decode = steps * (charge.n_decode + charge.tokens) + charge.decode_reads * reads
        memory = (size + reads + steps) * charge.least / load.kv_capacity_tokens
        self.parts = np.stack([fill, decode, memory, charge.least * steps])

    def start(self, evicting: bool) -> Floats:
        """Ranked by volume, fills gathered, memory filled to the brim, where asked for the largest evicted."""
        at = np.zeros(len(_STEP))
        at[_WEIGHTS - 1] = -8.0
        at[_SPACING], at[_HURRY], at[_PEAKS], at[_APART] = math.log(4), 0.5, 0.2, -0.5
        at[_MOST], at[_FILL] = math.log(200), math.log(self.limits.tokens)
        at[_EVICT] = 3.0 if evicting else 5.0
        return at

    def value(self, at: Floats, below: float) -> float:
        """Sum of completions less arrivals under some settings, in ticks; infinite if it is not below ``below``."""
        waited = float(self.requests.arrival.sum())
        return self._run(at, below + waited)[0] - waited

    def _run(self, at: Floats, below: float) -> tuple[float, int, int, int, int]:
        from bounds.upper._service import Rules, serve

        x = np.exp(np.minimum(at, 40.0))
        rules = Rules(
            max(1, round(x[_SPACING])), int(at[_HURRY] > 0), max(1, round(x[_MOST])),
            int(x[_PEAKS] * self.limits.kv), max(0, round(x[_PASSED]) - 1), int(x[_FILL]), int(at[_APART] > 0),
            float(x[_EVICT]) if at[_EVICT] < _NO_EVICTION else 0.0,
        )  # fmt: skip
        found: tuple[float, int, int, int, int] = serve(
            self.requests, x[:_WEIGHTS] @ self.parts, self.limits, rules, self.pieces, below, self.log
        )
        return found

    def schedule(self, at: Floats) -> Schedule:
        """What the service does under some settings."""
        _, batches, fills, evictions, holds = self._run(at, math.inf)
        events = [Events() for _ in self.order]
        held = self.log.held[:holds].tolist()
        for batch, i in self.log.evictions[:evictions].tolist():
            events[self.order[i]].evictions.append(batch)
        for batch, i in self.log.fills[:fills].tolist():
            request = self.instance.requests[self.order[i]]
            _serve(events[self.order[i]], request.input_tokens, request.output_tokens, batch, held)
        return write(events, batches)


def _serve(event: Events, inputs: int, outputs: int, batch: int, held: list[int]) -> None:
    """Note a fill and the decode steps after it, until the request is evicted or complete."""
    done = len(event.fills) + sum(stop - start for start, stop in event.decodes)
    event.fills.append((batch, inputs + done))
    evicted = next((t for t in event.evictions if t > batch), None)
    start, left = batch + 1, outputs - done - 1
    for hold in held[bisect_left(held, start) :]:
        if hold >= start + left or (evicted is not None and hold >= evicted):
            break
        if hold > start:
            event.decodes.append((start, hold))
        start, left = hold + 1, left - (hold - start)
    stop = start + left if evicted is None else min(evicted, start + left)
    if stop > start:
        event.decodes.append((start, stop))
