"""The history bound: below the circulation bound, single requests' least costs by hand, what wrong prices prove."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from bounds.lower import circulation
from bounds.lower.histories import bound
from csp.relaxations.certificate import recheck
from csp.relaxations.combinatorial import additive_weights
from csp.relaxations.histories import (
    BOTH,
    DECODES,
    FILLS,
    Program,
    _Sizes,
    fixed_charges,
    history,
    history_of,
    least_cost,
    prove_histories,
)
from csp.relaxations.load import load_of
from csp.relaxations.patterns import charges
from sim.cost.model import load_cost_model
from sim.instance import Instance, Request

LINEAR = load_cost_model("linear/llama2-7b-a100")


@pytest.mark.parametrize(("inputs", "outputs", "capacity"), [(32, 4, 64), (16, 8, 64)])
def test_between_the_area_and_the_circulation(inputs: int, outputs: int, capacity: int) -> None:
    """A circulation splits into walks, each with a history, so its bound is never below this one."""
    instance = Instance((Request(inputs, outputs),) * 1000, capacity, 4096)
    found, stronger = bound(instance, LINEAR, time_limit_s=20), circulation.bound(instance, LINEAR)
    assert found is not None and stronger is not None
    load = load_of(instance)
    charge = charges(load, LINEAR, additive_weights(load, LINEAR))
    entries = charge.fill(inputs) + sum(charge.decode(inputs + k) for k in range(1, outputs))
    area = Fraction(sum(range(inputs, inputs + outputs)), capacity) * (charge.batch + charge.decode_batch)
    assert 1000 * (entries + area) < found.value_ticks <= stronger.value_ticks
    again = recheck("histories", json.loads(json.dumps(found.inputs)), instance, LINEAR)
    assert again == found.value_ticks


def test_histories_follow_the_batches() -> None:
    """The longest since a fill stays; distances are rounded, and kept while they fit within the horizon."""
    seen = history(4, 5, 2)
    state = 0
    assert seen.after[DECODES, state] == state
    filled = int(seen.after[BOTH, state])
    assert seen.after[FILLS, state] == filled
    for _ in range(3):
        state, filled = filled, int(seen.after[DECODES, filled])
    assert filled == 0
    twice = int(seen.after[BOTH, seen.after[DECODES, seen.after[BOTH, 0]]])
    assert twice not in (0, int(seen.after[BOTH, 0]))


def test_least_cost_is_the_cheapest_of_all_courses() -> None:
    """One request (2, 3) under random prices, against every choice of batches and actions."""
    load = load_of(Instance((Request(2, 3),), 9, 9))
    charge = charges(load, LINEAR, additive_weights(load, LINEAR))
    seen = history(3, 3, 1)
    rng = np.random.default_rng(1)
    for _ in range(3):
        prices = rng.integers(0, 10**10, seen.after.shape)
        sizes = _Sizes(load, charge, 2, 3)

        def cheapest(k: int, state: int | None, left: int, prices: np.ndarray = prices, sizes: _Sizes = sizes) -> int:
            """State None: absent. Any history may follow an absence."""
            if k == 3:
                return 0
            if left == 0:
                return 10**18
            best = 10**18
            places = range(len(seen)) if state is None else [state]
            for at, kind in product(places, (DECODES, BOTH, FILLS)):
                after, price = int(seen.after[kind, at]), int(prices[kind, at])
                if state is None and kind != DECODES:
                    best = min(best, sizes.fill[k] + price * sizes.blocks[k] + cheapest(k + 1, after, left - 1))
                if state is not None:
                    best = min(best, price * sizes.blocks[k - 1] + cheapest(k, after, left - 1))
                    if kind != FILLS:
                        best = min(best, sizes.decode[k] + price * sizes.blocks[k] + cheapest(k + 1, after, left - 1))
            return best if state is None else min(best, cheapest(k, None, left))

        assert least_cost(sizes, seen, prices) == cheapest(0, None, 5)


def test_any_prices_prove_what_they_are_worth() -> None:
    load = load_of(Instance((Request(8, 8),) * 5, 30, 4096))
    charge = charges(load, LINEAR, additive_weights(load, LINEAR))
    seen = history_of(load, 5_000)
    assert seen is not None
    solution = Program(load, charge, seen).solve(20)
    assert solution is not None
    prices, potential = solution
    honest = prove_histories(load, charge, seen, prices, potential)
    assert honest > prove_histories(load, charge, seen, prices * 5 // 4, potential)
    assert honest > prove_histories(load, charge, seen, prices * 4 // 5, potential)
    alone = prove_histories(load, charge, seen, np.zeros_like(prices), np.zeros_like(potential))
    entries = sum(min(charge.fill(8 + k), charge.decode(8 + k)) if k else charge.fill(8) for k in range(8))
    assert alone == Fraction(5 * entries)
    assert alone == prove_histories(load, charge, seen, np.full_like(prices, -7), np.zeros_like(potential))
    # The area: every batch sells its memory for the least charge of any.
    least = int(fixed_charges(charge).min())
    area = prove_histories(load, charge, seen, np.full_like(prices, least // 30), np.zeros_like(potential))
    assert area == 5 * (entries + sum(range(8, 16)) * (least // 30))


def test_what_does_not_fit_is_refused() -> None:
    load = load_of(Instance((Request(2, 3),), 9, 9))
    charge = charges(load, LINEAR, additive_weights(load, LINEAR))
    seen = history(3, 3, 1)
    prices, potential = np.ones_like(seen.after), np.zeros(len(seen), np.int64)
    for wrong in ((prices[:2], potential), (prices, potential[1:]), (prices << 60, potential)):
        with pytest.raises(ValueError, match=r"needs a price|too large"):
            prove_histories(load, charge, seen, *wrong)


def test_left_out_where_the_program_would_be_too_large() -> None:
    few = load_of(Instance((Request(8, 8),) * 5, 30, 4096))
    assert history_of(few, 100) is None
    many = Instance(tuple(Request(8, o) for o in range(1, 400)), 4000, 4096)
    assert bound(many, LINEAR, time_limit_s=1) is None
    prefilled = Instance((replace(Request(8, 8), prefilled=True),) * 4, 30, 4096)
    assert bound(prefilled, LINEAR, time_limit_s=1) is None
