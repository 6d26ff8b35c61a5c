"""Batch counts into time: the least a schedule's total features can cost, as a Lagrangian evaluated exactly.

Summed over the batches of a schedule let J, F_p, F_d be the numbers of batches that process, prefill, decode, and y_s
the number of tokens k >= 2 generated at size s by a refill instead of a decode step. A refill of s tokens, in whatever
chunks, costs tokens s, square s^2 (chunks telescope: c^2 + 2 c m = (m + c)^2 - m^2) and at least one entry. So with
n_s such tokens in all and K = min(M, C)

    tokens >= sum (I + O - 1) + sum y_s (s - 1)          n_prefill >= N + sum y_s      n_decode = sum (n_s - y_s)
    square >= sum I^2 + sum y_s s^2                      decode_reads = sum (n_s - y_s)(s - 1)
    J >= least J,  F_p >= least F_p,  F_p <= J,  F_d <= J,  F_p + F_d >= J
    sum I + sum y_s s <= K F_p     what a batch prefills is resident after it
    sum (n_s - y_s) s <= M F_d     so is what it decodes
    tokens <= C J,   n_prefill <= S F_p,   n_decode <= S F_d,   n_prefill + n_decode <= S J   (S = max_num_seqs)

The time of a batch is a sum over groups of the largest of some affine pieces, so it is at least any convex
combination w of the pieces at its features; a combination is linear, so summing over batches gives the combination at
the total features. Flags are features like the others: their totals are J, F_p and F_d. For any weights w and any
multipliers >= 0 on the capacity rows, minimising over y, J, F_p, F_d term by term gives a lower bound;
`Relaxation.value` does it in exact rational arithmetic, so nothing rests on the solver that proposes weights and
multipliers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from csp.relaxations.load import Load
from sim.cost.model import CostModel, Features

ROWS = ("prefill_tokens", "decode_kv", "tokens", "prefill_entries", "decode_entries", "entries")
"""Capacity rows that may carry a multiplier."""


@dataclass(frozen=True, slots=True)
class Multipliers:
    """What proves a bound: a convex combination of pieces per operator group and a price >= 0 per capacity row.

    Parameters
    ----------
    weights
        Per group one weight >= 0 per piece, summing to 1.
    prices
        Row name (see `ROWS`) -> ticks per unit of capacity.
    """

    weights: tuple[tuple[Fraction, ...], ...]
    prices: dict[str, Fraction] = field(default_factory=dict)

    def check(self) -> None:
        """Raise ValueError unless these prove something."""
        for group in self.weights:
            if sum(group) != 1 or min(group) < 0:
                raise ValueError(f"weights {group} are no convex combination")
        if any(price < 0 for price in self.prices.values()) or not set(self.prices) <= set(ROWS):
            raise ValueError("prices must be >= 0 and belong to known rows")


@dataclass(frozen=True, slots=True)
class Relaxation:
    """The relaxation of one instance under one cost model.

    Parameters
    ----------
    load
        Requests counted by lengths.
    cost
        Any cost model.
    least_batches, least_prefill_batches
        Proven lower bounds on J and F_p.
    """

    load: Load
    cost: CostModel
    least_batches: int
    least_prefill_batches: int

    def default_multipliers(self) -> Multipliers:
        """The first piece of each group and no prices: for additive cost the plain bound."""
        weights = tuple((Fraction(1), *[Fraction(0)] * (len(g.pieces) - 1)) for g in self.cost.groups)
        return Multipliers(weights)

    def combined(self, weights: Sequence[Sequence[Fraction]]) -> dict[str, Fraction]:
        """Coefficient per feature of a convex combination of the pieces."""
        total = [Fraction(0)] * len(Features._fields)
        for group, group_weights in zip(self.cost.groups, weights, strict=True):
            for piece, weight in zip(group.pieces, group_weights, strict=True):
                if weight:
                    total = [t + weight * a for t, a in zip(total, piece, strict=True)]
        return dict(zip(Features._fields, total, strict=True))

    def value(self, multipliers: Multipliers) -> Fraction:
        """The bound in ticks that these multipliers prove, exactly."""
        multipliers.check()
        a = self.combined(multipliers.weights)
        price = {row: multipliers.prices.get(row, Fraction(0)) for row in ROWS}
        load = self.load
        cap, kv = load.token_budget, load.kv_capacity_tokens
        seqs = load.max_num_seqs
        if seqs is None and any(price[row] for row in ROWS[3:]):
            raise ValueError("there is no max_num_seqs to put a price on")
        seqs = seqs or 0
        fixed = self._fixed(
            a["batch"] - price["tokens"] * cap - price["entries"] * seqs,
            a["prefill_batch"] - price["prefill_tokens"] * min(cap, kv) - price["prefill_entries"] * seqs,
            a["decode_batch"] - price["decode_kv"] * kv - price["decode_entries"] * seqs,
        )
        if fixed is None:
            raise ValueError("prices are too high: more batches would lower the bound without end")
        per_token = a["tokens"] + price["tokens"]
        per_prefill = a["n_prefill"] + price["prefill_entries"] + price["entries"]
        per_decode = a["n_decode"] + price["decode_entries"] + price["entries"]
        first = (per_token + price["prefill_tokens"]) * load.input_tokens + a["prefill_square"] * load.input_square
        first += per_prefill * load.requests
        # A decode step at size s costs d0 + d1 s, a refill r0 + r1 s + r2 s^2.
        d0, d1 = per_token + per_decode - a["decode_reads"], a["decode_reads"] + price["decode_kv"]
        r0, r1, r2 = per_prefill, per_token + price["prefill_tokens"], a["prefill_square"]
        steps, sizes, _ = load.decode_sums()
        later = d0 * steps + d1 * sizes
        for low, high in _negative(r2, r1 - d1, r0 - d0):
            s0, s1, s2 = load.decode_sums(low, high)
            later += (r0 - d0) * s0 + (r1 - d1) * s1 + r2 * s2
        return fixed + first + later

    def _fixed(self, j: Fraction, p: Fraction, d: Fraction) -> Fraction | None:
        """Least j J + p F_p + d F_d over the numbers of batches; None if unbounded."""
        if min(j + d, j + p, j + p + d) < 0:
            return None
        batches = max(self.least_batches, self.least_prefill_batches)
        prefill = self.least_prefill_batches
        corners = ((prefill, batches - prefill), (prefill, batches), (batches, 0), (batches, batches))
        return j * batches + min(p * f_p + d * f_d for f_p, f_d in corners)

    def proposed(self) -> Multipliers:
        """Multipliers near the best ones, from the linear programme (in floating point, so only a proposal)."""
        from csp.relaxations._aggregate_lp import propose

        return self.repaired(propose(self))

    def repaired(self, multipliers: Multipliers) -> Multipliers:
        """Prices scaled down, where needed, until the bound is finite."""
        a = self.combined(multipliers.weights)
        load = self.load
        cap, kv, seqs = load.token_budget, load.kv_capacity_tokens, load.max_num_seqs or 0
        price = {row: multipliers.prices.get(row, Fraction(0)) for row in ROWS}
        j = price["tokens"] * cap + price["entries"] * seqs
        p = price["prefill_tokens"] * min(cap, kv) + price["prefill_entries"] * seqs
        d = price["decode_kv"] * kv + price["decode_entries"] * seqs
        scale = Fraction(1)
        for need, have in ((j + p, a["batch"] + a["prefill_batch"]), (j + d, a["batch"] + a["decode_batch"]),
                           (j + p + d, a["batch"] + a["prefill_batch"] + a["decode_batch"])):  # fmt: skip
            if need > have:
                scale = min(scale, have / need)
        return Multipliers(multipliers.weights, {row: x * scale for row, x in price.items() if x})


def _negative(a: Fraction, b: Fraction, c: Fraction) -> list[tuple[int, int | None]]:
    """The integers s >= 1 with a s^2 + b s + c < 0 (a >= 0), as at most one interval; None for no upper end."""
    scale = math.lcm(a.denominator, b.denominator, c.denominator)
    a, b, c = a * scale, b * scale, c * scale
    qa, qb, qc = int(a), int(b), int(c)
    if qa == 0:
        if qb == 0:
            return [(1, None)] if qc < 0 else []
        root = Fraction(-qc, qb)
        if qb > 0:
            return [(1, math.ceil(root) - 1)] if root > 1 else []
        return [(max(1, math.floor(root) + 1), None)]
    disc = qb * qb - 4 * qa * qc
    if disc <= 0:
        return []
    around = math.isqrt(disc)
    low, high = (-qb - around) // (2 * qa) - 1, (-qb + around) // (2 * qa) + 1

    def below(s: int) -> bool:
        return qa * s * s + qb * s + qc < 0

    low = max(low, 1)
    while low <= high and not below(low):
        low += 1
    while high >= low and not below(high):
        high -= 1
    return [(low, high)] if low <= high else []
