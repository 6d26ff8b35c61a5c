"""Lower bounds on the total completion time in rounds, by Lagrangian relaxation of the memory and of crowding rows.

Besides the memory row of every round, *crowding* rows: for a peak P and q >= 1, at most q requests whose peak is at
least P are at any round larger than (M - P) / q. For if q + 1 were, let the first of them to complete do so in a later
round: it then holds its peak, the others, which only grow, hold more than (M - P) / q each, and together more than M.
(P runs over the peaks that occur; q = 1 says that the grown part of large requests excludes each other.)

With prices on the rows every request chooses its start alone: total >= sum of the cheapest choices - sum of right-hand
sides x prices, for any prices >= 0. Prices come from the volume algorithm in floating point; the bound is then computed
again in integers, so it is exact. Nobody holds, is preempted or arrives late.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

_SCALE = 2**24
"""Prices are rounded to this many parts of a unit for the exact bound."""
_MOST_Q = 3
_WEIGHT, _LEAST_WEIGHT, _PATIENCE, _AIM = 0.1, 0.005, 20, 0.05
"""Of the newest choice in the average (halved four times on the way), its least; steps without progress before the step
shrinks; how far above the best bound prices aim. Tuned on ten random trials; the bound is valid with any."""


@dataclass(slots=True)
class Relaxation:
    """Rows and types of one instance.

    Parameters
    ----------
    requests
        (I, O) of each request.
    memory
        M.
    rounds
        Rows exist for rounds 1..rounds; later ones are free, which keeps the bound valid.
    """

    requests: Sequence[tuple[int, int]]
    memory: int
    rounds: int

    inputs: Any = None
    outputs: Any = None
    counts: Any = None
    first_age: Any = None
    """Families x types: age from which a request counts in a crowding row; 0 where it never does."""
    right: Any = None
    """Right-hand side per family."""

    def __post_init__(self) -> None:
        types = sorted(Counter(self.requests).items())
        self.inputs = np.array([i for (i, _), _ in types], np.int64)
        self.outputs = np.array([o for (_, o), _ in types], np.int64)
        self.counts = np.array([n for _, n in types], np.int64)
        peaks = self.inputs + self.outputs - 1
        ages, right = [np.zeros(len(types), np.int64)], [self.memory]
        for q in range(1, _MOST_Q + 1):
            for peak in sorted(set(peaks.tolist())):
                least = (self.memory - peak) // q + 1
                age = np.maximum(1, least - self.inputs + 1)
                age = np.where((peaks >= peak) & (age <= self.outputs), age, 0)
                if self.counts[age > 0].sum() > q:
                    ages.append(age)
                    right.append(q)
        self.first_age, self.right = np.array(ages), np.array(right, np.int64)

    def value(self, row_prices: Any) -> int:
        """The bound that integer prices (in parts of `_SCALE`) prove, rounded up to a whole total.

        Every round's completion counts `_SCALE`; starts beyond the last row cost no prices and complete later than one
        right after it.
        """
        from csp.rounds._kernels import prices

        out = np.zeros((len(self.inputs), self.rounds), np.int64)
        prices(row_prices, self.first_age, self.inputs, self.outputs, self.rounds, out)
        out += (np.arange(self.rounds)[None, :] + self.outputs[:, None]) * _SCALE
        cheapest = np.minimum(out.min(axis=1), (self.rounds + self.outputs) * _SCALE)
        paid = sum(int(b) * int(row.sum()) for b, row in zip(self.right, row_prices, strict=True))
        return -(-(int((cheapest * self.counts).sum()) - paid) // _SCALE)


def lower_bound(
    relaxation: Relaxation, upper: int, *, iterations: int, stopped: Callable[[], bool] = lambda: False
) -> int:
    """The bound after some iterations of the volume algorithm (Barahona, Anbil 2000), rows scaled to right-hand side 1.

    Parameters
    ----------
    upper
        Total of a known schedule; prices aim a little above the best bound, but never above it.
    """
    from csp.rounds._kernels import prices, usage

    r = relaxation
    shape = (len(r.right), r.rounds + 1)
    center, best = np.zeros(shape), 0.0
    out, used, average = np.zeros((len(r.inputs), r.rounds)), np.zeros(shape, np.int64), np.zeros(shape)
    finish = np.arange(r.rounds)[None, :] + r.outputs[:, None]
    scale = np.repeat(r.right[:, None], r.rounds + 1, axis=1).astype(float)
    step, failures, point = 1.0, 0, center
    for n in range(iterations):
        if n % 16 == 0 and stopped():
            break
        prices(point, r.first_age, r.inputs, r.outputs, r.rounds, out)
        out += finish
        choice = out.argmin(axis=1)
        value = float((out.min(axis=1) * r.counts).sum() - (scale[:, 1:] * point[:, 1:]).sum())
        usage(choice, r.counts, r.first_age, r.inputs, r.outputs, r.rounds, used)
        weight = 1.0 if n == 0 else max(_LEAST_WEIGHT, _WEIGHT * 0.5 ** (4 * n / iterations))
        average = (1 - weight) * average + weight * used
        if value > best:
            best, center, failures, step = value, point, 0, min(2.0, step * 1.05)
        else:
            failures += 1
            if failures == _PATIENCE:
                failures, step = 0, step * 0.66
        slope = average / scale - 1
        slope[:, 0] = 0
        uphill = np.where((center <= 0) & (slope < 0), 0.0, slope)
        length = max(1e-9, float((uphill * uphill).sum()))
        aim = min(upper - best, _AIM * best)
        point = np.maximum(0.0, center + step * max(1.0, aim) / length * slope / scale)
    return r.value(np.floor(center * _SCALE).astype(np.int64))
