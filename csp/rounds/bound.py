"""Lower bounds on the total completion time in rounds, by Lagrangian relaxation of the memory and of crowding rows.

Besides the memory row of every round, *crowding* rows: for a peak P and q >= 1, at most q requests whose peak is at
least P are at any round larger than (M - P) / q. For if q + 1 were, let the first of them to complete do so in a later
round: it then holds its peak, the others, which only grow, hold more than (M - P) / q each, and together more than M.
(P runs over the peaks that occur; q = 1 says that the grown part of large requests excludes each other.)

With prices on the rows every request chooses its start alone: total >= sum of the cheapest choices - sum of right-hand
sides x prices, for any prices >= 0. Prices come from a subgradient ascent in floating point; the bound is then computed
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
_MOST_WORK = 3 * 10**6
"""Operations of a step; where all crowding rows take more, evenly spread ones are used."""
_STEPS_AT_ONCE = 10
_RATE, _LAST_RATE = 0.02, 0.0002
"""First and last step, in rounds per request: of what all prices of a round can come to."""


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
        every = -(-len(ages) * len(types) * self.rounds // _MOST_WORK)
        self.first_age = np.array(ages[:1] + ages[1::every])
        self.right = np.array(right[:1] + right[1::every], np.int64)

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


def lower_bound(relaxation: Relaxation, *, steps: int, share: Callable[[], float] = lambda: 0.0) -> int:
    """The bound after some steps of Adam (Kingma, Ba 2015) over the prices, rows scaled to right-hand side 1.

    Parameters
    ----------
    share
        Share of the time that has passed; what is larger of it and of the share of steps sets the pace.
    """
    from csp.rounds._kernels import ascend

    r = relaxation
    shape = (len(r.right), r.rounds + 1)
    center, point, mean, square = (np.zeros(shape) for _ in range(4))
    best, n = 0.0, 0
    while (done := max(share(), n / steps)) < 1:
        rate = len(r.requests) * _RATE * (_LAST_RATE / _RATE) ** done
        best = ascend(center, point, mean, square, n, _STEPS_AT_ONCE, rate, best, r.right, r.first_age, r.inputs,
                      r.outputs, r.counts, r.rounds)  # fmt: skip
        n += _STEPS_AT_ONCE
    return r.value(np.floor(center * _SCALE).astype(np.int64))
