"""Error tables: how far fitted times are from measured ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

SMALL_BATCH_TOKENS = 256
"""Batches below this many tokens are reported apart: there it is decided whether preempting pays."""


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """Relative errors of one operator group.

    Parameters
    ----------
    group
        Operator group, or "whole batch".
    rows
        "held-out" (never seen by the fit), or "all".
    count, mean, largest
        Rows, and the mean and largest relative error over them.
    small_count, small_mean, small_largest
        The same over batches below 256 tokens; None without any.
    """

    group: str
    rows: str
    count: int
    mean: float
    largest: float
    small_count: int
    small_mean: float | None
    small_largest: float | None

    def to_dict(self) -> dict[str, Any]:
        """The JSON form, fractions rounded to 4 decimals."""
        return {
            "group": self.group, "rows": self.rows, "count": self.count, "mean": round(self.mean, 4),
            "max": round(self.largest, 4), "count_below_256": self.small_count,
            "mean_below_256": None if self.small_mean is None else round(self.small_mean, 4),
            "max_below_256": None if self.small_largest is None else round(self.small_largest, 4),
        }  # fmt: skip


def error_row(group: str, rows: str, errors: NDArray[np.float64], tokens: NDArray[np.float64]) -> ErrorRow:
    """Sum up relative errors of batches with so many tokens."""
    small = errors[tokens < SMALL_BATCH_TOKENS]
    mean, largest = (float(small.mean()), float(small.max())) if len(small) else (None, None)
    return ErrorRow(group, rows, len(errors), float(errors.mean()), float(errors.max()), len(small), mean, largest)


def error_table(rows: Iterable[ErrorRow]) -> str:
    """The rows as text."""
    lines = [f"{'operator group':<36}{'rows':>10}{'n':>6}{'mean':>8}{'max':>8}{'n<256':>7}{'mean':>8}{'max':>8}"]
    for row in rows:
        small = f"{'-':>8}{'-':>8}"
        if row.small_mean is not None and row.small_largest is not None:
            small = f"{row.small_mean:>8.1%}{row.small_largest:>8.1%}"
        lines.append(f"{row.group:<36}{row.rows:>10}{row.count:>6}{row.mean:>8.1%}{row.largest:>8.1%}"
                     f"{row.small_count:>7}{small}")  # fmt: skip
    return "\n".join(lines)
