"""Lower bounds on the total completion time in rounds from the sets of requests that can run together.

A request with peak P = I + O - 1 and r rounds to come after the present one holds P - r KVs now and P when it
completes. Who runs in a round stays until completion, so a set of such pairs (P, r) can run in a round only if, for
every d >= 0, those with r >= d hold together at most M KVs d rounds later: sum of P - r + d <= M. Such sets are
*states*. Every memory row and every exclusion of large requests that are half grown is a consequence.

With a price on each pair in each round every request chooses its completion alone, and every round its dearest state:

    total >= sum of cheapest (completion round + prices on the way) - sum over rounds of the dearest state's prices

for any prices >= 0, since the requests' payments in a schedule are the prices of its states. The dearest state is found
exactly by a dynamic program over (number of requests, KVs), from the last to complete to the first. It takes a pair at
most as often as there are requests for it (but may take one request at two ages, which keeps the bound valid).

Prices are free at *knots* some rounds apart and linear between them. The dearest state's price is convex in the prices,
so between knots at most the same weighted sum of the knots' values: it need be known at knots only. Rounds beyond the
last are free. Everything that is reported is computed in integers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

_PARTS = 2**20
"""Prices are rounded down to this many parts of a round."""
_STEPS_AT_ONCE = 10
_MOST_WORK = 10**8
"""Operations of a step; beyond, `csp.rounds.bound` gets further."""
_RATE, _LAST_RATE = 0.018, 0.00015
"""First and last step, in rounds per request: of what prices of a round can come to."""
_FIRST_KNOTS, _MOST_KNOTS = 48, 160
"""Intervals between knots: at most so many at the start, and ever."""
_REFINE_AT = (0.4, 0.8)
"""Shares of the way at which their number is doubled. Tuned, as the steps are, on four random trials."""


@dataclass(slots=True)
class States:
    """Types and knots of one instance.

    Parameters
    ----------
    requests
        (I, O) of each request.
    memory
        M; at least every peak.
    rounds
        Rounds 1..rounds have prices (rounded up to whole knots); any number keeps the bound valid.
    spacing
        Rounds between knots.
    """

    requests: Sequence[tuple[int, int]]
    memory: int
    rounds: int
    spacing: int

    data: Any = ()
    """mass of knots; peak (index), output and count of each type; peaks, first pair, longest output and copies."""
    shape: tuple[int, int] = (0, 0)
    """Pairs, knots."""

    def __post_init__(self) -> None:
        types = sorted(Counter(self.requests).items())
        outputs = np.array([o for (_, o), _ in types], np.int64)
        counts = np.array([n for _, n in types], np.int64)
        peaks, peak_of = np.unique([i + o - 1 for (i, o), _ in types], return_inverse=True)
        longest = np.array([outputs[peak_of == p].max() for p in range(len(peaks))], np.int64)
        offset = np.cumsum(longest) - longest
        copies = np.concatenate([
            [counts[(peak_of == p) & (outputs > r)].sum() for r in range(n)] for p, n in enumerate(longest)
        ])  # fmt: skip
        between = max(1, -(-self.rounds // self.spacing))
        mass = np.full(between + 1, self.spacing**2, np.int64)
        mass[0], mass[-1] = self.spacing * (self.spacing - 1) // 2, self.spacing * (self.spacing + 1) // 2
        self.data = (mass, peak_of.astype(np.int64), outputs, counts, peaks.astype(np.int64), offset, longest,
                     copies.astype(np.int64))  # fmt: skip
        self.shape = (int(longest.sum()), between + 1)

    def value(self, prices: Any) -> int:
        """The bound that integer prices (pairs x knots, at least 0, in parts of a round) prove, a whole total."""
        from csp.rounds._state_kernels import bound

        unit = _PARTS * self.spacing
        found = bound(prices, self.spacing, unit, self.memory, self.smallest, *(*self.data, np.empty(self.shape)))
        return -(-int(found) // unit)

    @property
    def work(self) -> int:
        """About how many operations a step takes; also a limit of the table's entries."""
        _, _, _, _, peaks, _, longest, _ = self.data
        later = np.arange(int(longest.max()))
        together = self.memory // (self.smallest + later)
        per_knot = int(((longest[:, None] > later) * (self.memory - peaks[:, None]) * together).sum())
        return per_knot * self.shape[1] + self.shape[0] * (self.shape[1] - 1) * self.spacing

    @property
    def smallest(self) -> int:
        """The least that a request holds."""
        return min(i for i, _ in self.requests)

    @property
    def can_be_finer(self) -> bool:
        """Whether knots twice as many are few enough, and in whole rounds."""
        return self.spacing > 1 and 2 * (self.shape[1] - 1) <= _MOST_KNOTS

    def finer(self) -> States:
        """The same with a knot more in the middle of every two."""
        return States(self.requests, self.memory, (self.shape[1] - 1) * self.spacing, self.spacing // 2)


def lower_bound(
    requests: Sequence[tuple[int, int]], memory: int, rounds: int, upper: int, *, steps: int,
    share: Callable[[], float] = lambda: 0.0,
) -> int | None:  # fmt: skip
    """The bound after some steps of Adam (Kingma, Ba 2015) over the prices, knots close together only towards the end.

    Parameters
    ----------
    upper
        Total of a known schedule; a bound that reaches it is enough.
    share
        Share of the time that has passed; what is larger of it and of the share of steps sets the pace.

    Returns
    -------
    int or None
        None where states are too many to go through.
    """
    from csp.rounds._state_kernels import ascend

    spacing = 1
    while rounds > spacing * _FIRST_KNOTS:
        spacing *= 2
    states = States(requests, memory, rounds, spacing)
    if states.work > _MOST_WORK:
        return None
    point, mean, square = (np.zeros(states.shape) for _ in range(3))
    prices, best, proven, n, refined = np.zeros(states.shape, np.int64), -1, 0, 0, 0
    while (done := max(share(), n / steps)) < 1:
        if refined < len(_REFINE_AT) and done >= _REFINE_AT[refined] and states.can_be_finer:
            proven, best, states, refined = max(proven, states.value(prices)), -1, states.finer(), refined + 1
            point, mean, square = _between(point), _between(mean), _between(square)
            prices = np.zeros(states.shape, np.int64)
        rate = len(requests) * _RATE * (_LAST_RATE / _RATE) ** done
        best = ascend(prices, point, mean, square, n, _STEPS_AT_ONCE, rate, best, _PARTS, states.spacing,
                      states.memory, states.smallest, *states.data)  # fmt: skip
        n += _STEPS_AT_ONCE
        if best > (upper - 1) * _PARTS * states.spacing:
            break
    return max(proven, states.value(prices))


def _between(values: Any) -> Any:
    """Values at knots and, in the middle of every two, their mean."""
    out = np.empty((values.shape[0], 2 * values.shape[1] - 1))
    out[:, ::2], out[:, 1::2] = values, (values[:, 1:] + values[:, :-1]) / 2
    return out
