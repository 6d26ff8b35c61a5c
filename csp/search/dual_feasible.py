"""Integer dual feasible functions, kept as functions so that a state's bound is a sum of table entries.

A function f with a capacity F is dual feasible for bins of capacity M if sizes that fit one bin (sum <= M) always have
sum f(size) <= F. Items at the end of a batch fit M together, so the batches that generate all remaining tokens are at
least sum f / F of them. The families are those of `csp.relaxations.packing`, and Carlier, Clautiaux and Moukrim's
(2007), which counts how many of a small item c fit beside a size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

_MAX_PARAMETERS = 128


@dataclass(frozen=True, slots=True)
class DualFeasible:
    """One function with integer values.

    Parameters
    ----------
    name
        Family and parameter.
    capacity
        F, what the values of one bin sum to at most.
    value
        f, for sizes 1..M.
    """

    name: str
    capacity: int
    value: Callable[[int], int]

    def ratio(self, counts: Mapping[int, int]) -> Fraction:
        """Bins that a multiset of sizes needs by this function, unrounded."""
        return Fraction(sum(n * self.value(s) for s, n in counts.items()), self.capacity)


def area(capacity: int) -> DualFeasible:
    """The identity."""
    return DualFeasible("area", capacity, lambda s: s)


def threshold(capacity: int, alpha: int) -> DualFeasible:
    """Martello and Toth, alpha <= M / 2: sizes above M - alpha fill a bin, those below alpha count nothing."""
    return DualFeasible(f"threshold {alpha}", capacity,
                        lambda s: capacity if s > capacity - alpha else 0 if s < alpha else s)  # fmt: skip


def rounding(capacity: int, k: int) -> DualFeasible:
    """Fekete and Schepers' u_k, times k M: k s where (k + 1) s / M is whole, else M floor((k + 1) s / M)."""

    def value(s: int) -> int:
        steps, rest = divmod((k + 1) * s, capacity)
        return steps * capacity if rest else s * k

    return DualFeasible(f"rounding {k}", k * capacity, value)


def counting(capacity: int, c: int) -> DualFeasible:
    """Carlier, Clautiaux and Moukrim, c <= M / 2: small sizes count the c they hold, large ones those they displace."""
    most = capacity // c

    def value(s: int) -> int:
        if 2 * s > capacity:
            return 2 * (most - (capacity - s) // c)
        return most if 2 * s == capacity else 2 * (s // c)

    return DualFeasible(f"counting {c}", 2 * most, value)


def candidates(capacity: int) -> Iterator[DualFeasible]:
    """The families over at most 128 parameters each."""
    halves = _spread(capacity // 2)
    for alpha in halves:
        yield threshold(capacity, alpha)
    for k in range(1, min(64, capacity)):
        yield rounding(capacity, k)
    for c in halves:
        yield counting(capacity, c)


def best_functions(counts: Mapping[int, int], capacity: int, most: int) -> list[DualFeasible]:
    """The area and the functions that bound a multiset of sizes best, at most ``most`` in all, no two alike."""
    chosen = [area(capacity)]
    seen = {_signature(chosen[0], counts)}
    for function in sorted(candidates(capacity), key=lambda f: -f.ratio(counts)):
        if len(chosen) == most:
            break
        signature = _signature(function, counts)
        if signature not in seen:
            seen.add(signature)
            chosen.append(function)
    return chosen


def _signature(function: DualFeasible, counts: Mapping[int, int]) -> tuple[Fraction, ...]:
    return tuple(Fraction(function.value(s), function.capacity) for s in counts)


def _spread(largest: int) -> list[int]:
    """1..largest, thinned evenly to at most `_MAX_PARAMETERS`."""
    if largest <= _MAX_PARAMETERS:
        return list(range(1, largest + 1))
    return sorted({1 + i * (largest - 1) // (_MAX_PARAMETERS - 1) for i in range(_MAX_PARAMETERS)})
