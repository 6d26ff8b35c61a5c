"""The level bound: reference values, exact checks of its certificate, and refusal of what does not fit."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from bounds.lower.circulation import bound as circulation_bound
from bounds.lower.levels import bound
from csp.relaxations.aggregate import Relaxation
from csp.relaxations.certificate import Potentials, _lowered, _reachable, dominated, prove, recheck
from csp.relaxations.coarsen import coarsen
from csp.relaxations.combinatorial import additive_weights
from csp.relaxations.levels import Levels, solve_levels
from csp.relaxations.load import Load, load_of
from csp.relaxations.patterns import DECODE, FILL, charges
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
    """Level programs without numbers of residents, solved by another program (design notes of the project)."""
    load = load_of(Instance((Request(inputs, outputs),) * 5, capacity, 4096))
    charge = charges(load, LINEAR, additive_weights(load, LINEAR))
    levels = Levels(load, charge)
    duals, converged = solve_levels(levels, time_limit_s=30)
    assert converged
    proven = prove(load, charge, levels.potentials(duals))
    assert float(proven) / TICKS_PER_MS / 5 == pytest.approx(per_request_ms, abs=2e-5)


@pytest.mark.parametrize(("inputs", "outputs", "capacity"), [(8, 8, 30), (1, 6, 9), (1, 7, 11), (3, 6, 20)])
def test_numbers_of_residents_prove_more(inputs: int, outputs: int, capacity: int) -> None:
    """Than blocks alone; and no more than whole resident sets."""
    instance = Instance((Request(inputs, outputs),) * 5, capacity, 4096)
    load = load_of(instance)
    charge = charges(load, LINEAR, additive_weights(load, LINEAR))
    proven = []
    start = None
    for residents in (0, 2, capacity // inputs):
        levels = Levels(load, charge, residents=residents)
        duals, converged = solve_levels(levels, time_limit_s=30, start=start)
        assert converged
        start = levels, duals
        proven.append(prove(load, charge, levels.potentials(duals)))
    sets = circulation_bound(instance, LINEAR)
    assert sets is not None
    assert proven[0] < proven[2] <= sets.value_ticks
    assert proven[0] <= proven[1] * (1 + 1e-5)
    assert proven[1] <= proven[2] * (1 + 1e-5)
    found = made(instance)
    assert found.inputs["residents"] > 0
    assert found.value_ticks > proven[0]


def brute_force_gain(levels: Levels, duals: npt.NDArray[np.float64], *, idle: bool = False) -> float:
    """The most a pattern gains, by listing all of them; or all that process nothing."""
    items, psi, profit = levels.items, levels.psi(duals), levels.profits(duals)
    charge, most = levels.charge, levels.residents
    best = -math.inf

    def extend(q: int, used: list[int], before: int, after: int) -> None:
        nonlocal best
        if q == len(items):
            rows = [r for r in range(len(items)) for _ in range(used[r])]
            fills = any(items.action[r] == FILL for r in rows)
            decodes = any(items.action[r] == DECODE for r in rows)
            if idle and (fills or decodes):
                return
            stays = [r for r in rows if items.after[r] and not (levels.apart and items.completes[r])]
            left = sum(int(items.after[r]) for r in stays)
            fixed = charge.batch * (fills or decodes) + fills * charge.prefill_batch + decodes * charge.decode_batch
            gain = sum(float(profit[r]) for r in rows) - fixed / TICKS_PER_MS - psi[min(most, len(stays)), left]
            residents = sum(1 for r in rows if items.before[r])
            best = max(best, gain + psi[min(most, residents), before])
            return
        number = 0
        while before + number * items.before[q] <= levels.limit and after + number * items.after[q] <= levels.limit:
            extend(q + 1, [*used, number], before + number * int(items.before[q]),
                   after + number * int(items.after[q]))  # fmt: skip
            number += 1

    extend(0, [], 0, 0)
    return best


@pytest.mark.parametrize("lengths", [((1, 3, 4),), ((1, 2, 2), (2, 2, 1)), ((2, 3, 2),)])
@pytest.mark.parametrize("residents", [0, 1, 2, 5])
def test_pricing_finds_the_best_pattern(lengths: tuple[tuple[int, int, int], ...], residents: int) -> None:
    load = Load(lengths, 5, 1, 9, None)
    charge = charges(load, LINEAR, additive_weights(load, LINEAR))
    levels = Levels(load, charge, residents=residents)
    levels.seed()
    duals = np.random.default_rng(residents).uniform(0, 5, levels.rows)
    gain, patterns = levels.price(duals)
    assert gain == pytest.approx(max(0.0, brute_force_gain(levels, duals)), abs=1e-9)
    assert gain > 0
    assert all(levels.add(counts) for counts in patterns if tuple(sorted(counts.items())) not in levels._known)


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


@pytest.mark.parametrize(("lengths", "block"), [
    (((1, 3, 4),), 1), (((1, 2, 3),), 1), (((1, 2, 2), (2, 2, 1)), 1), (((60, 3, 2),), 64),
])  # fmt: skip
@pytest.mark.parametrize("residents", [0, 1, 2, 5])
def test_whatever_the_potentials_the_proof_counts_every_pattern(
    lengths: tuple[tuple[int, int, int], ...], block: int, residents: int
) -> None:
    """Lowered potentials gain nothing where nothing is processed, and the bound pays for the most that is gained.

    Long prompts have the best patterns fill and decode.
    """
    load = Load(lengths, 5, block, 999, None)
    charge = charges(load, LINEAR, additive_weights(load, LINEAR))
    levels = Levels(load, charge, residents=residents)
    random = np.random.default_rng(residents)
    for potential, scale in product((5.0, 50.0), (0.1, 5.0, 50.0, 200.0)):
        duals = np.where(np.arange(levels.rows) < levels.first_level_row, potential, scale) * random.random(levels.rows)
        given = levels.potentials(duals)
        proven = prove(load, charge, given)
        level = np.array(given.level)
        lowered = _lowered(load, given, level, _reachable(levels.items, level.shape))
        for (kind, k), row in levels.resident.items():
            duals[row] = lowered[kind][k - 1] / TICKS_PER_MS
        assert brute_force_gain(levels, duals, idle=True) <= 1e-9
        gain = max(0.0, brute_force_gain(levels, duals)) * TICKS_PER_MS
        claimed = sum(n * given.absent[kind][0] for kind, (_, _, n) in enumerate(load.lengths))
        assert float(proven) == pytest.approx(claimed / (1 + gain / charge.least), rel=1e-7)


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
        certificate["potentials"]["level"][0].pop()
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


def test_too_many_numbers_of_residents_are_refused() -> None:
    load = Load(((1, 3, 1),), 99, 1, 99, None)
    charge = charges(load, LINEAR, additive_weights(load, LINEAR))
    potentials = Potentials(((1, 2),), ((5, 4, 3),), ((0,) * 100,) * 99, True)
    with pytest.raises(ValueError, match="too many"):
        prove(load, charge, potentials)


def test_left_out_where_the_knapsack_is_too_large() -> None:
    assert bound(Instance((Request(100, 900),) * 3, 100_000, 4096), LINEAR) is None


def test_potentials_round_trip() -> None:
    potentials = Potentials(((1, 2),), ((5, 4, 3),), ((0, 1, 2, 3), (0, 0, 2, 3)), True)
    assert Potentials.from_dict(json.loads(json.dumps(potentials.to_dict()))) == potentials
    with pytest.raises(ValueError, match="too large"):
        load = Load(((1, 3, 1),), 3, 1, 9, None)
        charge = charges(load, LINEAR, Relaxation(load, LINEAR, 1, 1).default_multipliers().weights)
        prove(load, charge, replace(potentials, level=((0, 2**60, 0, 0),)))
    assert math.isfinite(float(Potentials.from_dict(potentials.to_dict()).level[0][0]))
