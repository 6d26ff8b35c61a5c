"""Local search for schedules: take requests out and put each back at its cheapest place (`csp.search._ruin`).

For offline makespan under an additive cost, whole fills. No proofs; its schedules are replayed like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from csp.search.space import Space
from sim.cost.model import CostModel
from sim.replay import RuleError, Rules, replay
from sim.schedule import Batch, Schedule

if TYPE_CHECKING:
    from csp.search._ruin import Grid, Rates

_SPARE = 3
"""Batches more than the schedule at hand has, for it to spread into."""
_HOT, _COLD, _NOISY = (0.1, 0.2, 0.4), 0.02, 0.02
"""Temperatures and noise, in flags of a prefilling batch; noise per block and capacity."""
_DRIFTS = (0.0, 0.005, 0.02, 0.05)
_MOVES = 20_000
_MOST_OUT = 6
_KEEP = 0.5
"""How often a pass goes on from where the last one ended instead of from the best schedule."""


def improved(
    space: Space, start: Callable[[], Schedule | None], cost: CostModel, rules: Rules, *, seed: int = 0,
    stopped: Callable[[], bool] = lambda: False, passes: int | None = None, patience: int | None = None,
) -> Iterator[tuple[Schedule, int]]:  # fmt: skip
    """Ever better schedules, each from the best so far, with their cost in ticks.

    Parameters
    ----------
    start
        The best schedule known; asked before each annealing pass. The search ends where it splits fills.
    passes
        How many; without end if None.
    patience
        Passes in a row that find nothing better, after which to end.
    """
    from csp.search import _ruin as kernel

    rates = rates_of(space)
    random = np.random.default_rng(seed)
    scale = float(space.floor.batch + space.floor.prefill_batch)
    per_block = scale / rates.capacity
    done = idle = 0
    last: Grid | None = None
    while not stopped() and (passes is None or done < passes) and (patience is None or idle < patience):
        schedule = start()
        grid = None if schedule is None else grid_of(space, schedule, len(schedule.batches) + _SPARE)
        if grid is None:
            return
        known = int(kernel.recount(grid, rates))
        if last is not None and random.random() < _KEEP:
            grid = last
        hot, drift = float(random.choice(_HOT)), float(random.choice(_DRIFTS))
        best, action = kernel.anneal(grid, rates, _MOVES, hot * scale, _COLD * scale, _MOST_OUT, _NOISY * per_block,
                                     drift * per_block, random)  # fmt: skip
        done, idle, last = done + 1, idle + 1, grid
        if best < known:
            better = schedule_of(space, action)
            try:
                value = replay(space.instance, better, rules=rules, cost=cost).makespan_ticks
            except RuleError:  # an eviction next to a batch that was left out
                continue
            idle = 0
            yield better, int(value)


def rates_of(space: Space) -> Rates:
    """What requests cost and occupy, in the order of the space."""
    from csp.search._ruin import Rates
    from csp.waves.costs import costs_of

    costs, instance = costs_of(space), space.instance
    requests = [instance.requests[i] for i in space.order]
    names = [(r.input_tokens, r.output_tokens) for r in requests]
    kinds = {name: i for i, name in enumerate(dict.fromkeys(names))}
    which = np.array([kinds[name] for name in names])
    size = np.array([r.input_tokens for r in requests], np.int64)[:, None] + np.arange(costs.fill.shape[1])
    return Rates(
        costs.outputs[which], costs.fill[which], costs.decode[which], costs.blocks[which], costs.held[which], size,
        costs.capacity, instance.token_budget, instance.max_num_seqs or len(requests), costs.batch,
        costs.prefill_batch, costs.decode_batch, costs.evicts, costs.hybrid,
    )  # fmt: skip


def grid_of(space: Space, schedule: Schedule, batches: int) -> Grid | None:
    """A schedule on a grid; None if a fill is split over batches."""
    from csp.search import _ruin as kernel

    place = {request: p for p, request in enumerate(space.order)}
    n = len(space.order)
    action = np.zeros((n, batches), np.int8)
    generated, resident = [0] * n, [False] * n
    for t, batch in enumerate(schedule.batches):
        processed = {place[i]: c for i, c in batch.process}
        evicted = {place[i] for i in batch.preempt}
        for p in range(n):
            request = space.instance.requests[space.order[p]]
            if p in processed:
                whole = request.input_tokens + generated[p]
                if processed[p] != (1 if resident[p] else whole):
                    return None
                action[p, t] = kernel.DECODES if resident[p] else kernel.FILLS
                generated[p] += 1
                resident[p] = generated[p] < request.output_tokens
            elif p in evicted:
                action[p, t], resident[p] = kernel.EVICTED, False
            elif resident[p]:
                action[p, t] = kernel.HOLDS
    zeros = [np.zeros(batches, np.int64) for _ in range(4)]
    return kernel.Grid(action, *zeros)


def schedule_of(space: Space, action: np.ndarray[tuple[int, int], np.dtype[np.int8]]) -> Schedule:
    """A grid's batches in which something is processed."""
    from csp.search import _ruin as kernel

    generated = [0] * len(space.order)
    batches = []
    for t in range(action.shape[1]):
        process, preempt = [], []
        for p, request in enumerate(space.order):
            a = action[p, t]
            if a in (kernel.FILLS, kernel.DECODES):
                whole = space.instance.requests[request].input_tokens + generated[p]
                process.append((request, whole if a == kernel.FILLS else 1))
                generated[p] += 1
            elif a == kernel.EVICTED:
                preempt.append(request)
        if process:
            batches.append(Batch(tuple(sorted(process)), tuple(sorted(preempt))))
    return Schedule(tuple(batches))
