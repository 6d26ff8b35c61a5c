"""Mean completion time, batches being the longer the more share them: prices of machine time, memory and company.

Let W, X be the sums over a batch's entries of their work w (ticks beyond the fixed charges) and of A, the share of
their request's volume that is done by the middle of the entry. A batch lasts l >= f + W, f being its least fixed
charge, and with t the mean time of a batch and a the entry's share of the volume

    C_i >= sum over i's entries of  a t + A l,      so      sum of C_i >= sum over batches of  (sum of a t) + X l.

For any price pi(t) >= 0 of machine time, the integral of pi over a batch added and over all time subtracted, a batch is
worth the mean over its time of (sum of a t) + (pi + X) l, and

    (pi + X)(f + W) = pi W + f X + pi f + X W,
    X W >= p (sum of A w) + (1 - p) (sum of sqrt(A w))^2          0 <= p <= 1 (Cauchy-Schwarz)
    pi f + (1 - p) Z^2 >= m + q Z                                 q = 2 sqrt((1 - p)(pi f - m)), 0 <= m <= pi f
    m >= m (sum of KVs after the batch) / M,  or of entries / max_num_seqs

so every entry is worth at least a t + pi w + f A + p A w + q sqrt(A w) + m s / M whatever else is in its batch, and not
less than the least of that over all t from its arrival on. With p = q = 0 this is the fractional bound of
`csp.relaxations.volumes`; q charges an entry for the company without which its batch's charge would not be paid for.
pi, p, q, m are linear between knots (what they must satisfy is convex), so the least is at a knot or at the arrival.

A token counts with the cheaper of decoding and refilling. In chunks, x_j of a fill's work each, A_j >= A_0 + a x_j / 2
and KVs are at least x_j s, so sums over them are no less than x_j times the token's own terms; only for p A w the mean
over A_0 and A_0 + a is taken (a minimum of linear functions is concave in A), or A_0 where a is small. The surcharge
of batches that prefill is shared by C tokens. Tokens are gathered in groups, each term being the least in a group per
unit of volume. Holds for every schedule, with swapping and empty batches too. Floating point, rounded down by more than
its error.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

import numpy as np
import numpy.typing as npt

from csp.relaxations.load import Load
from csp.relaxations.machine import least_worth, machine_price
from csp.relaxations.patterns import Charges, charges
from csp.relaxations.volumes import SAFETY, weights_to_try
from sim.clock import TICKS_PER_MS, TICKS_PER_NS
from sim.cost.model import CostModel
from sim.instance import Instance

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
GROUPS = 32
"""Of tokens after the first; fewer for many lengths."""
_MOST_ROWS = 2_000_000
_SLICE = 2_000
COMPANY = (0.25, 0.4, 0.6, 0.8, 1.0, 1.25, 1.6, math.inf)
"""Tried: sqrt(pi f - m) at most, as multiples of the sum of sqrt(A w) in a batch that fills the memory."""
_SAMPLES = 1_000
"""Requests by which the multiple is chosen."""


@dataclass(frozen=True, slots=True)
class Entries:
    """What the tokens of each type of request are worth.

    Attributes
    ----------
    volume
        Work and share of f, in ticks, per type.
    spent
        Sum of f A, in ticks, per type.
    full
        sum of sqrt(A w) in a full batch of its tokens, in square roots of ticks, per type.
    rows
        (types, groups, 5): share of the volume, then per unit of it w, A w, sqrt(A w) and the share of the capacity.
    """

    volume: Floats
    spent: Floats
    full: Floats
    rows: Floats


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices at knots: times in ticks, ascending (twice the same where a price jumps), and columns pi, p, q, m."""

    at: Floats
    values: Floats

    @property
    def paid(self) -> float:
        """Integral of pi."""
        pi = self.values[:, 0]
        return float(((pi[1:] + pi[:-1]) / 2 * np.diff(self.at)).sum())


def entries(load: Load, charge: Charges, resource: str) -> Entries:
    """The worth of entries with ``resource`` ("memory" or "slots") shared."""
    groups = max(2, min(GROUPS, _MOST_ROWS // len(load.lengths)))
    capacity = load.kv_blocks * load.block_size if resource == "memory" else load.max_num_seqs
    assert capacity is not None
    surcharge = max(0, charge.prefill_batch - charge.decode_batch) / load.token_budget
    types = len(load.lengths)
    volume, spent, full, rows = np.zeros(types), np.zeros(types), np.zeros(types), np.zeros((types, groups + 2, 5))
    for kind, (i, o, _) in enumerate(load.lengths):
        size = i + np.arange(o, dtype=float)
        fill = charge.n_prefill + (charge.tokens + surcharge) * size + charge.square * size * size
        decode = charge.n_decode + charge.tokens + charge.decode_reads * (size - 1)
        work = np.minimum(fill, decode)
        work[0] = fill[0]
        taken = size / capacity if resource == "memory" else np.full(o, 1 / capacity)
        share = work + charge.least * taken
        volume[kind] = share.sum()
        share /= volume[kind]
        before = np.cumsum(share) - share
        middle = before + share / 2
        company = np.sqrt(middle * work)
        spent[kind] = charge.least * middle.sum()
        full[kind] = company.sum() / taken.sum()
        per_unit = np.stack([work, before * work, company, taken]) / share
        rows[kind, :2] = share[0] / 2, *per_unit[:, 0]
        rows[kind, 1, 2] = work[0]
        if o > 1:
            label = np.minimum(groups - 1, ((middle[1:] - share[0]) / (1 - share[0]) * groups).astype(int))
            starts = np.flatnonzero(np.append(True, label[1:] != label[:-1]))
            group = label[starts] + 2
            rows[kind, group, 0] = np.add.reduceat(share[1:], starts)
            rows[kind, group, 1:] = np.minimum.reduceat(per_unit[:, 1:], starts, axis=1).T
    return Entries(volume, spent, full, rows)


def with_company(pi: Floats, fixed: float, company: float) -> Floats:
    """Columns pi, p, q, m with sqrt(pi f - m) at most ``company``, and p = 1 where machine time is free."""
    z = np.minimum(company, np.sqrt(fixed * pi))
    return np.stack([pi, (pi == 0).astype(float), 2 * z, np.maximum(0.0, fixed * pi - z * z)], axis=1)


@dataclass(frozen=True, slots=True)
class Crowd:
    """Requests of one arrival and type counted, and the prices of machine time for them."""

    kind: Ints
    arrival: Floats
    count: Floats
    at: Floats
    pi: Floats
    theirs: Entries
    fixed: int

    def prices(self, multiple: float) -> Prices:
        """Prices with company up to a multiple of that of a full batch."""
        full = np.average(self.theirs.full[self.kind], weights=self.theirs.volume[self.kind] * self.count)
        return Prices(self.at, with_company(self.pi, self.fixed, multiple * float(full)))

    def worth(self, prices: Prices, over: Callable[[], bool], step: int = 1) -> float | None:
        """Sum over requests, or over every so many of them, of the least worth of their entries; None if stopped."""
        evaluate = least_worth()
        kind, arrival, count = self.kind[::step], self.arrival[::step], self.count[::step]
        total = float(count @ self.theirs.spent[kind])
        for start in range(0, len(kind), _SLICE):
            if over():
                return None
            part = slice(start, start + _SLICE)
            total += evaluate(prices.at, prices.values, kind[part], arrival[part], count[part], self.theirs.rows)
        return total

    def best_multiple(self, over: Callable[[], bool]) -> float:
        """The best of `COMPANY` judged by a sample of the requests."""
        step = -(-len(self.kind) // _SAMPLES)
        scale = self.count.sum() / self.count[::step].sum()

        def judged(multiple: float) -> float:
            prices = self.prices(multiple)
            worth = self.worth(prices, over, step)
            return -math.inf if worth is None else worth * scale - prices.paid

        return max(COMPANY, key=judged)


def crowding_bound(
    instance: Instance, load: Load, cost: CostModel, over: Callable[[], bool]
) -> tuple[Fraction, dict[str, float | str]] | None:
    """Lower bound on the mean of completion minus arrival, in ticks, and the numbers behind it.

    None if there is nothing to share or ``over()`` says stop before there is a bound.
    """
    kinds = {(i, o): kind for kind, (i, o, _) in enumerate(load.lengths)}
    counts = Counter((r.arrival_ns * TICKS_PER_NS, kinds[r.input_tokens, r.output_tokens]) for r in instance.requests)
    rows = sorted(counts.items())
    arrival = np.array([when for (when, _), _ in rows], float)
    kind = np.array([k for (_, k), _ in rows])
    count = np.array([n for _, n in rows], float)
    waited = sum(r.arrival_ns for r in instance.requests) * TICKS_PER_NS
    best: tuple[Fraction, dict[str, float | str]] | None = None
    for weights, resource in product(weights_to_try(load, cost), _resources(load)):
        charge = charges(load, cost, weights)
        if not charge.least or over():
            continue
        theirs = entries(load, charge, resource)
        at, pi = machine_price(theirs.volume[kind], arrival, count)
        crowd = Crowd(kind, arrival, count, at, pi, theirs, charge.least)
        multiple = crowd.best_multiple(over)
        prices = crowd.prices(multiple)
        worth = crowd.worth(prices, over)
        if worth is None:
            continue
        total = math.floor(worth - prices.paid - SAFETY * (worth + prices.paid)) - waited
        value = Fraction(max(0, total), len(instance.requests))
        if best is None or value > best[0]:
            best = value, {
                "resource": resource, "company": multiple if multiple < math.inf else "unlimited", "knots": len(at),
                "paid_ms": prices.paid / TICKS_PER_MS,
            }  # fmt: skip
    return best


def _resources(load: Load) -> tuple[str, ...]:
    return ("memory",) if load.max_num_seqs is None else ("memory", "slots")
