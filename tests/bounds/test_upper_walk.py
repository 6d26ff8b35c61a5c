"""Walks along a circulation: near the bound, valid, and only where resident sets can be listed."""

from __future__ import annotations

import numpy as np
import pytest

from bounds.lower.circulation import bound
from bounds.upper.walk import Walk, applies, composition, schedules
from csp.relaxations.circulation import network, solve_circulation
from csp.relaxations.combinatorial import additive_weights
from csp.relaxations.load import load_of
from csp.relaxations.patterns import charges
from sim.cost.model import load_cost_model
from sim.instance import Instance, Request
from sim.replay import replay

LINEAR, MAX_AFFINE = (load_cost_model(f"{form}/llama2-7b-a100") for form in ("linear", "max-affine"))


def best_ms(instance: Instance, name: str = "linear") -> float:
    cost = {"linear": LINEAR, "max-affine": MAX_AFFINE}[name]
    found = [schedule for schedule, _ in schedules(instance, cost, "makespan", lambda: False, 0.0)]
    return min(replay(instance, schedule, cost=cost).makespan_ms for schedule in found)


@pytest.mark.parametrize(("inputs", "outputs", "capacity", "distance"), [(8, 8, 30, 0.01), (8, 6, 24, 0.02)])
def test_near_the_bound(inputs: int, outputs: int, capacity: int, distance: float) -> None:
    """The bound is homogeneous, so what is lost at the beginning and the end fades with the number of requests."""
    instance = Instance((Request(inputs, outputs),) * 200, capacity)
    lower = bound(instance, LINEAR)
    assert lower is not None
    assert lower.value_ms <= best_ms(instance) <= (1 + distance) * lower.value_ms


@pytest.mark.parametrize("cost", ["linear", "max-affine"])
@pytest.mark.parametrize("block_size", [1, 2])
def test_random_workloads(cost: str, block_size: int) -> None:
    """Every walk is a schedule (the replay would refuse it), with one or two types and any number of requests."""
    rng = np.random.default_rng(block_size)
    for _ in range(6):
        kinds = [(int(rng.integers(2, 9)), int(rng.integers(1, 5)), int(rng.integers(1, 9))) for _ in range(2)]
        instance = Instance(sum(((Request(i, o),) * n for i, o, n in kinds), ()), 14, block_size=block_size)
        assert best_ms(instance, cost) > 0


def test_batches_of_the_network_are_understood() -> None:
    instance = Instance((Request(5, 3), Request(4, 2)), 13)
    load = load_of(instance)
    charge = charges(load, LINEAR, additive_weights(load, LINEAR))
    net = network(load, charge)
    for arc in range(len(net.source)):
        move = composition(net, load, charge, arc)
        assert bool(move.decode or move.fill) == net.processes[arc]
    solution = solve_circulation(load, net)
    assert solution is not None
    assert Walk(instance, load, charge, net, solution).run(0.1, True, lambda: True) is not None


def test_left_out_where_it_does_not_apply() -> None:
    assert applies(Instance((Request(5, 3),) * 2, 20))
    assert not applies(Instance((Request(5, 3), Request(5, 3, arrival_ns=1)), 20))
    assert not applies(Instance((Request(5, 3),) * 2, 20, token_budget=10))
    assert not applies(Instance((Request(5, 3),) * 9, 20, max_num_seqs=1))
    large = Instance((Request(100, 100),) * 9, 2_000)
    assert list(schedules(large, LINEAR, "makespan", lambda: False, 0.0)) == []
    stopped = Instance((Request(8, 8),) * 9, 30)
    assert list(schedules(stopped, LINEAR, "makespan", lambda: True, 0.0)) == []
