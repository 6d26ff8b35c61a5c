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
_MOST_RELEASES = 48


def bound(
    instance: Instance, cost: CostModel, *, objective: str = "makespan", time_limit_s: float | None = None
) -> Bound | None:
    """The bound over some 50 releases; None for offline instances."""
    if instance.offline:
        return None
    began = time.perf_counter()
    requests = sorted(instance.requests, key=lambda r: r.arrival_ns)
    arrivals = [r.arrival_ns for r in requests]
    best: tuple[int, dict[str, object]] = (0, {})
    for arrival in _some(sorted(set(arrivals))):
        late = requests[bisect_left(arrivals, arrival) :]
        found = makespan_bound(count(instance.replace(requests=tuple(late))), cost, AGGREGATE)
        assert found is not None
        ticks = int(found.value_ticks) + arrival * TICKS_PER_NS
        if ticks > best[0]:
            best = ticks, {"release_s": arrival / 1e9, "late_requests": len(late), "their_bound_ms": found.value_ms}
    return Bound("release", best[0], time.perf_counter() - began, best[1])


def _some(releases: list[int]) -> list[int]:
    """All of a few releases; of many, half spread evenly and half ever closer to the last."""
    n = len(releases)
    if n <= _MOST_RELEASES:
        return releases
    half = _MOST_RELEASES // 2
    even = {i * (n - 1) // (half - 1) for i in range(half)}
    late = {max(0, n - 1 - round(n ** (i / (half - 1)))) for i in range(half)}
    return [releases[i] for i in sorted(even | late)]
