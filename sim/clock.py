"""Exact time. One tick is 10 femtoseconds (1e-11 ms): every published coefficient is a whole number of ticks.

Ticks make batch times exact integers, so sums, comparisons and proofs of optimality need no tolerance. Files and tables
show nanoseconds (rounded up) and milliseconds.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

TICKS_PER_NS = 10**5
TICKS_PER_MS = 10**11
NS_PER_S = 10**9


def ticks_from_ms(milliseconds: Decimal | Fraction | int | str) -> int:
    """Nearest whole number of ticks of an exact number of milliseconds.

    >>> ticks_from_ms("0.0926")
    9260000000
    """
    return round(Fraction(milliseconds) * TICKS_PER_MS)


def ms_from_ticks(ticks: int | Fraction) -> float:
    """Milliseconds as a float, for showing."""
    return float(Fraction(ticks) / TICKS_PER_MS)


def ns_from_ticks(ticks: int) -> int:
    """Whole nanoseconds, rounded up.

    >>> ns_from_ticks(1), ns_from_ticks(100_000)
    (1, 1)
    """
    return -(-ticks // TICKS_PER_NS)
