"""Exact time of many batches in a row whose features grow by the same step: piecewise affine in the batch number.

The k-th batch of a run of decode steps reads k x n more KVs than the first, the k-th equal chunk of a fill k x c more.
Every piece of a cost model is affine in the features, so each is affine in k, and their maximum changes pieces only
where two lines cross.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isqrt

from sim.cost.model import CostModel, Features

Stretch = tuple[int, int, int]
"""(batches, ticks of the first, ticks each next one takes longer)."""


class RunTimer:
    """Times runs of batches under one cost model.

    Parameters
    ----------
    cost
        The cost model.
    """

    def __init__(self, cost: CostModel) -> None:
        self.cost = cost
        self._flat = tuple(cost.coefficient(f) for f in Features._fields) if cost.additive else None

    def line(self, first: Features, step: Features) -> tuple[int, int]:
        """Ticks of the first batch and growth per batch; only for additive cost models."""
        assert self._flat is not None
        b, p, d, n_p, n_d, t, q, r_p, r_d = self._flat
        f = first
        ticks = (b * f[0] + p * f[1] + d * f[2] + n_p * f[3] + n_d * f[4] + t * f[5] + q * f[6] + r_p * f[7]
                 + r_d * f[8])  # fmt: skip
        return ticks, q * step[6] + r_p * step[7] + r_d * step[8]

    def stretches(self, first: Features, step: Features, repeat: int) -> Iterator[Stretch]:
        """Cut a run into stretches in which the batch time grows by a constant.

        Parameters
        ----------
        first, step
            Features of the first batch and what each next one has more (>= 0; only the sums of reads grow).
        repeat
            Batches in the run, >= 1.
        """
        if self._flat is not None:
            ticks, growth = self.line(first, step)
            yield repeat, ticks, growth
            return
        lines = [[(_dot(piece, first), _dot(piece, step)) for piece in group.pieces] for group in self.cost.groups]
        done = 0
        while done < repeat:
            length = repeat - done
            ticks = growth = 0
            for group in lines:
                value, slope = max((a + b * done, b) for a, b in group)
                ticks += value
                growth += slope
                for a, b in group:
                    if b > slope:
                        # The first k with a + b (done + k) > value + slope k.
                        crossing = (value - a - b * done) // (b - slope) + 1
                        length = min(length, crossing)
            yield length, ticks, growth
            done += length

    def total(self, first: Features, step: Features, repeat: int) -> int:
        """Exact time of the whole run in ticks.

        >>> from sim.cost.model import load_cost_model
        >>> timer = RunTimer(load_cost_model("linear/llama2-7b-a100"))
        >>> first = Features(1, 0, 1, 0, 1, 1, 0, 0, 32)
        >>> step = Features(0, 0, 0, 0, 0, 0, 0, 0, 1)
        >>> second = Features(1, 0, 1, 0, 1, 1, 0, 0, 33)
        >>> timer.total(first, step, 2) == timer.cost.batch_ticks(first) + timer.cost.batch_ticks(second)
        True
        """
        if self._flat is not None:
            return stretch_ticks(repeat, *self.line(first, step))
        return sum(stretch_ticks(*stretch) for stretch in self.stretches(first, step, repeat))

    def batches_until(self, first: Features, step: Features, repeat: int, wait_ticks: int) -> int:
        """How many batches of a run are begun before ``wait_ticks`` have passed: at least 1, at most ``repeat``."""
        begun = 0
        for length, ticks, growth in self.stretches(first, step, repeat):
            took = stretch_ticks(length, ticks, growth)
            if took >= wait_ticks:
                return max(1, begun + least_batches(ticks, growth, wait_ticks))
            wait_ticks -= took
            begun += length
        return repeat


def stretch_ticks(batches: int, ticks: int, growth: int) -> int:
    """Sum of an arithmetic series: ``batches`` terms, the first ``ticks``, each next ``growth`` more."""
    return batches * ticks + growth * (batches * (batches - 1) // 2)


def least_batches(ticks: int, growth: int, wait_ticks: int) -> int:
    """Least number of batches of a stretch that take at least ``wait_ticks`` together.

    >>> [least_batches(10, 5, wait) for wait in (0, 1, 10, 11, 25, 26, 45, 46)]
    [0, 1, 1, 2, 2, 3, 3, 4]
    """
    if wait_ticks <= 0:
        return 0
    if growth == 0:
        return -(-wait_ticks // ticks)
    # growth k^2 + (2 ticks - growth) k - 2 wait >= 0, k real; the root is rounded down and raised from there.
    linear = 2 * ticks - growth
    k = max(0, (isqrt(linear * linear + 8 * growth * wait_ticks) - linear) // (2 * growth))
    while stretch_ticks(k, ticks, growth) < wait_ticks:
        k += 1
    return k


def _dot(piece: tuple[int, ...], features: Features) -> int:
    return sum(a * x for a, x in zip(piece, features, strict=True) if a)
