"""The configuration LP: by hand, against dual feasible functions, and its exact recheck."""

from __future__ import annotations

import json

import numpy as np
import pytest

from bounds.lower.configuration import bound
from csp.relaxations.batches import least_batches_of
from csp.relaxations.certificate import recheck
from csp.relaxations.configuration import SCALE, batches_from_weights, solve_configuration
from csp.relaxations.load import Load, load_of
from sim.cost.model import load_cost_model
from sim.instance import Instance, Request, load_instance
from tests.csp.test_relaxations import random_lengths

LINEAR = load_cost_model("linear/llama2-7b-a100")


def test_by_hand() -> None:
    """Sizes 4 and 4 and 4 into 9: two a batch, 1.5 batches, so 2; of 10 requests (4, 1), 5."""
    for n, batches in ((3, 2), (10, 5)):
        load = Load(((4, 1, n),), 9, 1, 100, None)
        weights = solve_configuration(load)
        assert weights is not None
        assert batches_from_weights(load, weights) == batches


def test_one_token_of_a_request_in_a_batch() -> None:
    """One request (1, 3), M = 100: its three tokens fit together but need three batches: sizes 1, 2, 3, one of each."""
    load = Load(((1, 3, 1), (60, 1, 3)), 100, 1, 100, None)
    weights = solve_configuration(load)
    assert weights is not None
    assert batches_from_weights(load, weights) == 3


def test_never_below_area_and_exact() -> None:
    rng = np.random.default_rng(6)
    for _ in range(60):
        load = Load(random_lengths(rng), 45, int(rng.choice([1, 2])), 1000, None)
        weights = solve_configuration(load)
        assert weights is not None
        batches = batches_from_weights(load, weights)
        assert batches >= -(-load.area_blocks() // load.kv_blocks)
        # Doubling all weights proves the same; raising one weight alone proves no more than the best.
        assert batches_from_weights(load, {s: 2 * u for s, u in weights.items()}) == batches
        heavy = {s: u + SCALE * (s == min(weights)) for s, u in weights.items()}
        assert batches_from_weights(load, heavy) <= batches


def test_recheck_and_damage() -> None:
    instance = load_instance("het8-02")
    found = bound(instance, LINEAR)
    assert found is not None
    inputs = json.loads(json.dumps(found.to_dict()))["inputs"]
    assert recheck("configuration", inputs, instance, LINEAR) == found.value_ticks
    assert inputs["least_batches"] >= least_batches_of(load_of(instance)).packing
    inputs["certificate"]["weights"][0][1] = -5
    with pytest.raises(ValueError):
        recheck("configuration", inputs, instance, LINEAR)


def test_left_out_where_knapsacks_are_too_large() -> None:
    assert bound(Instance((Request(1000, 1000),) * 3, 1_000_000, 4096), LINEAR) is None
