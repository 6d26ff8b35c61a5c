"""Sweeps: a node's bound by all states its schedules can reach below some cost, and the schedules that end there.

With all flags of a node's batches decided, its prices say of every step what it costs beyond the best; whatever exceeds
a limit is left out, and what is left is few states where memory is short. That sees what prices cannot: requests are
whole, so memory freed in one batch is only used again as others grow, or in the next batch that prefills.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from csp.search.space import KEEP, Space
from csp.waves.costs import Costs
from sim.schedule import Batch, Schedule

MOST_BYTES = 2**28
"""Memory for the states of a sweep."""
_FINEST = 1_000
"""The first limit is this part of the bound above it."""
_IMPOSSIBLE = 2**20


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep showed.

    Attributes
    ----------
    bound
        In ticks.
    schedule
        One that costs as much under the space's additive cost, if it is the cheapest of the node's; it may break the
        token budget or the number of slots, which sweeps know nothing of.
    """

    bound: int
    schedule: Schedule | None = None


def sweep_node(
    space: Space, costs: Costs, kind: Any, windows: Any, price: Any, toll: int, share: Any, base: int, bound: int,
    upper: int, most: int,
) -> Swept:  # fmt: skip
    """Sweep with higher and higher limits, until there are too many states in a batch or the bound reaches ``upper``.

    Parameters
    ----------
    kind, windows, price, toll, share
        Of a node all of whose batches are decided.
    base
        Its bound under these prices.
    bound
        Any bound known.
    most
        States per batch.
    """
    from csp.waves._sweep import sweep

    which = np.repeat(np.arange(len(costs.outputs)), costs.counts)
    layers = len(kind) + 1
    width = min(most, MOST_BYTES // (layers * (2 * len(which) + 12)))
    if width < 2:
        return Swept(bound)
    states = np.empty((layers, width, len(which)), np.uint16)
    cost, parents = np.empty((layers, width), np.int64), np.empty((layers, width), np.int32)
    keep = space.tables.mark[:, :, KEEP] != 0
    step = max(1, base // _FINEST)
    while bound < upper:
        numbers = np.zeros(layers, np.int64)
        limit = min(upper, max(bound, base) + step)
        least, crowded = sweep(costs, which, kind, windows, price, toll, share, base, layers - 1, limit, keep, states,
                               cost, parents, numbers)  # fmt: skip
        if crowded >= 0:
            break
        if numbers[-1]:
            at = int(cost[-1, : numbers[-1]].argmin())
            return Swept(max(bound, int(cost[-1, at])), _schedule(space, costs, which, states, parents, at))
        bound = max(bound, int(least))
        step *= 2
    return Swept(bound)


def _schedule(space: Space, costs: Costs, which: Any, states: Any, parents: Any, at: int) -> Schedule:
    """Read a schedule off a chain of states; who is who among like requests is settled by cheapest assignment."""
    chain = [states[-1, at]]
    for layer in range(len(states) - 1, 0, -1):
        at = parents[layer, at]
        chain.append(states[layer - 1, at])
    chain.reverse()
    now = [0] * len(which)
    batches = []
    for then in chain[1:]:
        process: list[tuple[int, int]] = []
        preempt: list[int] = []
        for i in range(len(costs.outputs)):
            members = np.flatnonzero(which == i)
            ticks = np.array([[_ticks(costs, i, now[p], int(then[q])) for q in members] for p in members])
            for p, q in zip(*linear_sum_assignment(ticks), strict=True):
                one, before, after = int(members[p]), now[members[p]], int(then[members[q]])
                request = space.order[one]
                if after >> 1 > before >> 1:
                    whole = space.instance.requests[request].input_tokens + (before >> 1)
                    process.append((request, 1 if before & 1 else whole))
                elif before & 1 and not after & 1:
                    preempt.append(request)
                now[one] = after
        batches.append(Batch(tuple(sorted(process)), tuple(sorted(preempt))))
    return Schedule(tuple(batch for batch in batches if batch.process))


def _ticks(costs: Costs, i: int, before: int, after: int) -> int:
    """What it costs a request to get from one code to another in a batch."""
    k, gained = before >> 1, (after >> 1) - (before >> 1)
    if gained == 1 and (after & 1 or k + 1 == costs.outputs[i]):
        return int(costs.decode[i, k] if before & 1 else costs.fill[i, k])
    if gained == 0 and after <= before:
        return 0
    return _IMPOSSIBLE * int(costs.fill[i].max() + 1)
