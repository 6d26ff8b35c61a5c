"""The level bound: reference values, exact checks of its certificate, and refusal of what does not fit."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from bounds.lower.levels import bound
from csp.relaxations.aggregate import Relaxation
from csp.relaxations.certificate import Potentials, dominated, prove, recheck
from csp.relaxations.coarsen import coarsen
from csp.relaxations.levels import Levels, solve_levels
from csp.relaxations.load import Load, load_of
from csp.relaxations.patterns import charges
from csp.result import Bound
from sim.clock import TICKS_PER_MS
from sim.cost.model import CostModel, load_cost_model
from sim.instance import Instance, Request, load_instance

LINEAR = load_cost_model("linear/llama2-7b-a100")


def made(instance: Instance, cost: CostModel = LINEAR) -> Bound:
    found = bound(instance, cost, time_limit_s=30)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("inputs", "outputs", "capacity", "per_request_ms"),
    [
        (32, 4, 64, 15.045301),
        (8, 8, 30, 11.790668),
        (16, 8, 64, 10.651515),
        (32, 32, 100, 59.885008),
        (1, 32, 100, 18.658957),
    ],
)
def test_reference_values(inputs: int, outputs: int, capacity: int, per_request_ms: float) -> None:
    """Level programs solved by another program (design notes of the project)."""
    found = made(Instance((Request(inputs, outputs),) * 5, capacity, 4096))
    assert found.value_ms / 5 == pytest.approx(per_request_ms, abs=2e-5)


def test_proves_an_optimum() -> None:
    """Four requests (32, 4), M = 64: the bound is the optimum, 60.181205 ms, to the tick below."""
    instance = load_instance("paper-7.2-i0032")
    assert made(instance).value_ms == pytest.approx(60.181204928, abs=1e-6)


def test_certificate_survives_json_and_is_recomputed() -> None:
    instance = Instance((Request(8, 8),) * 3 + (Request(9, 4),) * 2, 30, 4096)
    found = made(instance)
    inputs = json.loads(json.dumps(found.to_dict()))["inputs"]
    assert recheck("levels", inputs, instance, LINEAR) == found.value_ticks
    assert recheck("levels", {}, instance, LINEAR) is None


def test_inflated_potentials_prove_no_more() -> None:
    """Scaling all potentials by 1.2 breaks patterns; the check then divides the gain out again."""
    load = load_of(Instance((Request(8, 8),) * 3, 30, 4096))
    charge = charges(load, LINEAR, Relaxation(load, LINEAR, 1, 1).default_multipliers().weights)
    levels = Levels(load, charge)
    duals, converged = solve_levels(levels, time_limit_s=30)
    assert converged
    honest = prove(load, charge, levels.potentials(duals))
    assert float(honest) / TICKS_PER_MS / 3 == pytest.approx(11.790668, abs=2e-5)
    assert prove(load, charge, levels.potentials(duals * 1.2)) < honest
    moved = levels.potentials(duals)
    first = moved.absent[0]
    assert prove(load, charge, replace(moved, absent=((first[0] * 2, *first[1:]),))) < honest


@pytest.mark.parametrize("damage", ["lengths", "kind", "potentials", "weights", "levels"])
def test_damaged_certificates_are_refused(damage: str) -> None:
    instance = load_instance("paper-7.2-i0032")
    inputs: dict[str, Any] = json.loads(json.dumps(made(instance).to_dict()))["inputs"]
    certificate = inputs["certificate"]
    if damage == "lengths":
        certificate["lengths"] = [[33, 4, 4]]
    elif damage == "kind":
        certificate["kind"] = "oracle"
    elif damage == "potentials":
        certificate["potentials"]["absent"] = [[1, 2]]
    elif damage == "weights":
        certificate["piece_weights"][0] = ["3/2"]
    else:
        certificate["potentials"]["level"] = certificate["potentials"]["level"][:-1]
    with pytest.raises(ValueError):
        recheck("levels", inputs, instance, LINEAR)


def test_coarsening_rounds_down() -> None:
    load = Load(((4, 2, 1), (5, 2, 2), (40, 9, 3), (41, 7, 1)), 100, 1, 100, None)
    for most in (1, 2, 3, 4, 9):
        coarse = coarsen(load, most)
        assert len(coarse.lengths) <= most
        assert coarse.requests == load.requests
        assert dominated(coarse.lengths, load.lengths)
    assert coarsen(load, 9).lengths == load.lengths
    assert not dominated(((41, 9, 7),), load.lengths)
    assert not dominated(((4, 2, 6),), load.lengths)


def test_left_out_where_the_knapsack_is_too_large() -> None:
    assert bound(Instance((Request(100, 900),) * 3, 100_000, 4096), LINEAR) is None


def test_potentials_round_trip() -> None:
    potentials = Potentials(((1, 2),), ((5, 4, 3),), (0, 1, 2, 3), True)
    assert Potentials.from_dict(json.loads(json.dumps(potentials.to_dict()))) == potentials
    with pytest.raises(ValueError, match="too large"):
        load = Load(((1, 3, 1),), 3, 1, 9, None)
        charge = charges(load, LINEAR, Relaxation(load, LINEAR, 1, 1).default_multipliers().weights)
        prove(load, charge, replace(potentials, level=(0, 2**60, 0, 0)))
    assert math.isfinite(float(Potentials.from_dict(potentials.to_dict()).level[0]))
