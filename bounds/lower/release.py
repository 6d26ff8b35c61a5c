"""Release: with arrivals, makespan >= r + the aggregate bound of the requests that arrive at r or later, for every r.

Proof. A batch holds only requests that have arrived when it starts, so the batches that process those requests start at
r or later, one after the other; leaving everybody else out of them only makes them shorter, and then they are a
schedule of those requests alone.
"""

from __future__ import annotations

import time
from bisect import bisect_left

from csp.relaxations import makespan_bound
from csp.relaxations.combinatorial import AGGREGATE, count
from csp.result import Bound
from sim.clock import TICKS_PER_NS
from sim.cost.model import CostModel
from sim.instance import Instance

OBJECTIVES = ("makespan",)
_COARSE, _FINE = 32, 24


def bound(
    instance: Instance, cost: CostModel, *, objective: str = "makespan", time_limit_s: float | None = None
) -> Bound | None:
    """The bound over some 50 releases, half of them near the best of the others; None for offline instances.

    With a time limit, over those that are bounded in time (at least one): each of them holds by itself.
    """
    if instance.offline:
        return None
    began = time.perf_counter()
    requests = sorted(instance.requests, key=lambda r: r.arrival_ns)
    arrivals = [r.arrival_ns for r in requests]
    releases = sorted(set(arrivals))
    found: dict[int, tuple[int, dict[str, object]]] = {}

    def at(position: int) -> int:
        if found and time_limit_s is not None and time.perf_counter() - began > time_limit_s and position not in found:
            return 0
        if position not in found:
            late = requests[bisect_left(arrivals, releases[position]) :]
            theirs = makespan_bound(count(instance.replace(requests=tuple(late))), cost, AGGREGATE)
            assert theirs is not None
            inputs: dict[str, object] = {"release_s": releases[position] / 1e9, "late_requests": len(late),
                      "their_bound_ms": theirs.value_ms}  # fmt: skip
            found[position] = int(theirs.value_ticks) + releases[position] * TICKS_PER_NS, inputs
        return found[position][0]

    tried = _some(len(releases))
    best = max(tried, key=at)
    place = tried.index(best)
    low, high = tried[max(0, place - 1)], tried[min(len(tried) - 1, place + 1)]
    fine = range(low, high + 1, max(1, (high - low) // _FINE))
    best = max((best, *fine), key=at)
    return Bound("release", found[best][0], time.perf_counter() - began, found[best][1])


def _some(n: int) -> list[int]:
    """Positions of all of a few releases; of many, half spread evenly and half ever closer to the last."""
    if n <= _COARSE:
        return list(range(n))
    half = _COARSE // 2
    even = {i * (n - 1) // (half - 1) for i in range(half)}
    late = {max(0, n - 1 - round(n ** (i / (half - 1)))) for i in range(half)}
    return sorted(even | late)
