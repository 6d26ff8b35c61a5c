"""Means over seeds with their confidence intervals."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over seeds with its 95 % confidence interval (Student's t); the interval is None for a single value."""

    mean: float
    low: float | None
    high: float | None
    n: int

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{self.mean:.3g}"
        return f"{self.mean:.3g} [{self.low:.3g}, {self.high:.3g}]"

    @property
    def positive(self) -> bool:
        """Whether the whole interval is above zero (for a single value: the value)."""
        return (self.mean if self.low is None else self.low) > 0

    @property
    def negative(self) -> bool:
        """Whether the whole interval is below zero."""
        return (self.mean if self.high is None else self.high) < 0


def interval(values: Iterable[float | None]) -> Interval | None:
    """Interval of the values that are there; None of nothing.

    >>> print(interval([1.0, 2.0, 3.0]))
    2 [-0.484, 4.48]
    """
    known = np.array([v for v in values if v is not None and np.isfinite(v)])
    if not len(known):
        return None
    mean = float(known.mean())
    if len(known) == 1:
        return Interval(mean, None, None, 1)
    from scipy.stats import t

    half = float(t.ppf((1 + CONFIDENCE) / 2, len(known) - 1) * known.std(ddof=1) / np.sqrt(len(known)))
    return Interval(mean, mean - half, mean + half, len(known))
