"""Where a signed sum of largest-of-parabolas is negative: the algebra behind a break-even under any cost model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction

Quadratic = tuple[int, int, int]
"""a + b x + c x^2 as (a, b, c)."""

SignedMax = tuple[int, Sequence[Quadratic]]
"""Plus or minus the largest of some quadratics."""


def evaluate(terms: Iterable[SignedMax], x: Fraction) -> Fraction:
    """Exact value of the signed sum at x.

    >>> evaluate([(1, [(0, 2, 0), (5, 0, 0)]), (-1, [(1, 0, 0)])], Fraction(3))
    Fraction(5, 1)
    """
    total = Fraction(0)
    for sign, parts in terms:
        total += sign * max(a + b * x + c * x * x for a, b, c in parts)
    return total


def negative_intervals(terms: Sequence[SignedMax], start: int) -> tuple[tuple[float, float | None], ...]:
    """The maximal open intervals of x >= start on which the signed sum is negative.

    The sum is one quadratic between neighbouring points where two quadratics of a term cross; its own roots cut those
    stretches again, and an exact evaluation between neighbouring cuts gives the sign.

    Parameters
    ----------
    terms
        The signed sum.
    start
        Left end of the range looked at.

    Returns
    -------
    Pairs (from, to); ``to`` is None where the interval has no end.

    Examples
    --------
    >>> negative_intervals([(1, [(-4, 1, 0)])], 1)
    ((1.0, 4.0),)
    >>> negative_intervals([(1, [(-4, 0, 0)])], 1)
    ((1.0, None),)
    """
    kinks = {start * 1.0}
    for _, parts in terms:
        for i, first in enumerate(parts):
            for second in parts[i + 1 :]:
                kinks.update(x for x in _roots(_minus(first, second)) if x > start)
    cuts = sorted(kinks)
    for left, right in zip(list(cuts), [*cuts[1:], None], strict=True):
        active = _active(terms, _inside(left, right))
        cuts.extend(x for x in _roots(active) if x > left and (right is None or x < right))
    cuts = sorted(set(cuts))

    found: list[tuple[float, float | None]] = []
    for left, right in zip(cuts, [*cuts[1:], None], strict=True):
        if evaluate(terms, _inside(left, right)) >= 0:
            continue
        if found and found[-1][1] == left:
            found[-1] = (found[-1][0], right)
        else:
            found.append((left, right))
    return tuple(found)


def _minus(first: Quadratic, second: Quadratic) -> Quadratic:
    return first[0] - second[0], first[1] - second[1], first[2] - second[2]


def _inside(left: float, right: float | None) -> Fraction:
    return Fraction(left) * 2 + 1 if right is None else (Fraction(left) + Fraction(right)) / 2


def _active(terms: Sequence[SignedMax], x: Fraction) -> Quadratic:
    """The quadratic that the signed sum is around x."""
    total = (0, 0, 0)
    for sign, parts in terms:
        a, b, c = max(parts, key=lambda q: q[0] + q[1] * x + q[2] * x * x)
        total = (total[0] + sign * a, total[1] + sign * b, total[2] + sign * c)
    return total


def _roots(quadratic: Quadratic) -> list[float]:
    a, b, c = quadratic
    if c == 0:
        return [] if b == 0 else [-a / b]
    discriminant = b * b - 4 * a * c
    if discriminant < 0:
        return []
    # The root with the larger numerator first, the other from the product: no cancellation.
    larger = -(b + math.copysign(math.sqrt(discriminant), b)) / 2
    return [larger / c] if larger == 0 else [larger / c, a / larger]
