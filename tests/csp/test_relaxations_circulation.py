"""The circulation bound: reference values, exact recheck, and what its network lists."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest

from bounds.lower.circulation import bound
from bounds.lower.levels import bound as levels_bound
from csp.relaxations.aggregate import Relaxation
from csp.relaxations.certificate import recheck
from csp.relaxations.circulation import TooManyError, network, prove_circulation, solve_circulation
from csp.relaxations.load import load_of
from csp.relaxations.patterns import charges
from sim.clock import TICKS_PER_MS
from sim.cost.model import load_cost_model
from sim.instance import Instance, Request, load_instance

LINEAR = load_cost_model("linear/llama2-7b-a100")


@pytest.mark.parametrize(
    ("inputs", "outputs", "capacity", "per_request_ms"),
    [(32, 4, 64, 15.045301), (8, 8, 30, 11.890538), (16, 8, 64, 10.807653)],
)
def test_reference_values(inputs: int, outputs: int, capacity: int, per_request_ms: float) -> None:
    """Circulations solved by another program (design notes of the project); never below the level bound."""
    instance = Instance((Request(inputs, outputs),) * 7, capacity, 4096)
    found, weaker = bound(instance, LINEAR), levels_bound(instance, LINEAR, time_limit_s=20)
    assert found is not None and weaker is not None
    assert found.value_ms / 7 == pytest.approx(per_request_ms, abs=1e-6)
    assert weaker.value_ticks <= found.value_ticks + 1
    again = recheck("circulation", json.loads(json.dumps(found.inputs)), instance, LINEAR)
    assert again == found.value_ticks


def test_below_known_optima() -> None:
    """I = 8, O = 8, M = 30: optima for N = 6, 8, 9, 10 (design notes of the project)."""
    for n, optimum_ms in ((6, 71.727), (8, 97.904), (9, 110.847), (10, 120.213)):
        found = bound(Instance((Request(8, 8),) * n, 30, 4096), LINEAR)
        assert found is not None
        assert found.value_ms <= optimum_ms + 5e-4
        assert found.value_ms > 0.96 * optimum_ms


def test_network_of_one_request_by_hand() -> None:
    """One request (2, 2), M = 3: sets {} and {k = 1}. From {}: nothing, or fill at 0 or at 1, or both at M = 5."""
    load = load_of(Instance((Request(2, 2),), 3, 4096))
    charge = charges(load, LINEAR, Relaxation(load, LINEAR, 1, 1).default_multipliers().weights)
    net = network(load, charge)
    assert net.states == ((0,), (1,))
    arcs = sorted(zip(net.source.tolist(), net.target.tolist(), net.processes.tolist(), strict=True))
    # {}: idle, refill at 1 (completes), fill at 0. {1}: evict (alone, or beside a fill of either kind), decode, hold.
    assert arcs == [(0, 0, False), (0, 0, True), (0, 1, True), (1, 0, False), (1, 0, True), (1, 0, True), (1, 1, False),
                    (1, 1, True)]  # fmt: skip


def test_several_types_and_inflated_potentials() -> None:
    instance = Instance((Request(5, 3), Request(4, 2), Request(2, 4)), 9, 4096)
    load = load_of(instance)
    charge = charges(load, LINEAR, Relaxation(load, LINEAR, 1, 1).default_multipliers().weights)
    net = network(load, charge)
    found = solve_circulation(load, net)
    assert found is not None
    sets, absent = ([round(x * TICKS_PER_MS) for x in part] for part in (found.potential, found.outside))
    honest = prove_circulation(load, charge, sets, absent)
    assert honest > 0
    assert prove_circulation(load, charge, [2 * x for x in sets], [2 * x for x in absent]) < honest
    assert prove_circulation(load, charge, sets, [absent[0] * 2, *absent[1:]]) < honest
    with pytest.raises(ValueError, match="each resident set"):
        prove_circulation(load, charge, sets[:-1], absent)
    with pytest.raises(ValueError, match="too large"):
        prove_circulation(load, charge, [2**60, *sets[1:]], absent)
    assert isinstance(honest, Fraction)


def test_left_out_where_there_are_too_many_sets() -> None:
    instance = load_instance("het8-00")
    load = load_of(instance)
    charge = charges(load, LINEAR, Relaxation(load, LINEAR, 1, 1).default_multipliers().weights)
    with pytest.raises(TooManyError):
        network(load, charge)
    assert bound(instance, LINEAR) is None
