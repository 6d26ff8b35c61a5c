"""Mean completion time and mean TTFT: requests as volumes on one machine of speed 1, shortest volume first.

Every batch lasts at least as long as the sum of what its tokens cost: entry costs, and of the fixed charge of a
batch, b_o + min(b_p, b_d), or b_o + b_p where it fills, the share of memory it ties up (a token generated at size s
holds s of M KVs after the batch), or of C, or of max_num_seqs. Call the sum over a request's tokens (each the cheaper
of decoding and refilling) its volume v. Spread evenly over its batch, the processing of volumes is a schedule of a
single machine, with release times and preemption, in which nobody completes later. Two bounds follow, r being
arrivals:

*Whole*: the sum of completions is at least that of shortest remaining volume first, optimal for one machine.

*Fractional*: C_i >= (mean time at which i's volume is processed) + h_i, where h_i is the mean over its volume of the
time that must still pass: after token k come O - k more batches, each at least b_o + min(b_d + decode, b_p + refill).
The sum of the mean times is least when the smallest volume released goes first (an exchange argument: all volumes
count 1 / v per unit). Strong where many requests run together, as their volumes are then far smaller than their spans.

For TTFT a request is its first token only. Both need the machine never to be faster than 1, which holds for every
schedule, with swapping and empty batches too. Floating point, rounded down by more than its error.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import product

import numpy as np
import numpy.typing as npt

from csp.relaxations.aggregate import Relaxation
from csp.relaxations.combinatorial import additive_weights
from csp.relaxations.load import Load
from csp.relaxations.patterns import Charges, Weights, charges
from sim.clock import TICKS_PER_NS
from sim.cost.model import CostModel
from sim.instance import Instance

Floats = npt.NDArray[np.float64]
SAFETY = 1e-8
"""Relative slack taken off sums of positive terms; their rounding error is below 1e-9 for a million requests."""


@dataclass(frozen=True, slots=True)
class Volumes:
    """Per type of request (in the order of the load's lengths), in ticks.

    Attributes
    ----------
    volume
        Least machine time of the request (or of its first token).
    rest
        h, the mean over its volume of the time that must still pass.
    alone
        Least time from start to completion (or to the first token) of the request by itself.
    """

    volume: Floats
    rest: Floats
    alone: Floats


def volumes(load: Load, charge: Charges, resource: str, *, first_token: bool) -> Volumes:
    """Volumes with the fixed charge shared by ``resource``: "memory", "tokens" or "slots".

    Raises
    ------
    ValueError
        For slots without max_num_seqs.
    """
    fixed = charge.least
    if resource == "memory":
        capacity = load.kv_blocks * load.block_size
    elif resource == "tokens":
        capacity = load.token_budget
    elif load.max_num_seqs is not None:
        capacity = load.max_num_seqs
    else:
        raise ValueError("no max_num_seqs, so no slots to share")
    share = fixed / capacity
    fill_share = (charge.batch + charge.prefill_batch) / capacity
    rows = [_request(load, charge, i, 1 if first_token else o, resource, share, fill_share)
            for i, o, _ in load.lengths]  # fmt: skip
    volume, rest, alone = np.array(rows).T
    return Volumes(volume, rest, alone)


def _request(
    load: Load, charge: Charges, i: int, o: int, resource: str, share: float, per_fill: float
) -> tuple[float, float, float]:
    size = i + np.arange(1, o, dtype=float)
    fill = charge.n_prefill + charge.tokens * size + charge.square * size * size
    decode = charge.n_decode + charge.tokens + charge.decode_reads * (size - 1)
    if resource == "memory":
        fill_share, decode_share, first = per_fill * size, share * size, per_fill * i
    elif resource == "tokens":
        fill_share, decode_share, first = per_fill * size, np.full_like(size, share), per_fill * i
    else:
        fill_share, decode_share, first = np.full_like(size, per_fill), np.full_like(size, share), per_fill
    volume = np.minimum(fill + fill_share, decode + decode_share)
    span = charge.batch + np.minimum(charge.prefill_batch + fill, charge.decode_batch + decode)
    first_volume = charge.fill(i) + first
    chunks = -(-i // load.token_budget)
    first_span = chunks * (charge.batch + charge.prefill_batch) + charge.fill(i)
    after = np.append(span[::-1].cumsum()[::-1], 0.0)
    every = np.append(first_volume, volume)
    total = float(every.sum())
    # The first token's chunks may end at different times; none of them ends after the token.
    rest = float(every @ after) / total if total else float(after[0])
    return total, rest, first_span + float(span.sum())


def mean_bound(
    instance: Instance, load: Load, cost: CostModel, *, first_token: bool
) -> tuple[Fraction, dict[str, float | str]]:
    """Lower bound on the mean of completion (or first token) minus arrival, in ticks, and the numbers behind it."""
    kinds = {(i, o): kind for kind, (i, o, _) in enumerate(load.lengths)}
    kind = np.array([kinds[r.input_tokens, r.output_tokens] for r in instance.requests])
    arrival = np.array([r.arrival_ns * TICKS_PER_NS for r in instance.requests], float)
    waited = sum(r.arrival_ns for r in instance.requests) * TICKS_PER_NS
    best: tuple[float, dict[str, float | str]] = (0.0, {})
    resources = ("memory", "tokens", *(("slots",) if load.max_num_seqs is not None else ()))
    for weights, resource in product(weights_to_try(load, cost), resources):
        v = volumes(load, charges(load, cost, weights), resource, first_token=first_token)
        volume, rest, alone = v.volume[kind], v.rest[kind], v.alone[kind]
        sums = {"whole": _whole(volume, alone, arrival), "fractional": _fractional(volume, arrival) + float(rest.sum())}
        for form, total in sums.items():
            if total > best[0]:
                best = total, {"resource": resource, "form": form, "sum_of_volumes_ms": float(volume.sum()) / 1e11}
    total = math.floor(best[0] * (1 - SAFETY)) - waited
    return Fraction(max(0, total), len(instance.requests)), best[1]


@lru_cache(maxsize=4)
def weights_to_try(load: Load, cost: CostModel) -> tuple[Weights, ...]:
    """Convex combinations of pieces to try: those of the makespan's bound, with and without the batch count."""
    first = additive_weights(load, cost)
    return (first,) if cost.additive else tuple({first, Relaxation(load, cost, 1, 1).proposed().weights})


def _whole(volume: Floats, alone: Floats, arrival: Floats) -> float:
    """Sum of completions: the j-th of shortest remaining volume first, or the j-th least arrival + alone if later."""
    completions: list[float] = []
    order = np.argsort(arrival, kind="stable")
    waiting: list[float] = []
    now, at, n = 0.0, 0, len(order)
    while at < n or waiting:
        if not waiting:
            now = max(now, float(arrival[order[at]]))
        while at < n and arrival[order[at]] <= now:
            heapq.heappush(waiting, float(volume[order[at]]))
            at += 1
        left = heapq.heappop(waiting)
        until = float(arrival[order[at]]) if at < n else math.inf
        if now + left <= until:
            now += left
            completions.append(now)
        else:
            heapq.heappush(waiting, left - (until - now))
            now = until
    return float(np.maximum(np.array(completions), np.sort(arrival + alone)).sum())


def _fractional(volume: Floats, arrival: Floats) -> float:
    """Sum over requests of the mean time their volume is processed, smallest volume released first."""
    order = np.argsort(arrival, kind="stable")
    waiting: list[tuple[float, float]] = []
    total = 0.0
    now, at, n = 0.0, 0, len(order)
    while at < n or waiting:
        if not waiting:
            now = max(now, float(arrival[order[at]]))
        while at < n and arrival[order[at]] <= now:
            v = float(volume[order[at]])
            heapq.heappush(waiting, (v, v))
            at += 1
        v, left = heapq.heappop(waiting)
        until = float(arrival[order[at]]) if at < n else math.inf
        step = min(left, until - now)
        total += (step / v) * (now + step / 2) if v else now
        now += step
        if step < left:
            heapq.heappush(waiting, (v, left - step))
    return total
