"""Victim rules, one hand-checked state each: the order, whose last request is preempted first."""

from __future__ import annotations

import pytest

from sim.cost.model import load_cost_model
from sim.errors import InputError
from sim.instance import DEFAULT_COST_MODEL, Instance, Request
from sim.preemption import load_victim_rule
from sim.registry import names
from sim.replay import State
from sim.schedule import Batch

REQUESTS = (
    Request(6, 9, 0, 1),
    Request(3, 4, 5, 0),
    Request(8, 20, 0, 2),
    Request(2, 8, 2, 1),
)
# After two batches: 0 decodes with 7 KVs, 1 with 4, 2 is filled in part (5 of 8), 3 waited once: 2 KVs and one token.
ORDERS = {
    "nrf": [1, 2, 0, 3],
    "srf": [0, 1, 2, 3],
    "longest": [3, 1, 2, 0],
    "oldest": [1, 3, 2, 0],
    "lowest_priority": [1, 0, 3, 2],
    "most_remaining": [1, 0, 3, 2],
    "least_computed": [1, 0, 3, 2],
    "fewest_lost_per_freed": [1, 0, 2, 3],
}


@pytest.fixture
def state() -> State:
    instance = Instance(REQUESTS, 64, block_size=4)
    state = State(instance, load_cost_model(DEFAULT_COST_MODEL))
    state.apply(Batch(((0, 6), (1, 3), (2, 3)), start_ns=10))
    state.apply(Batch(((0, 1), (1, 1), (2, 2), (3, 2))))
    assert state.kv == [7, 4, 5, 2]
    assert state.ready == [True, True, False, True]
    assert state.generated == [2, 2, 0, 1]
    return state


@pytest.mark.parametrize("name", ORDERS)
def test_order(name: str, state: State) -> None:
    assert load_victim_rule(name)([1, 2, 0, 3], state) == ORDERS[name]


@pytest.mark.parametrize("name", [n for n in names("sim.preemption") if n != "random"])
def test_ties_keep_their_order(name: str) -> None:
    """Equal requests stay as they are; the oldest rule goes by position in the instance."""
    instance = Instance((Request(2, 3),) * 4, 20)
    state = State(instance, load_cost_model(DEFAULT_COST_MODEL))
    state.apply(Batch(tuple((i, 2) for i in range(4))))
    expected = [3, 2, 1, 0] if name == "oldest" else [2, 0, 3, 1]
    assert load_victim_rule(name)([2, 0, 3, 1], state) == expected


def test_every_rule_is_checked_here() -> None:
    assert set(ORDERS) | {"random"} == set(names("sim.preemption"))


def test_random_is_seeded_and_fair(state: State) -> None:
    first, second, other = (load_victim_rule("random", seed) for seed in (1, 1, 2))
    draws = [first([0, 1, 2, 3], state) for _ in range(2000)]
    assert draws == [second([0, 1, 2, 3], state) for _ in range(2000)]
    assert draws[:50] != [other([0, 1, 2, 3], state) for _ in range(50)]
    assert all(sorted(order) == [0, 1, 2, 3] for order in draws)
    # Binomial(2000, 1/4): four standard deviations are 78.
    assert all(abs(sum(order[-1] == i for order in draws) - 500) < 78 for i in range(4))


def test_unknown_rule_names_the_nearest() -> None:
    with pytest.raises(InputError, match="longest"):
        load_victim_rule("longst")
