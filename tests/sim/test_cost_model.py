"""The common form of cost models: evaluation, data files, bad files."""

from __future__ import annotations

import json
import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from sim.clock import ticks_from_ms
from sim.cost import CostModel, Features, OperatorGroup, cost_model_names, load_cost_model
from sim.cost.model import cost_model_from_dict
from sim.errors import InputError

ZERO = Features(0, 0, 0, 0, 0, 0, 0, 0, 0)


@pytest.fixture(params=cost_model_names())
def cost(request: pytest.FixtureRequest) -> CostModel:
    return load_cost_model(request.param)


def random_features(rng: random.Random) -> Features:
    n_p, n_d, tokens, square, reads, d_reads = (rng.randint(0, 3000) for _ in range(6))
    return Features(1, int(n_p > 0), int(n_d > 0), n_p, n_d, tokens, square, reads, d_reads)


def test_batch_time_is_the_sum_of_largest_pieces(cost: CostModel) -> None:
    rng = random.Random(1)
    for _ in range(50):
        features = random_features(rng)
        by_hand = 0
        for group in cost.groups:
            by_hand += max(sum(a * x for a, x in zip(piece, features, strict=True)) for piece in group.pieces)
        assert cost.batch_ticks(features) == by_hand


def test_time_never_falls_when_a_feature_grows(cost: CostModel) -> None:
    rng = random.Random(2)
    for _ in range(20):
        features = random_features(rng)
        for name in Features._fields:
            more = features._replace(**{name: getattr(features, name) + 1})
            assert cost.batch_ticks(more) >= cost.batch_ticks(features)
    assert cost.batch_ticks(ZERO) == 0


def test_a_non_empty_batch_takes_time(cost: CostModel) -> None:
    assert cost.batch_ticks(Features(1, 1, 0, 1, 0, 1, 1, 0, 0)) > 0
    assert cost.batch_ticks(Features(1, 0, 1, 0, 1, 1, 0, 0, 1)) > 0


def test_round_trip(cost: CostModel) -> None:
    again = cost_model_from_dict(json.loads(json.dumps(cost.to_dict())), "x.json")
    assert again.groups == cost.groups
    assert (again.name, again.kind, again.layers) == (cost.name, cost.kind, cost.layers)


def test_coefficients_of_a_model_that_is_not_additive() -> None:
    two = (ticks_from_ms(1), *[0] * 8), (0, 0, 0, 0, 0, ticks_from_ms(1), 0, 0, 0)
    cost = CostModel("x", "max-affine", 1, (OperatorGroup("g", two),))
    assert not cost.additive
    with pytest.raises(ValueError, match="max-affine"):
        cost.coefficient("tokens")
    times = [cost.batch_ticks(Features(1, 1, 0, 1, 0, tokens, 0, 0, 0)) for tokens in (0, 1, 2)]
    assert times == [ticks_from_ms(1), ticks_from_ms(1), ticks_from_ms(2)]


def test_decimals_are_not_rounded_through_binary(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text('{"kind": "linear", "layers": 3, "groups": [{"name": "g", "pieces": [{"tokens": 0.1}]}]}')
    assert Fraction(load_cost_model(str(path)).coefficient("tokens"), 10**11) == Fraction(3, 10)


GOOD: dict[str, Any] = {"name": "x", "kind": "linear", "layers": 2,
                        "groups": [{"name": "g", "pieces": [{"tokens": "0.5"}]}]}  # fmt: skip

BAD = {
    "not a mapping": [],
    "unknown key": GOOD | {"layer": 2},
    "no kind": {k: v for k, v in GOOD.items() if k != "kind"},
    "no groups": {k: v for k, v in GOOD.items() if k != "groups"},
    "kind": GOOD | {"kind": "quadratic"},
    "layers zero": GOOD | {"layers": 0},
    "layers text": GOOD | {"layers": "2"},
    "layers true": GOOD | {"layers": True},
    "groups empty": GOOD | {"groups": []},
    "group without pieces": GOOD | {"groups": [{"name": "g"}]},
    "group with no piece": GOOD | {"groups": [{"name": "g", "pieces": []}]},
    "piece is a list": GOOD | {"groups": [{"name": "g", "pieces": [[1]]}]},
    "unknown feature": GOOD | {"groups": [{"name": "g", "pieces": [{"token": 1}]}]},
    "negative": GOOD | {"groups": [{"name": "g", "pieces": [{"tokens": -1}]}]},
    "nan": GOOD | {"groups": [{"name": "g", "pieces": [{"tokens": float("nan")}]}]},
    "infinite": GOOD | {"groups": [{"name": "g", "pieces": [{"tokens": "inf"}]}]},
    "text": GOOD | {"groups": [{"name": "g", "pieces": [{"tokens": "much"}]}]},
    "boolean": GOOD | {"groups": [{"name": "g", "pieces": [{"tokens": True}]}]},
    "null": GOOD | {"groups": [{"name": "g", "pieces": [{"tokens": None}]}]},
    "unknown group key": GOOD | {"groups": [{"name": "g", "piece": [], "pieces": [{"tokens": 1}]}]},
    "enormous": GOOD | {"groups": [{"name": "g", "pieces": [{"tokens": "1e400"}]}]},
    "schema version": GOOD | {"schema_version": 2},
    "name is a number": GOOD | {"name": 3},
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files_are_refused_by_name(case: str) -> None:
    with pytest.raises(InputError) as caught:
        cost_model_from_dict(BAD[case], "x.json")
    assert str(caught.value).startswith("x.json: ")
    assert "\n" not in str(caught.value)


def test_good_file_is_accepted() -> None:
    assert cost_model_from_dict(GOOD, "x.json").coefficient("tokens") == ticks_from_ms(1)


def test_unknown_name_has_the_nearest_one() -> None:
    with pytest.raises(InputError, match="did you mean 'linear/llama2-7b-a100'"):
        load_cost_model("linear/llama2-7b-a10")
