"""Break-even: up to which length a request is cheaper to preempt and refill than to wait for (paper, section 7.3).

A request that generated a token in a batch holds x KVs. Preempting it and refilling x + 1 tokens later saves one decode
batch that reads x KVs, so preemption pays where F_p(x + 1) < F_d(x). Which batches the two sides mean is open, so both
readings are computed, for every cost model:

*literal*: both are whole batches of one request.

*marginal*: the refill joins a batch that prefills anyway and costs only what it adds to it; the decode batch is saved
whole. Without the charge per prefill entry it is the reading that the paper's own numbers come closest to; with it, it
is what a schedule pays, and it is what `verdict` uses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from bounds._piecewise import Quadratic, SignedMax, evaluate, negative_intervals
from sim.cost.model import CostModel, Features
from sim.instance import Instance

_ZERO: Quadratic = (0, 0, 0)
_ONE: Quadratic = (1, 0, 0)
_REFILL: Quadratic = (1, 1, 0)
SMALLEST_KV_TOKENS = 1
"""A request that generated a token holds at least one KV."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Where one reading of F_p(x + 1) < F_d(x) holds.

    Parameters
    ----------
    intervals
        Open intervals of x >= 1 on which it holds; an end of None means that it holds for all larger x.
    """

    intervals: tuple[tuple[float, float | None], ...]

    @property
    def crossover(self) -> float | None:
        """The x from which on it no longer holds; None if it never holds or never stops holding."""
        return self.intervals[-1][1] if self.intervals else None

    @property
    def holds(self) -> str:
        """Where it holds, in words.

        >>> Reading(()).holds, Reading(((1.0, 44.4),)).holds, Reading(((1.0, None),)).holds
        ('never', 'x < 44.40', 'always')
        """
        if not self.intervals:
            return "never"
        if self.intervals == ((float(SMALLEST_KV_TOKENS), None),):
            return "always"
        parts = []
        for start, end in self.intervals:
            left = "" if start == SMALLEST_KV_TOKENS else f"{start:.2f} < "
            parts.append(f"x > {start:.2f}" if end is None else f"{left}x < {end:.2f}")
        return " or ".join(parts)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether preempting can pay on an instance, by the marginal break-even.

    Parameters
    ----------
    pays
        Whether memory is contended and some request meets the break-even.
    contended
        Whether the peaks I + O - 1 of all requests exceed the KV capacity together.
    shortest_kv_tokens
        The smallest x of the instance: the I of the shortest prompt among requests with O >= 2; None without one.
    reason
        The verdict in one sentence.
    """

    pays: bool
    contended: bool
    shortest_kv_tokens: int | None
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {"pays": self.pays, "contended": self.contended, "shortest_kv_tokens": self.shortest_kv_tokens,
                "reason": self.reason}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Breakeven:
    """Both readings of the break-even under one cost model.

    Parameters
    ----------
    cost
        The cost model.
    literal, marginal
        The two readings; ``marginal`` without the charge per prefill entry.
    marginal_entry
        The marginal reading with that charge.
    base_tokens
        Tokens of the fill that the refill joins; None for a fill as long as the refilled request's own KVs. It matters
        only where the cost is not additive.
    """

    cost: CostModel
    literal: Reading
    marginal: Reading
    marginal_entry: Reading
    base_tokens: int | None = None

    def pays_at(self, kv_tokens: int) -> bool:
        """Whether preempting a request that holds x KVs pays, by the marginal reading with the charge per entry."""
        terms = _marginal_terms(self.cost, entry_charge=True, base_tokens=self.base_tokens)
        return evaluate(terms, Fraction(kv_tokens)) < 0

    def verdict(self, instance: Instance) -> Verdict:
        """Whether preempting can pay on an instance.

        It looks at the shortest request that still has a token to generate after its fill, just after the fill, and at
        whether memory is short at all. A rule of thumb: the optimum may differ where lengths do.
        """
        contended = sum(instance.blocks(r.peak_kv_tokens) for r in instance.requests) > instance.kv_blocks
        lengths = sorted({r.input_tokens for r in instance.requests if r.output_tokens >= 2})
        if not lengths:
            return Verdict(False, contended, None, "no: every request completes with its fill")
        paying = [x for x in lengths if self.pays_at(x)]
        x = paying[0] if paying else lengths[0]
        if not contended:
            return Verdict(False, False, x, "no: all requests fit in memory together")
        limit = self.marginal_entry.holds
        if paying:
            return Verdict(True, True, x, f"yes: a request holding {x} KVs is below the break-even ({limit})")
        return Verdict(False, True, x, f"no: the shortest request holds {x} KVs; the break-even holds for {limit}")

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "cost_model": self.cost.name, "literal_crossover": self.literal.crossover,
            "literal_holds": self.literal.holds, "marginal_crossover": self.marginal.crossover,
            "marginal_holds": self.marginal.holds, "marginal_crossover_entry_charged": self.marginal_entry.crossover,
            "marginal_entry_charged_holds": self.marginal_entry.holds, "base_tokens": self.base_tokens,
        }  # fmt: skip


def breakeven(cost: CostModel, *, base_tokens: int | None = None) -> Breakeven:
    """Break-even of a cost model in both readings.

    Parameters
    ----------
    cost
        Any cost model.
    base_tokens
        Tokens of the fill that a refill joins in the marginal reading; None for one of x tokens.

    Examples
    --------
    >>> from sim.cost import load_cost_model
    >>> found = breakeven(load_cost_model("linear/llama2-7b-a100"))
    >>> found.literal.crossover, round(found.marginal.crossover, 2), round(found.marginal_entry.crossover, 2)
    (None, 44.42, 43.62)
    """
    literal = negative_intervals(_literal_terms(cost), SMALLEST_KV_TOKENS)
    readings = [
        Reading(negative_intervals(_marginal_terms(cost, charge, base_tokens), SMALLEST_KV_TOKENS))
        for charge in (False, True)
    ]
    return Breakeven(cost, Reading(literal), readings[0], readings[1], base_tokens)


def sides_ms(cost: CostModel, kv_tokens: int, base_tokens: int | None = None) -> dict[str, float]:
    """Both sides of the inequality at x KVs, in ms per layer: what a refill costs and what a decode batch costs."""
    x = Fraction(kv_tokens)
    per_layer = Fraction(1, 10**11 * cost.layers)
    terms = {
        "refill, whole batch": signed_terms(cost, 1, fill(_REFILL)),
        "refill, added tokens": added_terms(cost, _REFILL, False, base_tokens),
        "refill, added tokens and entry": added_terms(cost, _REFILL, True, base_tokens),
        "decode batch saved": signed_terms(cost, 1, _DECODE),
    }
    return {label: float(evaluate(parts, x) * per_layer) for label, parts in terms.items()}


FeatureQuadratics = Mapping[str, Quadratic]


def _square(linear: Quadratic) -> Quadratic:
    a, b, _ = linear
    return a * a, 2 * a * b, b * b


def _plus(first: Quadratic, second: Quadratic) -> Quadratic:
    return first[0] + second[0], first[1] + second[1], first[2] + second[2]


def fill(tokens: Quadratic) -> FeatureQuadratics:
    """A batch that fills one request of so many tokens (a linear function of x)."""
    return {"batch": _ONE, "prefill_batch": _ONE, "n_prefill": _ONE, "tokens": tokens,
            "prefill_square": _square(tokens)}  # fmt: skip


_DECODE: FeatureQuadratics = {
    "batch": _ONE, "decode_batch": _ONE, "n_decode": _ONE, "tokens": _ONE, "decode_reads": (0, 1, 0),
}  # fmt: skip


def _literal_terms(cost: CostModel) -> list[SignedMax]:
    return signed_terms(cost, 1, fill(_REFILL)) + signed_terms(cost, -1, _DECODE)


def _marginal_terms(cost: CostModel, entry_charge: bool, base_tokens: int | None) -> list[SignedMax]:
    return added_terms(cost, _REFILL, entry_charge, base_tokens) + signed_terms(cost, -1, _DECODE)


def added_terms(cost: CostModel, tokens: Quadratic, entry_charge: bool, base_tokens: int | None) -> list[SignedMax]:
    """What filling so many tokens adds to a batch that fills another request.

    Parameters
    ----------
    cost
        Any cost model.
    tokens
        Tokens filled, a linear function of x.
    entry_charge
        Whether the charge per prefill entry is counted.
    base_tokens
        Tokens of the other fill; None for x of them.
    """
    base = fill((0, 1, 0) if base_tokens is None else (base_tokens, 0, 0))
    refill: FeatureQuadratics = {"tokens": tokens, "prefill_square": _square(tokens)}
    if entry_charge:
        refill = {**refill, "n_prefill": _ONE}
    both = {f: _plus(base.get(f, _ZERO), refill.get(f, _ZERO)) for f in Features._fields}
    return signed_terms(cost, 1, both) + signed_terms(cost, -1, base)


def signed_terms(cost: CostModel, sign: int, features: FeatureQuadratics) -> list[SignedMax]:
    """Plus or minus the time of a batch whose features are quadratics in x, in ticks."""
    terms: list[SignedMax] = []
    for group in cost.groups:
        parts = []
        for piece in group.pieces:
            total = _ZERO
            for name, ticks in zip(Features._fields, piece, strict=True):
                a, b, c = features.get(name, _ZERO)
                total = _plus(total, (ticks * a, ticks * b, ticks * c))
            parts.append(total)
        terms.append((sign, parts))
    return terms
