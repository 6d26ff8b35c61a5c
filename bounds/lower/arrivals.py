"""Arrivals: what arrives at time t or later is served after t, so makespan >= t + a bound of those requests alone.

Proof. Take any schedule and a time t, and strike every entry of a request that arrives before t. What is left is a
schedule of the others, perhaps with batches that process nothing: it processes the same tokens for them, no batch
holds more KVs, and no feature of a batch grows, so none takes longer. A batch that processes something of theirs
starts at t or later, and batches do not overlap, so these batches together take at most makespan - t. They take at
least what the aggregate bound says of those requests, all taken as present at the start.

It is evaluated at few t: where 1, 2, 4, ... requests are still to come, and at the arrivals of the requests that would
end last if each had the machine to itself.
"""

from __future__ import annotations

import time
from dataclasses import replace

from csp.relaxations.combinatorial import AGGREGATE, count, makespan_bound
from csp.result import Bound
from sim.clock import NS_PER_S, TICKS_PER_NS
from sim.cost.model import CostModel, Features
from sim.instance import Instance

OBJECTIVES = ("makespan",)
LAST_ENDING = 4


def bound(
    instance: Instance, cost: CostModel, *, objective: str = "makespan", time_limit_s: float | None = None
) -> Bound | None:
    """The bound; None if all requests are present at the start."""
    if instance.offline:
        return None
    began = time.perf_counter()
    found: list[tuple[int, int, int, Bound]] = []
    for arrival_ns in _times_ns(instance, cost):
        later = tuple(replace(r, arrival_ns=0) for r in instance.requests if r.arrival_ns >= arrival_ns)
        rest = makespan_bound(count(instance.replace(requests=later)), cost, AGGREGATE)
        if rest is not None:
            found.append((arrival_ns * TICKS_PER_NS + int(rest.value_ticks), arrival_ns, len(later), rest))
    if not found:
        return None
    ticks, arrival_ns, requests, rest = max(found, key=lambda one: one[0])
    inputs = {"after_s": arrival_ns / NS_PER_S, "requests_after": requests, "rest_ms": rest.value_ms,
              "rest_inputs": rest.inputs}  # fmt: skip
    return Bound("arrivals", ticks, time.perf_counter() - began, inputs)


def _times_ns(instance: Instance, cost: CostModel) -> list[int]:
    """Arrivals at which the bound is evaluated."""
    latest_first = sorted((r.arrival_ns for r in instance.requests), reverse=True)
    chosen = {latest_first[2**k - 1] for k in range(len(latest_first).bit_length())}
    least = min(cost.batch_ticks(f) for f in (Features(1, 0, 1, 0, 1, 1, 0, 0, 0), Features(1, 1, 0, 1, 0, 1, 1, 0, 0)))
    ends = sorted(instance.requests, key=lambda r: r.arrival_ns * TICKS_PER_NS + r.output_tokens * least)
    return sorted(chosen | {r.arrival_ns for r in ends[-LAST_ENDING:]})
