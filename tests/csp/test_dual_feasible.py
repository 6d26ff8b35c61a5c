"""Dual feasible functions against every way to fill a bin."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from csp.search.dual_feasible import area, best_functions, candidates, counting


def fillings(capacity: int, largest: int) -> Iterator[list[int]]:
    """Every multiset of sizes that fits."""
    yield []
    for size in range(1, min(capacity, largest) + 1):
        for rest in fillings(capacity - size, size):
            yield [size, *rest]


@pytest.mark.parametrize("capacity", range(1, 19))
def test_no_filling_exceeds_the_capacity(capacity: int) -> None:
    bins = list(fillings(capacity, capacity))
    for function in (area(capacity), *candidates(capacity)):
        values = [0, *(function.value(s) for s in range(1, capacity + 1))]
        assert max(sum(values[s] for s in one) for one in bins) <= function.capacity, function.name


def test_the_best_come_first_after_the_area() -> None:
    functions = best_functions(Counter({16: 5, 21: 3}), 64, 4)
    assert functions[0].name == "area"
    ratios = [float(f.ratio(Counter({16: 5, 21: 3}))) for f in functions[1:]]
    assert ratios == sorted(ratios, reverse=True)


def test_counting_knows_that_only_two_fit() -> None:
    """Two of 5 fit 14: five of them need 2.5 bins, not 25/14."""
    assert counting(14, 5).ratio(Counter({5: 5})) == 2.5
